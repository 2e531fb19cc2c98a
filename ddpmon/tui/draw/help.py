"""The help screen's text: the keys of the open view, the filter, all other keys, the words, and how DDP waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment

from ddpmon.tui.draw.columns import LETTERS, heading
from ddpmon.tui.draw.order import HOST_LETTERS
from ddpmon.tui.lines import Line, fit, wrap
from ddpmon.tui.preferences import UserCommand
from ddpmon.tui.theme import Look

Pairs = tuple[tuple[str, str], ...]
WHY = (
    "In DDP all ranks finish a step together: whoever is done early waits for the last one.",
    "So every rank's step takes equally long, and what differs is how long each works and how long it waits.",
    "The straggler is the rank that waits least: its bar is solid where the others end in a dashed line.",
)
TABLE = (
    ("up down j k", "move the cursor; also page up, page down, home, end;  a click moves it, a double click opens"),
    (",  .", "sort by the column before, by the next one;  the column that sorts is always shown"),
    ("0  r", "the worst first again, 0 once more: the cursor on the worst;  reverse.  A click on a heading sorts, too"),
)
FILTER = (
    (
        "/",
        "filter; it holds in all views.  tab completes, then goes through the candidates (shift+tab: back);  "
        "enter keeps it, esc drops it, also later on (/ esc)",
    ),
    (
        "late>10",
        "a figure: < <= = >= >, also late>5% (of base step), late=5..10, work>0.2s, gpu<50, rss>2GiB, heard>1min",
    ),
    ("rank=3-7", "ranks: also just 3, 3-7, 8-, or 3 7 12"),
    ("host=node1", "a word: = and != with * for anything, ~ and !~ with a regular expression: host~^n[0-3]$"),
    ("phase=all-reduce", "the phase in which a rank is now, as the screen says it; also state=lost, finding=straggler"),
    ("straggler", "without a field: part of a host, or the beginning of a state (lost) or of a kind of finding"),
    ("and or not ( )", "late>10 host=n3 not lost: all of it;  a or b: one of both;  a comma is or: host=n1,n2"),
)
SCROLL = ("j k", "scroll; also page up, page down, home, end")
KEYS_OF: Mapping[str, Pairs] = {
    "overview": (
        ("enter", "the rank under the cursor in detail, its stack when it hangs"),
        *TABLE,
        ("shift+letter", "sort: "
         + ", ".join(f"{letter} {heading(key)}" for letter, key in LETTERS.items()) + ";  again: reverse"),
        ("tab", "to the heat-map: the arrow keys choose a rank and a step, which its title names;  y, m, c, 3 act on"
         " that rank, enter opens it, or shows a host's ranks"),
        ("v", "the next metric of the heat-map: work, wait, input, all-reduce, GPU, memory, loss"),
        ("esc", "all panels again;  from the heat-map to the table;  all ranks"),
        ("click", "on a finding: its evidence;  a double click on a plot: the rank that it is about, in detail"),
    ),
    "timeline": (
        ("[ ]  { }", "move the cursor by a step, by a minute;  a click goes to the step that is drawn there"),
        ("enter", "the rank under the cursor in detail"),
        ("v", "all ranks, or the buckets of the step"),
    ),
    "hosts": (
        ("enter", "the host under the cursor in full"),
        *TABLE,
        ("shift+letter", "sort: "
         + ", ".join(f"{letter} {name}" for letter, name in HOST_LETTERS.items()) + ";  again: reverse"),
        ("v", "the next metric of the GPUs"),
        ("V", "sort by odd: the value of a host's GPU that is farthest from the median of the GPUs, above or below;"
         "  of lateness that of the most late rank.  So does a click above the cells"),
    ),
    "host": (
        ("j k", "the next rank, the one before, or scroll;  a click moves the cursor, a double click opens"),
        ("enter", "the rank under the cursor in detail"),
    ),
    "run": (SCROLL,),
    "findings": (
        ("j k", "move the cursor; also page up, page down, home, end"),
        ("enter  h", "the rank that the finding names first;  its host"),
        ("J K", "scroll the evidence; so does the wheel of the mouse over it"),
        ("w", "write the finding under the cursor as text or JSON"),
    ),
    "rank": (
        ("j k", "the next rank of the table, the one before"),
        ("v  h", "plot the next metric;  its host"),
    ),
}  # fmt: skip
FILTERED = ("overview", "timeline", "hosts", "run", "findings")
EVERYWHERE = (
    ("1  2  3", "overview;  timeline: steps, all-reduce, loss, events;  hosts, their GPUs and who is on them"),
    ("4  5", "run: configuration, versions, hours used and lost;  findings with evidence and advice"),
    ("esc  f", "one level back;  the next panel alone, and after the last one all of them"),
    ("z  Z", "zoom in time: half of the steps in all plots, around the moment shown;  twice as many, up to all"),
    ("m  c", "mark the rank under the cursor;  compare the marked ranks side by side"),
    ("y  Y", "copy the finding about what is under the cursor, or the headline, as text;  as JSON, by OSC 52"),
    ("ctrl+s", "write the view into the current folder: SVG, text, its table as CSV, JSON"),
    ("space", "freeze this moment in all views; collection goes on.  In a recording: play, pause"),
    ("+  -", "read more often, less often (every 0.25 s to 10 s).  In a recording: its speed"),
    ("ctrl+p  q", "every command by name, your own commands, themes, notifications;  quit, as ctrl+c does"),
)
TRAVEL = (  # where what was seen is on record
    ("w", "write a report on what is shown, one page in the current folder; on a finding first asks for the form"),
    ("[ ]  { }", "back and forward in time, by a step or a minute, over what was seen;  end goes back to the live run"),
    ("home  end", "in the past: to the first moment on record, to the last one;  else the first and the last row"),
    ("n  N  t", "in the past: to the next finding, the one before;  to a step, a time of day, or 2 min back"),
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
    ("ms/step", "the median duration of the last 20 steps, on which a few late ones have no effect"),
    ("samples/s", "the samples of these steps over their mean duration without pauses: late steps count in it"),
    ("job step", "the step by the job's own count, and the time left at the pace of the last ten minutes"),
    ("work", "the part of a step in which a rank does not wait: input + forward + backward + optimizer + other"),
    ("wait", "exposed + barrier: all gradients ready, or in an explicit barrier, until the others are there too"),
    ("late", "lateness: work minus the median work of the others, in ms a step; ±0 below 0.5 % of the base step"),
    (
        "others",
        "whom a rank is compared with, in verdicts and in all views: the ranks that no finding calls late"
        " and that are at the same steps; its GPU, CPU and memory with those that no finding names",
    ),
    (
        "costs",
        "the share of the run's time that is saved if this rank loses its lateness and all other stragglers are"
        " fixed too",
    ),
    ("alone saves", "the share of the run's time that is saved if only this rank loses its lateness"),
    ("in fw bw op ot", "the phases over the bars of a narrow terminal: input, forward, backward, optimizer, other"),
    ("input", "waiting for the next batch of the data loader"),
    ("other", "the rest of a step: logging, copies to the device, checkpoints, garbage collection"),
    ("reduce", "all-reduce: from the first bucket's launch to the last one's end; overlaps backward"),
    ("exposed", "communication that backward could not hide"),
    ("busy", "sync efficiency: the share of a step in which the typical rank works"),
    (
        "waiting",
        "the mean wait above the transfer over the last 20 steps, in percent of the run's time, and on which"
        " ranks; it differs from what a late rank costs, which does not wait itself, and has the waits for chance, too",
    ),
    ("GPU-h, rank-h", "share of the time, times the ranks: GPU-hours, or rank-hours without GPUs"),
    ("5 10 20 50 100", "the heat-map's levels: lateness in percent of the base step"),
    ("above typical", "of a heat-map of work or memory: percent above the median of all ranks and steps on record"),
    ("below the others", "of a heat-map of GPUs: percent below the median of the ranks at the same step"),
    (
        "median and range",
        "of a plot with more steps than columns: the line is the median of the steps of each column, the dots beside it"
        " go from the least to the greatest; of older steps, which are kept as means of several, no range is known",
    ),
    (
        "% of base",
        "of the base step, which a step takes if nobody is late: its lateness is not in it; costs and waiting"
        " are shares of the run's time, which has the lateness",
    ),
    ("8/8 ranks", "ranks heard from lately, and the age of the oldest word"),
    ("probe", "what ddpmon itself takes of a step on the training thread, and the records it had to drop"),
)

# The words that stand on a view, in their order from its top to its end.
WORDS_OF: Mapping[str, tuple[str, ...]] = {
    "overview": (
        "8/8 ranks", "probe", "costs", "ms/step", "samples/s", "waiting", "busy", "late", "work", "wait",
        "in fw bw op ot", "median and range", "5 10 20 50 100", "% of base", "above typical", "below the others",
    ),
    "timeline": ("% of base", "reduce", "median and range", "exposed", "late", "work", "wait", "in fw bw op ot"),
    "hosts": ("late", "util  power", "spinning?", "foreign", "hidden", "power cap"),
    "host": ("util  power", "spinning?", "foreign", "hidden", "power cap", "late"),
    "run": ("probe", "GPU-h, rank-h", "waiting", "ms/step", "samples/s"),
    "findings": ("costs", "late", "% of base", "alone saves", "GPU-h, rank-h", "median and range"),
    "rank": ("costs", "others", "input", "other", "work", "wait", "median and range"),
    "compare": ("others", "input", "other", "work", "wait", "5 10 20 50 100", "% of base"),
}  # fmt: skip


def help_lines(
    look: Look, width: int, view: str = "overview", *, has_past: bool = True, own: Sequence[UserCommand] = ()
) -> list[Line]:
    """The help of a view at this width: its keys and words first, then what holds everywhere.

    There are as many lines as it takes.

    Without a past nothing is said of the keys that travel in it. `own` are the user's commands.
    """
    yours = tuple((command.key, f"{command.name}: {' '.join(command.run)}") for command in own)
    everywhere = (*EVERYWHERE, *TRAVEL) if has_past else EVERYWHERE
    lines: list[Line] = []
    for name, pairs, strong in _sections(view, yours, everywhere):
        lines += [[], _heading(name, look), *_pairs(pairs, width, look, strong=strong)] if pairs else []
    lines += [[], _heading("How to find the straggler", look)]
    for sentence in WHY:
        lines += [[Segment(" " + row, look.text)] for row in wrap(sentence, width - 2)]
    return [fit(line, width) for line in lines]


def _sections(view: str, yours: Pairs, everywhere: Pairs) -> Sequence[tuple[str, Pairs, bool]]:
    """Of each section the heading, what it explains, and whether it explains keys. Each word is explained once."""
    words = {word: (word, meaning) for word, meaning in (*WORDS, *HOSTS)}
    here = tuple(words[word] for word in WORDS_OF.get(view, ()))
    return (
        (f"Keys: {view}", KEYS_OF.get(view, ()), True),
        (f"Words: {view}", here, False),
        ("Filter", FILTER if view in FILTERED else (), True),
        ("Your commands", yours, True),
        ("Keys everywhere", everywhere, True),
        ("Words", tuple(pair for pair in WORDS if pair not in here), False),
        ("Hosts", tuple(pair for pair in HOSTS if pair not in here), False),
    )


def _heading(text: str, look: Look) -> Line:
    return [Segment(f" {text}", look.accent)]


def _pairs(pairs: Pairs, width: int, look: Look, *, strong: bool) -> list[Line]:
    lines: list[Line] = []
    column = 17
    for name, meaning in pairs:
        for place, row in enumerate(wrap(look.clean(meaning), max(width - column - 2, 12))):
            label = name if place == 0 else ""
            lines.append([Segment(f" {label:<{column}}", look.strong if strong else look.text), Segment(row, look.dim)])
    return lines
