"""The table of a run that stands still: who is where, a row a group of ranks."""

from __future__ import annotations

from rich.segment import Segment

from ddpmon.format import age, count, plural
from ddpmon.report.rank_places import Place, is_hanging, places, rank_ranges
from ddpmon.report.trace import shortened
from ddpmon.tui.draw.detail import stall_lines
from ddpmon.tui.draw.panel import title
from ddpmon.tui.draw.table import MARKED
from ddpmon.tui.lines import Line, cells_of, clip, fit, fit_all, left
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

NAMED = 18  # cells of the ranks' numbers
OPERATION, PHASE = 12, 10
STACK_LEAST = 3  # lines below which no further stack is begun
SOURCE_LEAST = 14  # cells of a source line below which it is left out
WIDE = 100  # from here on the collective has a column


def place_lines(picture: ViewState, rows: list[int], cursor: int | None, width: int, height: int) -> list[Line]:
    """Title, headings and a row a group.

    Args:
        picture: what is known.
        rows: the first rank of each group, in row order from the first in sight.
        cursor: the rank under the cursor, None without the focus.
        width: cells.
        height: lines.
    """
    look, ranks = picture.look, picture.snapshot.ranks
    if ranks is None:
        return fit_all([], width, height)
    groups = {place.ranks[0]: place for place in places(ranks)}
    remark = f"grouped by place {look.glyphs.dot} {plural(len(groups), 'group')} of {len(ranks):,} ranks"
    lines = [title("where the ranks are", look.clean(remark), width, look), _headings(width, look)]
    for rank in rows[: max(height - 2, 0)]:
        line = _row(groups[rank], rank == cursor, width, look, picture.marked) if rank in groups else []
        lines.append(list(Segment.apply_style(line, look.selected)) if rank == cursor else line)
    return fit_all(lines, width, height)


def stuck_lines(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    """The stack of a rank, most recent call last; below it, where there is room, that of a rank of each other group."""
    lines = _stack_of(picture, rank, width, height)
    own = leader_of(picture, rank)
    for other in first_ranks(picture):
        room = height - len(lines)
        if other != own and room >= STACK_LEAST:
            lines += _stack_of(picture, other, width, room)
    return fit_all(lines, width, height)


def stuck_height(picture: ViewState, rank: int) -> int:
    """How many lines there are of these stacks."""
    ranks = picture.snapshot.ranks
    own = leader_of(picture, rank)
    shown = [rank, *(other for other in first_ranks(picture) if other != own)]
    stalls = [ranks.stall[each] for each in shown if ranks is not None and each < len(ranks)]
    return sum(2 if stall is None else 2 + max((len(stack.frames) for stack in stall.stacks[:1]), default=1)
               for stall in stalls)  # fmt: skip


def _stack_of(picture: ViewState, rank: int, width: int, height: int) -> list[Line]:
    look, ranks = picture.look, picture.snapshot.ranks
    stall = ranks.stall[rank] if ranks is not None and rank < len(ranks) else None
    name = f"stack of rank {rank}"
    if stall is None:
        return [title(name, "", width, look), [Segment(f"  rank {rank} does not tell where it is", look.dim)]]
    lines = stall_lines(stall, width, height, look)
    return [title(name, "most recent call last", width, look), *lines[1:]]


def first_ranks(picture: ViewState) -> list[int]:
    """The first rank of each group while the run stands still; empty otherwise."""
    snapshot = picture.snapshot
    if snapshot.ranks is None or not is_hanging(snapshot):
        return []
    return [place.ranks[0] for place in places(snapshot.ranks)]


def leader_of(picture: ViewState, rank: int) -> int:
    """The first rank of the group that a rank is in while the run stands still; itself where it is in none."""
    ranks = picture.snapshot.ranks
    found = [] if ranks is None else [place.ranks[0] for place in places(ranks) if rank in place.ranks]
    return found[0] if found else rank


def _headings(width: int, look: Look) -> Line:
    collective = f"{'collective':<{OPERATION}} {'seq':>7}  " if width >= WIDE else ""
    text = f"    {'ranks':<{NAMED}} {'number':>6}  {'phase':<{PHASE}} {'for':>6}  {collective}top of the Python stack"
    return fit([Segment(text, look.dim)], width)


def _row(place: Place, here: bool, width: int, look: Look, chosen: tuple[int, ...]) -> Line:
    sign, style = (look.glyphs.stalled, look.dim) if place.is_waiting else (look.glyphs.lost, look.broken)
    name = left(rank_ranges(place.ranks), NAMED, look.glyphs.more)
    phase = left(look.clean(place.name), PHASE, look.glyphs.more)
    line = [
        Segment(look.glyphs.cursor if here else " ", look.strong),
        Segment(f"{sign} ", style),
        Segment(MARKED if not set(chosen).isdisjoint(place.ranks) else " ", look.accent),
        Segment(f"{name} ", look.text if place.is_waiting else look.strong),
        Segment(f"{len(place.ranks):>6,}  ", look.text),
        Segment(f"{phase} ", look.text if place.is_waiting else look.accent),
        Segment(f"{age(place.seconds, look.unknown):>6}  ", look.text),
    ]
    if width >= WIDE:
        operation = left(look.clean(place.operation.rsplit(":", 1)[-1]) or look.unknown, OPERATION, look.glyphs.more)
        line.append(Segment(f"{operation} {count(place.sequence, look.unknown):>7}  ", look.text))
    room = width - sum(segment.cell_length for segment in line) - 1
    return fit([*line, Segment(clip(_at(place, room, look), max(room, 0), look.glyphs.more), look.text)], width)


def _at(place: Place, room: int, look: Look) -> str:
    """`train.py:88 __getitem__   sample = read(index)`, without the source where little of it would be left."""
    frame = place.frame
    if frame is None:
        return look.unknown
    where = (
        f"{shortened(look.clean(frame.file), max(room // 2, 12), look.cut)}:{frame.line} {look.clean(frame.function)}"
    )
    source = look.clean(frame.source.strip())
    fits = cells_of(where) + 3 + min(cells_of(source), SOURCE_LEAST) <= room
    return f"{where}   {source}" if fits else where
