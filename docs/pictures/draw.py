#!/usr/bin/env python3
"""Draws the pictures of the documents as SVG, readable on a light and on a dark page.

    docs/pictures/draw.py            writes the files beside this one
    docs/pictures/draw.py --check    fails if a file is not what would be written

restart.tsv has the figures of the chart, one line for each size: keys, seconds of Perdura, seconds of
Redis. scripts/bench-restart-sizes.sh measures them.
"""
import pathlib
import sys
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent

STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 12px; fill: #59636e }
  .title { font-weight: 600 }
  .middle { text-anchor: middle }
  .end { text-anchor: end }
  .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2 }
  .memory { fill: #ddf4ff; stroke: #218bff }
  .disk { fill: #fff8c5; stroke: #bf8700 }
  .archive { fill: #dafbe1; stroke: #2da44e }
  .line { stroke: #59636e; stroke-width: 1.6; fill: none }
  .back { stroke-dasharray: 6 4 }
  .head { fill: #59636e }
  .ours { stroke: #218bff; stroke-width: 2.5; fill: none }
  .peer { stroke: #cf222e; stroke-width: 2.5; fill: none }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .box { fill: #151b23; stroke: #656c76 }
    .memory { fill: #0c2d6b; stroke: #58a6ff }
    .disk { fill: #3b2300; stroke: #d29922 }
    .archive { fill: #033a16; stroke: #3fb950 }
    .line { stroke: #9198a1 }
    .head { fill: #9198a1 }
    .grid { stroke: #3d444d }
  }
"""


class Picture:
    """A picture: its size, what it shows in words, and its parts."""

    def __init__(self, width, height, words):
        self.width, self.height, self.words, self.parts = width, height, words, []

    def text(self, x, y, text, look=""):
        self.parts.append(f'<text x="{x}" y="{y}" class="{look}">{escape(text)}</text>')

    def box(self, x, y, width, height, lines, look="box"):
        """A box with a title and small lines below it, all in its middle."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="box {look}"/>'
        )
        first = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        for at, line in enumerate(lines):
            self.text(x + width / 2, first + 17 * at, line, "middle title" if at == 0 else "middle small")

    def arrow(self, points, label="", at=None, look=""):
        """An arrow along points, with a label at a place."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="line {look}" marker-end="url(#head)"/>')
        if label:
            self.text(at[0], at[1], label, "small middle")

    def line(self, points, look):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="{look}"/>')

    def svg(self):
        parts = "\n  ".join(self.parts)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">
  <title>{escape(self.words)}</title>
  <style>{STYLE}  </style>
  <defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
    orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" class="head"/></marker></defs>
  {parts}
</svg>
"""


def overview():
    p = Picture(860, 330, "Clients write into tables in memory; log, images and archive bring them back")
    p.box(10, 40, 150, 56, ["Redis clients", "any language"])
    p.box(10, 150, 150, 56, ["Rust program", "the crate"])
    p.box(230, 40, 190, 166, ["Tables in memory", "transactions", "take latches,", "commit in epochs"], "memory")
    p.box(520, 20, 150, 60, ["Log", "durable before the reply"], "disk")
    p.box(520, 110, 150, 60, ["Images A and B", "checkpoints, in turn"], "disk")
    p.box(520, 230, 150, 80, ["Archive", "the log, sorted by page,", "and backups"], "archive")
    p.box(740, 230, 110, 80, ["A new disk", "any moment"], "disk")
    p.arrow([(160, 68), (226, 68)])
    p.arrow([(160, 178), (226, 178)])
    p.arrow([(420, 62), (466, 62), (466, 50), (516, 50)], "each write", (468, 40))
    p.arrow([(420, 125), (516, 125)], "checkpoint", (468, 117))
    p.arrow([(595, 80), (595, 98), (700, 98), (700, 200), (595, 200), (595, 226)])
    p.arrow([(516, 155), (424, 155)], "", None, "back")
    p.text(470, 174, "restart", "small middle")
    p.text(648, 216, "sorted", "small middle")
    p.arrow([(670, 270), (736, 270)], "restore", (702, 262), "back")
    p.text(325, 232, "after a crash: one image and the log", "small middle")
    p.text(325, 250, "after a lost disk: the archive", "small middle")
    return p


def write():
    p = Picture(860, 250, "The life of a write: latches, commit, epoch, durable write, reply")
    steps = [
        ("Parse", "find the partitions"),
        ("Latch, run", "save the old bytes"),
        ("Commit", "old XOR new"),
        ("Append", "the epoch is known"),
        ("Durable write", "of the whole epoch"),
        ("Reply", "D has reached it"),
    ]
    for at, (title, line) in enumerate(steps):
        look = {4: "disk", 1: "memory", 2: "memory", 3: "memory"}.get(at, "box")
        p.box(10 + 142 * at, 60, 128, 64, [title, line], look)
        if at:
            x = 10 + 142 * at
            p.arrow([(x - 14, 92), (x - 2, 92)])
    p.text(365, 36, "under the latches of the partitions", "small middle")
    p.line([(152, 46), (152, 42), (564, 42), (564, 46)], "line")
    p.text(500, 166, "other transactions see the write from here on", "small middle")
    p.arrow([(500, 150), (500, 128)])
    p.line([(10, 200), (848, 200)], "grid")
    for x, label in [(80, "0"), (360, "about 5 us"), (642, "the disk: 0.1 ms and more"), (784, "then")]:
        p.line([(x, 195), (x, 205)], "line")
        p.text(x, 224, label, "small middle")
    p.text(10, 186, "time", "small")
    return p


def restore():
    p = Picture(860, 360, "A restore merges a backup and the runs of the log, page by page, up to a moment")
    p.text(10, 26, "What the archive has, by time", "title")
    p.line([(60, 170), (840, 170)], "line")
    p.text(850, 190, "epochs", "small end")
    p.box(70, 50, 100, 50, ["backup", "all pages"], "archive")
    p.box(430, 50, 100, 50, ["backup", "all pages"], "archive")
    for at, width in enumerate([170, 170, 100, 60, 60, 60, 60]):
        x = 70 + sum([170, 170, 100, 60, 60, 60, 60][:at]) + 6 * at
        p.box(x, 112, width, 40, ["run"], "disk")
    p.line([(700, 40), (700, 180)], "ours")
    p.text(700, 34, "the wanted moment: 10:42", "small middle")
    for x, label in [(70, "1"), (430, "4711"), (700, "5203")]:
        p.line([(x, 165), (x, 175)], "line")
        p.text(x, 190, label, "small middle")
    p.text(10, 230, "One pass over all of it, by page", "title")
    for at, (label, look) in enumerate([("backup", "archive"), ("run", "disk"), ("run", "disk"), ("run", "disk")]):
        y = 246 + 28 * at
        p.text(60, y + 15, label, "small end")
        for page in range(8):
            if look == "archive" or (page * (at + 2) + at) % 3:
                p.box(70 + 62 * page, y, 54, 20, [], look)
                p.text(97 + 62 * page, y + 14, f"page {page}", "small middle")
    p.arrow([(580, 298), (640, 298)], "merge", (608, 290))
    p.box(650, 256, 200, 84, ["A new database", "each page read once,", "made once, written once"], "memory")
    return p


def ladder():
    p = Picture(860, 300, "The places of a write: when each is reached, and what it survives. Mirror and disk are rungs")
    places = [
        ("memory", "durability mem", "the transaction committed", "neither kill -9 nor a power cut", "memory"),
        ("rung: mirror", "memory of two nodes", "the log is in two other memories", "the process, its machine, or one node", "memory"),
        ("rung: disk", "the log's disk", "the log is on every stream's disk", "a power cut of all machines", "disk"),
        ("archive", "runs and backups", "a run or a backup has it", "the loss of the disk", "archive"),
    ]
    p.text(10, 24, "place", "small")
    p.text(200, 24, "when it is reached", "small")
    p.text(520, 24, "what it survives", "small")
    for at, (name, where, when, survives, look) in enumerate(places):
        y = 224 - 62 * at
        p.box(10, y, 160, 50, [name, where], look)
        p.text(200, y + 30, when)
        p.text(520, y + 30, survives)
        if at:
            p.arrow([(90, y + 62), (90, y + 53)])
    return p


def restart():
    p = Picture(860, 330, "Seconds from kill -9 to the first correct answer, by the number of keys")
    rows = [line.split() for line in (HERE / "restart.tsv").read_text().splitlines() if line[0] != "#"]
    rows = [(float(keys), float(ours), float(peer)) for keys, ours, peer in rows]
    most_keys, most = rows[-1][0], max(peer for _, _, peer in rows)
    left, right, top, bottom = 70, 700, 50, 280
    x = lambda keys: left + (right - left) * keys / most_keys
    y = lambda seconds: bottom - (bottom - top) * seconds / most
    p.text(10, 26, "Seconds from kill -9 to the first correct answer", "title")
    step = 10 ** (len(str(int(most))) - 1)
    step = step / 2 if most / step < 3 else step
    at = 0.0
    while at <= most:
        p.line([(left, y(at)), (right, y(at))], "grid")
        p.text(left - 8, y(at) + 4, f"{at:g} s", "small end")
        at += step
    for keys, _, _ in rows:
        p.text(x(keys), bottom + 20, f"{keys / 1e6:g} M", "small middle")
    p.text((left + right) / 2, bottom + 42, "keys of 16 bytes with values of 100 bytes, half of them changed since the checkpoint", "small middle")
    p.line([(x(keys), y(peer)) for keys, _, peer in rows], "peer")
    p.line([(x(keys), y(ours)) for keys, ours, _ in rows], "ours")
    p.text(right + 10, y(rows[-1][2]) + 4, f"Redis, {rows[-1][2]:g} s")
    p.text(right + 10, y(rows[-1][1]) + 4, f"Perdura, {rows[-1][1]:g} s")
    return p


PICTURES = {"overview": overview, "write": write, "restore": restore, "ladder": ladder, "restart": restart}


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, draw in PICTURES.items():
        path = HERE / f"{name}.svg"
        svg = draw().svg()
        if not check:
            path.write_text(svg)
        elif not path.exists() or path.read_text() != svg:
            stale.append(path.name)
    if stale:
        sys.exit(f"not as docs/pictures/draw.py draws them: {', '.join(stale)}")


main()
