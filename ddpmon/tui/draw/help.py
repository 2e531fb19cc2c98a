"""The help screen's text: how to read the picture, the keys, the words."""

from __future__ import annotations

from rich.segment import Segment

from ddpmon.tui.lines import Line, fit, wrap
from ddpmon.tui.theme import Look

WHY = (
    "In DDP all ranks finish a step together: whoever is done early waits for the last one.",
    "So every rank's step takes equally long, and what differs is how long each works and how long it waits.",
    "The straggler is the rank that waits least: its bar is solid where the others end in a dashed line.",
)
KEYS = (
    ("q", "quit; ctrl+c too"),
    ("space", "freeze the display; collection goes on"),
    ("enter", "the rank under the cursor in detail, its stack when it hangs;  esc goes one level back"),
    ("up down j k", "move the cursor; also page up, page down, home, end"),
    ("/", "show only ranks that match: 3   3-7   node1   lost   straggler;  esc shows all"),
    ("s  r", "sort by the next column;  reverse"),
    ("1  2  3", "overview;  timeline: steps, all-reduce, loss, events;  hosts, their GPUs and who is on them"),
    ("4  5", "run: configuration, versions, hours used and lost;  findings with evidence and advice"),
    ("m  c", "mark the rank under the cursor;  compare the marked ranks side by side"),
    ("v  f  h", "the next metric;  the next panel alone;  the host of the rank or of the finding"),
    ("+  -", "read more often, less often (every 0.25 s to 10 s)"),
    ("[ ]  { }", "back and forward in time, by a step or a minute, over what was seen;  end goes back to the live run"),
    ("w", "write a report on what is shown: a page in the current folder"),
    (
        "n  N  t",
        "in a recording: to the next finding, the one before, a step or a time of day;  space plays, + - speed",
    ),
    ("tab", "to the heat-map, where the arrow keys name a cell and enter shows a host's ranks, or opens the rank"),
    ("v", "the next metric of the heat-map: work, wait, input, all-reduce, GPU, loss"),
    ("ctrl+p", "commands and themes"),
)
HOSTS = (
    ("util  power", "read them together: 100 % at little power is a kernel that spins, waiting for the other ranks"),
    ("spinning?", "a GPU at 95 % or more that draws less than 40 % of its power limit"),
    ("foreign", "a process that is neither a rank of this run nor a child of one"),
    ("hidden", "our ranks are on the GPU but not in its process list, as in a container: only memory can tell then"),
    ("power cap", "the clock gives way to the power limit: usual at full load, unlike thermal and slowdown"),
)
WORDS = (
    ("step", "from one gradient synchronisation to the next"),
    ("job step", "the step by the job's own count, and the time left at the pace of the last ten minutes"),
    ("work", "the part of a step in which a rank does not wait: input + forward + backward + optimizer + other"),
    ("wait", "exposed + barrier: all gradients ready, or in an explicit barrier, until the others are there too"),
    ("late", "lateness: work minus the median work of the other ranks, in ms a step; a healthy rank has ±0"),
    ("input", "waiting for the next batch of the data loader"),
    ("other", "the rest of a step: logging, copies to the device, checkpoints, garbage collection"),
    ("reduce", "all-reduce: from the first bucket's launch to the last one's end; overlaps backward"),
    ("exposed", "communication that backward could not hide"),
    ("busy", "sync efficiency: the share of a step in which the typical rank works"),
    ("waiting", "the mean wait above the transfer, in percent of a step, and on which ranks"),
    ("GPU-h, rank-h", "ranks that wait, times how long: GPU-hours, or rank-hours without GPUs"),
    ("5 10 20 50 100", "the heat-map's levels: lateness in percent of a step in which nobody is late"),
    ("8/8 ranks", "ranks heard from lately, and the age of the oldest word"),
    ("probe", "what ddpmon itself takes of a step on the training thread, and the records it had to drop"),
)


def help_lines(look: Look, width: int) -> list[Line]:
    """All of the help at this width; as many lines as it takes."""
    lines: list[Line] = [[], _heading("How to find the straggler", look)]
    for sentence in WHY:
        lines += [[Segment(" " + row, look.text)] for row in wrap(sentence, width - 2)]
    lines += [[], _heading("Keys", look), *_pairs(KEYS, width, look, strong=True)]
    lines += [[], _heading("Hosts", look), *_pairs(HOSTS, width, look, strong=False)]
    lines += [[], _heading("Words", look), *_pairs(WORDS, width, look, strong=False)]
    return [fit(line, width) for line in lines]


def _heading(text: str, look: Look) -> Line:
    return [Segment(f" {text}", look.accent)]


def _pairs(pairs: tuple[tuple[str, str], ...], width: int, look: Look, *, strong: bool) -> list[Line]:
    lines: list[Line] = []
    column = 17
    for name, meaning in pairs:
        for place, row in enumerate(wrap(look.clean(meaning), max(width - column - 2, 12))):
            label = name if place == 0 else ""
            lines.append([Segment(f" {label:<{column}}", look.strong if strong else look.text), Segment(row, look.dim)])
    return lines
