"""The first line: which run, and how well it is seen; and what stands between the reader and a live picture."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.alert import at_or_above
from ddpmon.format import age, clock, count, figure, plural
from ddpmon.report.finding_rows import what
from ddpmon.report.last_word import newest_word_s
from ddpmon.report.overdue import is_overdue
from ddpmon.report.verdicts import are_compared, is_broken, is_even, is_judged, is_kill, is_restart, not_compared_words
from ddpmon.run.model import SILENT_S
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, RunView, Snapshot, is_over
from ddpmon.tui.lines import Line, clip, clip_clauses, fit, fit_all, joined, spread, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState, notice

TAIL_SHARE = 0.67  # of the first line, which the state of the run may take with all that is told
NAME_LEAST = 17  # cells that are left for the name where the words on the state need the others
GAP = 2  # cells at least between the name and the state
TITLES = {
    "waiting": "waiting for a run",
    "live": "a run is there; no rank has spoken yet",
    "silent": "the store does not answer",
    "gone": "the store is gone",
}
ENDS = ("finished", "failed", "killed", "cancelled", "restarting")  # how a run is known to have ended
HINT = "ddpmon goes on looking: a run appears here by itself as soon as its first rank has published."


def header_line(picture: ViewState, width: int) -> Line:
    """` ddpmon  name · 8 ranks on 2 hosts   RUNNING 00:12:31 · 8/8 ranks · heard 0.4 s ago · probe 12 µs/step`."""
    look, run = picture.look, picture.snapshot.run
    name = [Segment(" ddpmon  ", look.strong)]
    if run is None:
        return fit([*name, Segment(picture.snapshot.link.state, look.dim)], width)
    dot = _dot(look)
    begins = [_state(picture, run), _elapsed(run, look)]
    told, *briefer = ([*begins, *words] for words in _coverage(picture, look))
    whole = [*told, _cost(picture, look), *_rate(picture)]
    full = (whole[:keep] for keep in range(len(whole), len(told), -1))
    for parts in (*full, told, *briefer, *(told[:keep] for keep in range(len(told) - 1, 0, -1))):
        tail = [*joined(parts, dot), Segment(" ", look.text)]
        share = width * TAIL_SHARE
        if width_of(tail) <= (share if len(parts) > len(told) else max(share, width - NAME_LEAST - GAP)):
            break
    return spread(_identity(picture, run, name, width - width_of(tail) - GAP), tail, width)


def state_line(picture: ViewState, width: int) -> Line:
    """The state of the run, and as much of its age and of who is heard as fits: `RUNNING · 00:12:31 · 8/8`."""
    look, run = picture.look, picture.snapshot.run
    if run is None:
        return []
    begins = [_state(picture, run), _elapsed(run, look)]
    told, *briefer = ([*begins, *words] for words in _coverage(picture, look))
    lines = [joined(parts, _dot(look)) for parts in (told, *briefer, begins, begins[:1])]
    return next((line for line in lines if width_of(line) <= width), lines[-1])


def _identity(picture: ViewState, run: RunView, name: Line, room: int) -> Line:
    look = picture.look
    where = plural(run.world_size, "rank")
    hosts = f" on {plural(len(run.nodes), 'host')}" if run.nodes else ""
    title = [Segment(clip(look.clean(run.name), 40, look.glyphs.more), look.text)]
    facts = [[Segment(where + hosts, look.dim)], [Segment(look.clean(run.backend), look.dim)]]
    for keep in (2, 1, 0):
        line = name + joined([title, *facts[:keep]], _dot(look))
        if width_of(line) <= room:
            return line
    short = clip(title[0].text, max(room - width_of(name), 0), look.glyphs.more)
    return [*name, Segment(short, look.text)]


def _state(picture: ViewState, run: RunView) -> Line:
    look, replay = picture.look, picture.snapshot.replay
    if replay is not None:
        return [Segment(f"{'REWOUND' if replay.is_live else 'REPLAY'} {run.state}", look.accent)]
    if picture.paused_s is not None:
        return [Segment("FROZEN", look.accent)]
    if picture.snapshot.link.state == "silent" or (picture.stuck_s is not None and not picture.faded):
        return [Segment("SILENT", look.accent)]
    if picture.faded and run.state not in ENDS:
        return [Segment("GONE", look.broken)]
    styles = {"running": look.strong, "finished": look.text, "stalled": look.accent, "restarting": look.accent}
    return [Segment(run.state.upper(), styles.get(run.state, look.broken))]


def _elapsed(run: RunView, look: Look) -> Line:
    return [Segment(clock(run.elapsed_s), look.text)]


def _rate(picture: ViewState) -> list[Line]:
    """How often the store is read, when that is not once a second; a recording is not read from a store."""
    every = picture.interval
    replay = picture.snapshot.replay
    return (
        []
        if every == 1 or (replay is not None and not replay.is_live)
        else [[Segment(f"every {every:g} s", picture.look.dim)]]
    )


def _coverage(picture: ViewState, look: Look) -> list[list[Line]]:
    """How many ranks report, and how old the oldest word is, then the same in fewer words: `1,024/1,024 · 0.4 s`."""
    coverage = picture.snapshot.coverage
    if coverage is None:
        return [[]]
    whole = coverage.reporting >= coverage.expected
    run, newest = picture.snapshot.run, newest_word_s(picture.snapshot)
    over = run is not None and is_over(run.state) and (run.state == "finished" or not _is_fresh(newest))
    tone = look.dim if over or whole else look.accent
    age_tone = look.dim if over or _is_fresh(coverage.oldest_age_s) else look.accent
    word = newest if over or picture.snapshot.link.state == "gone" else coverage.oldest_age_s
    if word is not None and picture.stuck_s is not None:
        word = max(word, picture.stuck_s)  # the picture is that old at least
    ago = age(word, look.unknown)
    said, brief = f"{'ended' if over else 'heard'} {ago} ago", f"ended {ago}" if over else ago
    told = f"{coverage.reporting:,}/{coverage.expected:,}"
    ways = ((f"{coverage.reporting:,}/{plural(coverage.expected, 'rank')}", said), (told, said), (told, brief))
    return [[[Segment(count, tone)], [Segment(old, age_tone)]] for count, old in ways]


def _is_fresh(age_s: float | None) -> bool:
    return age_s is not None and age_s <= SILENT_S


def _cost(picture: ViewState, look: Look) -> Line:
    """What the probe itself takes of a step, and what it had to drop."""
    job = picture.snapshot.job
    cost = [Segment(look.clean(f"probe {figure(job.monitor_us, look.unknown)} µs/step"), look.dim)]
    return [*cost, Segment(f", {count(job.dropped)} dropped", look.accent)] if job.dropped else cost


def notice_line(picture: ViewState, width: int) -> Line:
    """What stands between the reader and a live picture."""
    look = picture.look
    run = picture.snapshot.run
    ended = run.state if picture.snapshot.link.state == "gone" and run is not None else ""
    finished = ended == "finished"
    style = look.text if finished else look.broken if picture.snapshot.link.state == "gone" else look.accent
    glyphs = look.glyphs
    glyph = {"finished": glyphs.finished, "killed": glyphs.lost, "failed": glyphs.lost}.get(ended, glyphs.stalled)
    text = clip_clauses(look.clean(notice(picture)), width - 4, look.glyphs.more)
    return fit([Segment(f" {glyph} ", style), Segment(text, style)], width)


def notice_lines(picture: ViewState, width: int) -> list[Line]:
    """`notice_line` if there is anything to say; behind the words on a run that was killed, what to do."""
    look = picture.look
    if not notice(picture):
        return []
    if not picture.notice_tells_kill:
        return [notice_line(picture, width)]
    advice = look.clean(_to_do(picture.snapshot.findings[0], look))
    below = Segment(f"   {clip_clauses(advice, width - 4, look.glyphs.more)}", look.strong)
    return [notice_line(picture, width), fit([below], width)]


def said_below(picture: ViewState, finding: Finding) -> str:
    """The sentence of a finding; what to do where the notice is that sentence already. Not cleaned."""
    tells_kill = is_kill(finding) and picture.notice_tells_kill
    return f"{what(finding)} {_to_do(finding, picture.look)}" if tells_kill else finding.summary


def _to_do(finding: Finding, look: Look) -> str:
    """`→ read the launcher's output`."""
    return f"{'->' if look.ascii_only else '→'} {advice_text(finding.advice)}"


def calm_style(snapshot: Snapshot, look: Look) -> tuple[str, Style]:
    """The glyph before the sentence of a run without findings: a tick only where all is known to be even."""
    return (look.glyphs.finished if is_even(snapshot) else look.glyphs.note), look.text


def no_findings_for(snapshot: Snapshot, ranks: Sequence[int], look: Look, whose: str, *, well: bool) -> tuple[str, str]:
    """The sign and the words where there is no finding about a rank or a host with these ranks.

    A tick where it is known to be well: not of ranks that cannot be compared with the others, and not while a step is
    overdue.
    """
    if not is_judged(snapshot):
        return look.glyphs.note, "not enough evidence yet"
    alone = snapshot.run is not None and snapshot.run.world_size == 1
    well = well and not is_overdue(snapshot) and (alone or are_compared(snapshot, ranks))
    sign = look.glyphs.finished if well else look.glyphs.note
    return sign, not_compared_words(snapshot, ranks, whose) or f"no findings for this {whose}"


def finding_style(finding: Finding, look: Look) -> tuple[str, Style]:
    """The glyph and the style in which a finding is written."""
    if is_broken(finding):
        return look.glyphs.lost, look.broken
    if at_or_above(finding.severity, "warning"):
        return look.glyphs.mark, look.accent
    return (look.glyphs.restarted if is_restart(finding) else look.glyphs.note), look.text


def _dot(look: Look) -> Segment:
    return Segment(f" {look.glyphs.dot} ", look.faint)


def waiting_lines(picture: ViewState, width: int, height: int) -> list[Line]:
    """A calm screen: what we wait for, and the sentence of the link."""
    look, link = picture.look, picture.snapshot.link
    block = [(TITLES[link.state], look.strong), ("", look.text)]
    block += [(row, look.text) for row in wrap(look.clean(link.message), min(width - 4, 76)) if row]
    if picture.stuck_s is not None:
        block += [("", look.text), (f"no answer for {age(picture.stuck_s)}", look.accent)]
    if link.state in ("waiting", "live"):
        block += [("", look.text), *((row, look.dim) for row in wrap(HINT, min(width - 4, 76)))]
    return _centred(block, width, height)


def _centred(block: list[tuple[str, Style]], width: int, height: int) -> list[Line]:
    above = max((height - len(block)) // 2, 0)
    lines: list[Line] = [[] for _ in range(above)]
    for text, style in block:
        lines.append(fit([Segment(" " * max((width - len(text)) // 2, 0)), Segment(text, style)], width))
    return fit_all(lines, width, height)
