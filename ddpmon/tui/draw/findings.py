"""The findings: one line each beside the picture, or in full with evidence and advice."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import count, known
from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.finding_rows import kind_words, what, what_within, who
from ddpmon.report.trace import shortened_place
from ddpmon.report.verdicts import firing, headline, is_past, nothing_found
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.header import calm_style, finding_style
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, clip, fit, fit_all, spread, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

INDENT = "     "
BLOCK_ROWS = 16
LISTED_MOST = 8  # findings beside the picture that are worth whole sentences
LEAST_ROWS = 3  # of a finding in full: its sentence, its facts, an empty line


def finding_lines(picture: ViewState, width: int, height: int) -> list[Line]:
    """All findings in full where there is room for that, else those besides the headline, one line each."""
    look, findings = picture.look, picture.snapshot.findings
    full = all_findings(picture, width)[1:] if LEAST_ROWS * len(findings) < height else []
    if full and len(full) < height:
        return fit_all([title("findings", _count(picture), width, look), *full], width, height)
    first = headline(findings)
    rest = [finding for finding in findings if finding is not first]
    if first is not None and not rest:
        advice = _paragraph(_advice(first, picture), width, look.text)
        return fit_all([title("what to do", "", width, look), *advice], width, height)
    lines = [title("also found", _count(picture), width, look)]
    room = height - 1
    shown = rest if len(rest) <= room else rest[: max(room - 1, 0)]
    lines += _listed(shown, width, room - len(shown) - (len(rest) > len(shown)), look)
    if len(rest) > len(shown):
        lines.append([Segment(f"{INDENT}{_left_out(rest, shown)}  [5]", look.dim)])
    return fit_all(lines, width, height)


def _left_out(rest: list[Finding], shown: list[Finding]) -> str:
    """`4 of 5 shown, 2 over`: the first line of the screen counts as many more, without those that are over."""
    lasting, here = len(firing(rest)), len(firing(shown))
    over = len(rest) - len(shown) - (lasting - here)
    parts = [f"{here:,} of {lasting:,} shown"] if here < lasting else []
    return ", ".join([*parts, f"{over:,} over"] if over else parts)


def listed_height(picture: ViewState, width: int) -> int:
    """Lines that the findings besides the headline take in whole sentences, with their title; 0 without any."""
    first = headline(picture.snapshot.findings)
    rest = [finding for finding in picture.snapshot.findings if finding is not first]
    rows = [wrap(picture.look.clean(finding.summary), width - len(INDENT) - 1) for finding in rest[:LISTED_MOST]]
    return 1 + len(rest) - len(rows) + sum(map(len, rows)) if rest else 0


def _listed(findings: list[Finding], width: int, spare: int, look: Look) -> list[Line]:
    """A line each; as long as there are spare lines, the whole sentence of what one line would cut."""
    lines: list[Line] = []
    for finding in findings:
        glyph, style = _style(finding, look)
        rows = _paragraph(look.clean(finding.summary), width, style, f" {glyph} ")
        fits = 1 < len(rows) <= 1 + spare
        spare -= len(rows) - 1 if fits else 0
        lines += rows if fits else [one_line(finding, width, look)]
    return lines


def _count(picture: ViewState) -> str:
    lasting = firing(picture.snapshot.findings)
    over = len(picture.snapshot.findings) - len(lasting)
    return f"{over:,} over" if over else ""


def one_line(finding: Finding, width: int, look: Look) -> Line:
    """Glyph, sentence, onset and cost of one finding; where the sentence has no room, who and what in a few words."""
    glyph, style = _style(finding, look)
    cost = f"{_cost(finding, look):>5} "
    facts, room = [Segment(f"{_since(finding)}  {cost}", look.dim)], width - len(INDENT) - 1
    said, spare = look.clean(finding.summary), room - width_of(facts)
    if cell_len(said) > spare:
        whom = f"{who(finding)}: "
        full = look.clean(f"{whom}{what(finding)}, {finding.cause}")
        fits = finding.cause is not None and cell_len(full) <= spare
        short = full if fits else look.clean(f"{whom}{what_within(finding, spare - len(whom))}")
        facts = facts if cell_len(short) <= spare else [Segment(cost, look.dim)]
        said, facts = (said, [Segment(" ", look.dim)]) if cell_len(said) < room else (short, facts)
    said = clip(said, room - width_of(facts), look.glyphs.more)
    return spread([Segment(f" {glyph} ".ljust(len(INDENT)), style), Segment(said, style)], facts, width)


def _style(finding: Finding, look: Look) -> tuple[str, Style]:
    if finding.cleared_at_step is not None:
        return look.glyphs.finished, look.dim
    return finding_style(finding, look)


def _since(finding: Finding) -> str:
    if finding.cleared_at_step is not None:
        return f"over at step {count(finding.cleared_at_step)}"
    if finding.since_step is None:
        return ""
    return f"{'before' if finding.since_is_bound else 'since'} step {count(finding.since_step)}"


def _cost(finding: Finding, look: Look) -> str:
    if finding.cost_pct is None:
        return ""
    return f"{finding.cost_pct:.{0 if finding.cost_pct >= 9.95 else 1}f} %" if known(finding.cost_pct) else look.unknown


def all_findings(picture: ViewState, width: int) -> list[Line]:
    """Every finding in full; what is over comes last, dim. As many lines as it takes."""
    look, snapshot = picture.look, picture.snapshot
    lines: list[Line] = [[Segment("")]]
    if not firing(snapshot.findings):
        glyph, style = calm_style(snapshot, look)
        lines += [*_paragraph(look.clean(nothing_found(snapshot)), width, style, f" {glyph} "), []]
    ordered = sorted(snapshot.findings, key=lambda finding: finding.cleared_at_step is not None)
    for finding in ordered:
        lines += [*_in_full(finding, picture, width), []]
    for text in snapshot.notices:
        lines += _paragraph(look.clean(text), width, look.dim, f" {look.glyphs.note} ")
    return [fit(line, width) for line in lines]


def _in_full(finding: Finding, picture: ViewState, width: int) -> list[Line]:
    look = picture.look
    glyph, style = _style(finding, look)
    over = finding.cleared_at_step is not None
    text = look.dim if over else look.text
    lines = _paragraph(look.clean(finding.summary), width, style if over else style + Style(bold=True), f" {glyph} ")
    lines += _paragraph(look.clean(facts_of(finding, look, past=is_past(picture.snapshot))), width, look.dim)
    words = look.clean(evidence_words(finding.evidence))
    lines += _paragraph(f"evidence: {words}", width, look.dim) if words else []
    for name, rows in evidence_blocks(finding.evidence):
        lines += block_lines(look.clean(name), rows, width, look)
    if finding.advice:
        lines += _paragraph(_advice(finding, picture), width, text)
    return lines


def _advice(finding: Finding, picture: ViewState) -> str:
    return picture.look.clean(advice_text(finding.advice, picture.snapshot.own_host))


def facts_of(finding: Finding, look: Look, *, past: bool = False) -> str:
    """`critical straggler; since step 812; costs 19 % of the job; ranks 5; node1; input`."""
    ranks = ", ".join(str(rank) for rank in finding.ranks[:16]) + (" ..." if len(finding.ranks) > 16 else "")
    costs = "cost" if past else "costs"
    facts = [
        f"{finding.severity} {kind_words(finding.kind)}",
        _since(finding),
        f"{costs} {_cost(finding, look)} of the run's time" if finding.cost_pct is not None else "",
        f"rank {ranks}" if len(finding.ranks) == 1 else f"ranks {ranks}" if finding.ranks else "",
        ", ".join(finding.nodes[:8]),
        f"phase {finding.phase}" if finding.phase else "",
        f"cause: {finding.cause}" if finding.cause else "",
    ]
    return "; ".join(fact for fact in facts if fact)


def block_lines(name: str, rows: list[str], width: int, look: Look) -> list[Line]:
    """A long text as it is, further in; of a very long one, its end."""
    lines: list[Line] = [[Segment(f"{INDENT}{name}:", look.dim)]]
    for row in rows[-BLOCK_ROWS:]:
        room = width - len(INDENT) - 4
        shown = shortened_place(look.clean(row.expandtabs(2)), room, look.cut)
        shown = clip(shown, room, look.glyphs.more)
        lines.append([Segment(f"{INDENT}{look.glyphs.bar} ", look.faint), Segment(shown, look.text)])
    return lines


def _paragraph(text: str, width: int, style: Style, lead: str = INDENT) -> list[Line]:
    rows = wrap(text, width - len(INDENT) - 1)
    leads = [lead.ljust(len(INDENT))[: len(INDENT)], *[INDENT] * (len(rows) - 1)]
    return [[Segment(start, style), Segment(row, style)] for start, row in zip(leads, rows, strict=True)]
