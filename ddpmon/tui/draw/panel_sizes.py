"""Which panels a terminal of some size shows, how large each is, and how lines are folded into columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST = (40, 12)
WIDE = 110  # from here on the plots stand beside the table
TABLE_HEAD, HEAT_FRAME, PLOT_LEAST = 2, 2, 6
CHOSEN_LINES, CHOSEN_MOST = 8, 15  # lines of the panel on the chosen rank: usually, and with all that can be known
CHOSEN_USUAL = 14  # lines of the chosen host below the table of hosts
HALVED_FROM = 44  # lines from which on the hosts and the chosen one share them equally
TABLE_ROWS_LEAST, HEAT_ROWS_MOST, PLOTS_LEAST = 3, 32, 12


@dataclass(frozen=True, slots=True)
class Fold:
    """Ranks folded into bands.

    Attributes:
        size: ranks a band.
        bands: how many bands there are.
        halves: two bands share a line, one in each half of a character.
        lines: lines that all bands take.
    """

    size: int
    bands: int
    halves: bool
    lines: int


def fold(ranks: int, room: int, *, halves: bool, hosts: bool = False) -> Fold:
    """The smallest bands with which all ranks fit `room` lines.

    Shared bands of `ranks` hold 2, 4 or a multiple of 8, so that they end where hosts do; bands of hosts any number.
    """
    room = max(room, 1)
    if ranks <= room:
        return Fold(1, ranks, False, ranks)
    cells = room * 2 if halves else room
    least = -(-ranks // cells)
    size = least if hosts else next((small for small in (1, 2, 4) if small >= least), -(-least // 8) * 8)
    bands = -(-ranks // size)
    return Fold(size, bands, halves, -(-bands // 2) if halves else bands)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in cells; 0 hides a panel. Heights sum to the terminal's.

    Attributes:
        fits: whether there is room for any picture at all.
        head: lines above the panels (header, notice, verdict, figures).
        body: height of the table.
        side: width of the plots beside the table.
        heat: height of the heat-map.
        plots: height of the plots below the table.
        findings: height of the list of further findings, beside the plots where those are beside the table.
        chosen: height of the panel on the chosen rank, below the table of a wide terminal.
        foot: the key line.
    """

    fits: bool
    head: int = 3
    body: int = 0
    side: int = 0
    heat: int = 0
    plots: int = 0
    findings: int = 0
    chosen: int = 0
    foot: int = 1


def plan(
    width: int,
    height: int,
    ranks: int,
    findings: int,
    *,
    head: int = 3,
    halves: bool = True,
    rows: int | None = None,
    typing: int = 0,
    chosen: int = CHOSEN_MOST,
    grows: bool = True,
) -> Plan:
    """Share the terminal out: the table first, then the heat-map, then plots and further findings.

    Args:
        width: cells of the terminal.
        height: its lines.
        ranks: rows the heat-map would have, and the table unless `rows` says otherwise.
        findings: findings besides the one in the headline.
        head: lines that the headline and what is around it take.
        halves: whether the heat-map can put two ranks in a character.
        rows: rows the table would have.
        typing: lines that the filter takes while it is typed.
        chosen: lines that there are to show of the chosen rank.
        grows: whether rows of few ranks in the heat-map take more than a line where there is room.
    """
    if width < LEAST[0] or height < LEAST[1]:
        return Plan(fits=False)
    room = max(height - head - 1 - typing, 0)
    rows = ranks if rows is None else rows
    if width >= WIDE:
        return _wide(width, room, head, ranks, rows, findings, halves, chosen, grows=grows)
    return _narrow(room, head, ranks, rows, findings, halves)


def alone(panel: str, width: int, height: int, head: int, typing: int = 0) -> Plan:
    """The same with one panel besides the head: "table", "heat" or "plots"."""
    if width < LEAST[0] or height < LEAST[1]:
        return Plan(fits=False)
    shares, room = Plan(True, head), max(height - head - 1 - typing, 0)
    if panel == "table":
        return replace(shares, body=room)
    return replace(shares, heat=room) if panel == "heat" else replace(shares, plots=room)


def _narrow(room: int, head: int, ranks: int, rows: int, findings: int, halves: bool) -> Plan:
    """One column: bars, then the heat-map, then a plot if a good one fits, then further findings."""
    listed = min(findings + 1, max(room - 26, 0)) if findings else 0
    listed = listed if listed >= 2 else 0
    room -= listed
    heat = min(ranks, HEAT_ROWS_MOST) + HEAT_FRAME if room >= 12 else 0
    body = TABLE_HEAD + rows
    if heat and body + heat > room:
        body = TABLE_HEAD + max(min(rows, (room - TABLE_HEAD - HEAT_FRAME) // 2), TABLE_ROWS_LEAST)
        heat = fold(ranks, room - body - HEAT_FRAME, halves=halves).lines + HEAT_FRAME
        body = room - heat
    body = min(body, room)
    plots = room - body - heat
    if plots < PLOT_LEAST:
        body, plots = body + plots, 0
    return Plan(True, head, body, 0, heat, plots, listed)


def side_width(width: int) -> int:
    """Cells of the plots beside the table of a wide terminal."""
    return max(34, min(width * 36 // 100, 90))


def _wide(
    width: int,
    room: int,
    head: int,
    ranks: int,
    rows: int,
    findings: int,
    halves: bool,
    most: int,
    *,
    grows: bool,
) -> Plan:
    """Left the table with what is known of the chosen rank, right the plots, below them the heat-map.

    Few ranks leave room: their rows in the heat-map grow to three lines, the chosen rank is compared with the others,
    and what then is left below the table is a plot.
    """
    side = side_width(width)
    if room < 14:
        return Plan(True, head, room, side)
    wanted = min(findings + 1, 6) if findings else 0
    heat = fold(ranks, min(HEAT_ROWS_MOST, room // 2 - HEAT_FRAME), halves=halves).lines
    if heat == ranks and grows:
        needed = max(TABLE_HEAD + rows + wanted + CHOSEN_LINES, PLOTS_LEAST)
        heat *= next((tall for tall in (3, 2) if room - HEAT_FRAME - heat * tall >= needed), 1)
    above = room - heat - HEAT_FRAME
    spare = above - TABLE_HEAD - rows
    if spare <= 0:
        listed = min(wanted, above // 3)
        listed = listed if listed >= 2 else 0
        return Plan(True, head, above - listed, side, heat + HEAT_FRAME, 0, listed)
    return _filled(Plan(True, head, TABLE_HEAD + rows, side, heat + HEAT_FRAME), spare, wanted, most)


def _filled(shares: Plan, spare: int, wanted: int, most: int) -> Plan:
    """The same with the lines that few ranks leave below the table: findings, the chosen rank, a plot.

    Args:
        shares: the rest of the plan.
        spare: lines to share out.
        wanted: lines of the further findings.
        most: lines that there are to show of the chosen rank.
    """
    listed = wanted if wanted <= spare else 0
    spare -= listed
    chosen = min(CHOSEN_LINES, most) if spare >= CHOSEN_LINES else 0
    spare -= chosen
    plots = PLOT_LEAST + 2 if chosen and spare >= PLOT_LEAST + 2 else 0
    spare -= plots
    grown = min(spare, max(most - chosen, 0)) if chosen else 0
    spare -= grown
    if plots:
        return replace(shares, plots=plots + spare, findings=listed, chosen=chosen + grown)
    if listed:
        return replace(shares, findings=listed + spare, chosen=chosen + grown)
    return replace(shares, body=shares.body + spare, chosen=chosen + grown)


def host_plan(hosts: int, room: int, *, fills: bool = False) -> tuple[int, int]:
    """Heights of the table of hosts and of the chosen one below it, 0 where it is hidden; the table never takes all.

    Where plots of the chosen host fill (`fills`) the room of a large terminal, the table takes half of that at most.
    """
    if hosts == 1:
        return 0, 0
    most = room // 2 if fills and room >= HALVED_FROM else max(room - CHOSEN_USUAL, room * 2 // 3)
    table = min(TABLE_HEAD + max(hosts, 1), most)
    return table, room - table


def finding_plan(width: int, room: int, lines: int) -> tuple[bool, int]:
    """Whether the list of findings stands beside the evidence, and then how wide it is; else how high it is.

    It needs so many lines, and gets two fifths of the room at most.
    """
    if width >= WIDE:
        return True, max(min(58, width // 2), width * 42 // 100)
    return False, min(lines, max(room * 2 // 5, 4))
