#!/usr/bin/env python3
"""Shows that the tests of several loops and of loading on demand can fail.

Each mistake changes one place of the code. The script runs the test that must notice it. It fails if the test
passes with the mistake, or if the place is not found any more.

    scripts/mistakes.py                   all mistakes, about a minute each
    scripts/mistakes.py claim-kept        some of them
    scripts/mistakes.py --list            their names
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent

# The simulator's short run of crashes.
CRASHES = "tests::crash::random_crash_chains_keep_every_promise"

# Name: the test, the file, the text that is there, and the text of the mistake.
MISTAKES = {
    "exec-compares-early": (
        "no_increment_under_watch_is_lost_when_several_loops_make_them",
        "crates/server/src/command/connection/block.rs",
        "self.is_void = self.watched.changed().is_some();",
        "self.is_void = false;",
    ),
    "claim-kept": (
        "each_item_reaches_one_client_and_nobody_waits_beside_an_item",
        "crates/server/src/command/data/serving.rs",
        "for seat in served.chain(running) {",
        "for seat in served.chain(running).take(0) {",
    ),
    "dead-client-served": (
        "an_item_that_is_pushed_after_a_client_has_left_stays",
        "crates/server/src/command/wait.rs",
        "self.common.blocking.with(|blocking| blocking.leave(id));",
        "",
    ),
    "letters-reversed": (
        "all_subscribers_of_a_channel_get_its_messages_in_one_order",
        "crates/server/src/mailbox.rs",
        "std::mem::swap(&mut *letters, to);",
        "std::mem::swap(&mut *letters, to);\n        to.reverse();",
    ),
    "letter-before-epoch": (
        "redis::loops::a_message_waits_for_the_write_that_it_tells_of",
        "crates/server/src/common.rs",
        "post: Arc::clone(post),\n            epoch,",
        "post: Arc::clone(post),\n            epoch: Epoch(epoch.0.min(0)),",
    ),
    "settings-of-one-loop": (
        "redis::loops::settings_users_and_pauses_hold_for_the_clients_of_all_loops_at_once",
        "crates/server/src/alone.rs",
        "self.options.clone_from(&from.options);",
        "",
    ),
    "users-of-one-loop": (
        "redis::loops::settings_users_and_pauses_hold_for_the_clients_of_all_loops_at_once",
        "crates/server/src/acl/mod.rs",
        "        other.acl.adopt(&state.acl);\n        renew_clients(other);",
        "        other.acl.adopt(&state.acl);",
    ),
    "script-not-noted": (
        "redis::long_scripts::requests_for_the_key_of_another_loops_scripts",
        "crates/server/src/command/data.rs",
        "if state.common.flights.begin(flight, latched) {",
        "if latched.is_empty() {",
    ),
    "wishes-ignored": (
        "redis::long_scripts::requests_for_the_key_of_another_loops_scripts",
        "crates/server/src/flights.rs",
        "wanted.intersects(partitions) && !is_long(*of)",
        "wanted.intersects(partitions) && is_long(*of)",
    ),
    "absent-read": (
        CRASHES,
        "crates/txn/src/executor/latching.rs",
        "if self.heap.is_absent(id) {",
        "if self.heap.is_absent(id) && parts.iter().count() > 99 {",
    ),
    "checkpoint-early": (
        CRASHES,
        "crates/recovery/src/life/checkpoints.rs",
        "loading.load_all()?;",
        "let _ = loading;",
    ),
    "purge-early": (
        CRASHES,
        "crates/engine/src/core/purging.rs",
        "if self.purge.is_held() || !self.is_loaded() {",
        "if self.purge.is_held() {",
    ),
    "waiting-header-forgotten": (
        CRASHES,
        "crates/recovery/src/demand/building.rs",
        "waiting.remove(&id).unwrap_or_default()",
        "waiting.remove(&id).filter(Vec::is_empty).unwrap_or_default()",
    ),
    "late-catalog-page": (
        CRASHES,
        "crates/recovery/src/demand/catalog.rs",
        "is_present() || is_of_catalog(change) {",
        "is_present() && is_of_catalog(change) {",
    ),
    "walk-deaf": (
        "redis::loops::keys_in_steps_sees_the_changes_of_other_loops",
        "crates/server/src/scans.rs",
        "if *walked == database {",
        "if *walked > database {",
    ),
}


def cargo(tree, *args):
    return subprocess.run(["cargo", *args, "--target-dir", str(HERE / "target/mistakes")], cwd=tree)


def is_noticed(tree, name):
    """Returns whether the test of a mistake fails with the mistake."""
    test, file, old, new = MISTAKES[name]
    path = tree / file
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{name}: {file} has not one line {old!r}; mend MISTAKES in this script")
    path.write_text(text.replace(old, new))
    try:
        place = ["--test", "redis"] if test.startswith("redis::") else ["--lib"]
        package = "perdura-sim" if test == CRASHES else "perdura-server"
        tests = ["test", "--quiet", "--package", package, *place]
        if cargo(tree, *tests, "--no-run").returncode != 0:
            sys.exit(f"{name}: {file} does not build with the mistake; mend MISTAKES in this script")
        return cargo(tree, *tests, test).returncode != 0
    finally:
        path.write_text(text)


def main(names):
    if names == ["--list"]:
        print("\n".join(MISTAKES))
        return
    unknown = [name for name in names if name not in MISTAKES]
    if unknown:
        sys.exit(f"unknown: {' '.join(unknown)}; known: {' '.join(MISTAKES)}")
    # At a path that stays, a second run need not build everything again.
    tree = HERE / "target/mistakes/loops"
    subprocess.run(["git", "worktree", "add", "--quiet", "--force", "--detach", tree], cwd=HERE, check=True)
    try:
        missed = [name for name in names or MISTAKES if not is_noticed(tree, name)]
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=HERE, check=True)
    if missed:
        sys.exit(f"no test noticed: {' '.join(missed)}")
    print("each mistake is noticed")


main(sys.argv[1:])
