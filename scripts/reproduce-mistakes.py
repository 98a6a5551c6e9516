#!/usr/bin/env python3
"""Shows that the verdicts of the papers' figures can turn.

Each mistake changes one place in the product or in an experiment. The script builds Perdura with the mistake, makes
the figure at small scale, and compares the verdicts with the recorded ones in docs/papers. It fails if no verdict is
worse, or if the place is not found any more.

    scripts/reproduce-mistakes.py                   all mistakes, more than an hour on two idle cores. Needs root
    scripts/reproduce-mistakes.py pool-ignored      some of them
    scripts/reproduce-mistakes.py --list            their names
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent

# Name: the figure, the file, the text that is there, and the text of the mistake.
MISTAKES = {
    "rollback-not-compensated": (
        "000-volume",
        "crates/steal/src/rollback.rs",
        "if armed(Flaw::NoClr) || armed(Flaw::PrintedRule) {",
        "if self.scheme == Scheme::Dl1p {",
    ),
    "disks-share-one-rate": (
        "000-fig6",
        "crates/workloads/src/figures/lab.rs",
        "ModelDisk::new(disk, rate,",
        "ModelDisk::new(disk, u64::div_ceil(rate, disks.len() as u64),",
    ),
    "few-clients": (
        "001-fig3",
        "crates/workloads/src/figures/command/clients.rs",
        "[1_000, 5_000, 20_000]",
        "[1_000, 1_001, 1_002]",
    ),
    "round-trips-free": (
        "001-fig10",
        "crates/workloads/src/tpcc/sites.rs",
        "std::thread::sleep(ROUND_TRIP);",
        "",
    ),
    "value-log-of-commands": (
        "001-fig8",
        "crates/workloads/src/figures/command/replay.rs",
        "(label(VALUE), of(VALUE))",
        "(label(VALUE), of(LogScheme::Command))",
    ),
    "dirty-pages-unused": (
        "002-fig2a",
        "crates/recovery/src/tree/play.rs",
        "tree.redo_by_key(gsn, operation, table.as_mut())",
        "tree.redo_by_key(gsn, operation, table.as_mut().filter(|_| false))",
    ),
    "disk-takes-no-time": (
        "003-table3-real",
        "crates/workloads/src/figures/memory_disk/real_nodes/slow_disk.rs",
        "std::thread::sleep(due.saturating_duration_since(Instant::now()));",
        "let _ = due;",
    ),
    "page-read-twice": (
        "004-fig4",
        "crates/restore/src/part.rs",
        "        plan.backup\n            .read_pages(open.partition, nth, some, &mut self.read)\n",
        "        plan.backup\n            .read_pages(open.partition, nth, some, &mut self.read)?;\n"
        "        plan.backup\n            .read_pages(open.partition, nth, some, &mut self.read)\n",
    ),
    "pool-ignored": (
        "004-fig4",
        "crates/restore/src/pool.rs",
        'assert!(frames > 0, "a page is changed in memory");',
        "let frames = frames.min(64);",
    ),
    "sorted-log-read-slowly": (
        "004-fig1",
        "crates/restore/src/part.rs",
        "        plan.backup\n            .read_pages(open.partition, nth, some, &mut self.read)\n",
        "        for _ in 0..3 {\n            plan.backup\n                "
        ".read_pages(open.partition, nth, some, &mut self.read)?;\n        }\n"
        "        plan.backup\n            .read_pages(open.partition, nth, some, &mut self.read)\n",
    ),
}


def run(*args, **more):
    return subprocess.run(args, check=True, **more)


def turned(tree, name):
    """Makes the figure with a mistake. Returns the lines about verdicts that are worse."""
    figure, file, old, new = MISTAKES[name]
    path = tree / file
    text = path.read_text()
    if old not in text:
        sys.exit(f"{name}: {file} has no line {old.strip()!r} any more; mend MISTAKES in this script")
    path.write_text(text.replace(old, new))
    try:
        target = HERE / "target/mistakes"
        build = ["cargo", "build", "--quiet", "--release", "--package", "perdura-cli", "--target-dir", str(target)]
        if subprocess.run(build, cwd=tree).returncode != 0:
            sys.exit(f"{name}: {file} does not build with the mistake; mend MISTAKES in this script")
        made = [target / "release/perdura", "reproduce", figure, "--recorded", HERE / "docs/papers"]
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run([*made, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        path.write_text(text)
    if done.returncode not in (0, 1):
        sys.exit(f"{name}: {figure} could not be made:\n{done.stderr}")
    return [line for line in done.stderr.splitlines() if " is worse than the recorded " in line]


def main(names):
    if names == ["--list"]:
        print("\n".join(MISTAKES))
        return
    unknown = [name for name in names if name not in MISTAKES]
    if unknown:
        sys.exit(f"unknown: {' '.join(unknown)}; known: {' '.join(MISTAKES)}")
    missed = []
    # At a path that stays, a second run need not build everything again.
    tree = HERE / "target/mistakes/tree"
    run("git", "worktree", "add", "--quiet", "--force", "--detach", tree, cwd=HERE)
    try:
        for name in names or MISTAKES:
            lines = turned(tree, name)
            print(f"{name} ({MISTAKES[name][0]}):", *(lines or ["no verdict is worse"]), sep="\n    ", flush=True)
            missed += [] if lines else [name]
    finally:
        run("git", "worktree", "remove", "--force", tree, cwd=HERE)
    if missed:
        sys.exit(f"no verdict noticed: {' '.join(missed)}")


main(sys.argv[1:])
