"""The first lines: which run, how well it is seen, the verdict as a sentence, the figures of the job."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.alert import at_or_above
from ddpmon.format import age, clock, count, figure, known, plural
from ddpmon.report.progress import progress_words
from ddpmon.report.verdicts import calm_sentence, firing, headline, is_broken, is_even
from ddpmon.snapshot import Coverage, Finding, JobView, RunView, Snapshot
from ddpmon.tui.lines import Line, clip, fit, fit_all, joined, spread, width_of, wrap
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState, notice

LATE_WORD_S = 5.0  # a rank's word older than this is no longer "now"
TITLES = {
    "waiting": "waiting for a run",
    "live": "a run is there; no rank has spoken yet",
    "silent": "the store does not answer",
    "gone": "the store is gone",
}
ENDS = ("finished", "failed", "killed", "cancelled", "restarting")  # how a run is known to have ended
HINT = "ddpmon goes on looking: a run appears here by itself as soon as its first rank has published."


def header_line(picture: ViewState, width: int) -> Line:
    """` ddpmon  name · 8 ranks on 2 nodes · gloo      RUNNING 00:12:31 · 8/8 · 0.4 s · monitor 12 us/step`."""
    look, run = picture.look, picture.snapshot.run
    name = [Segment(" ddpmon  ", look.strong)]
    if run is None:
        return fit([*name, Segment(picture.snapshot.link.state, look.dim)], width)
    dot = _dot(look)
    right = [_state(picture, run), _elapsed(run, look), *_coverage(picture, look)]
    brief = [*right, _cost(picture, look, word=""), *_rate(picture)]
    whole = [*right, _cost(picture, look, word="monitor "), *_rate(picture)]
    for parts in (whole, *(brief[:keep] for keep in range(len(brief), 0, -1))):
        tail = [*joined(parts, dot), Segment(" ", look.text)]
        if width_of(tail) <= width * 0.62:
            break
    return spread(_identity(picture, run, name, width - width_of(tail) - 1), tail, width)


def _identity(picture: ViewState, run: RunView, name: Line, room: int) -> Line:
    look = picture.look
    where = plural(run.world_size, "rank")
    nodes = f" on {plural(len(run.nodes), 'node')}" if run.nodes else ""
    title = [Segment(clip(look.clean(run.name), 40, look.glyphs.more), look.text)]
    facts = [[Segment(where + nodes, look.dim)], [Segment(look.clean(run.backend), look.dim)]]
    for keep in (2, 1, 0):
        line = name + joined([title, *facts[:keep]], _dot(look))
        if width_of(line) <= room:
            return line
    return name[:1] + title


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
    """How often the store is read, when that is not once a second."""
    every = picture.interval
    return [] if every == 1 else [[Segment(f"every {every:g} s", picture.look.dim)]]


def _coverage(picture: ViewState, look: Look) -> list[Line]:
    coverage = picture.snapshot.coverage
    if coverage is None:
        return []
    whole = coverage.reporting >= coverage.expected
    fresh = _fresh(coverage)
    return [
        [Segment(f"{coverage.reporting:,}/{coverage.expected:,}", look.dim if whole else look.accent)],
        [Segment(age(coverage.oldest_age_s, look.unknown), look.dim if fresh else look.accent)],
    ]


def _fresh(coverage: Coverage) -> bool:
    return coverage.oldest_age_s is not None and coverage.oldest_age_s < LATE_WORD_S


def _cost(picture: ViewState, look: Look, word: str) -> Line:
    """What the monitor itself takes of a step, and what it had to drop."""
    job = picture.snapshot.job
    cost = [Segment(f"{word}{figure(job.monitor_us, look.unknown)} us/step", look.dim)]
    return [*cost, Segment(f", {count(job.dropped)} dropped", look.accent)] if job.dropped else cost


def notice_line(picture: ViewState, width: int) -> Line:
    """What stands between the reader and a live picture."""
    look = picture.look
    style = look.broken if picture.snapshot.link.state == "gone" else look.accent
    text = clip(look.clean(notice(picture)), width - 4, look.glyphs.more)
    return fit([Segment(f" {look.glyphs.stalled} ", style), Segment(text, style)], width)


def verdict_lines(picture: ViewState, width: int) -> list[Line]:
    """The worst finding as a sentence, or the calm one; a long sentence takes a second line."""
    look, snapshot = picture.look, picture.snapshot
    worst = headline(snapshot.findings)
    more = _more(len(firing(snapshot.findings)) - (worst is not None), worst is None, look)
    sentence = look.clean(worst.summary if worst else calm_sentence(snapshot))
    glyph, style = finding_style(worst, look) if worst else calm_style(snapshot, look)
    rows = wrap(sentence, width - width_of(more) - 4)
    if len(rows) > 2:
        rows = [rows[0], clip(" ".join(rows[1:]), width - width_of(more) - 6, look.glyphs.more)]
    leads = (f" {glyph} ", "   ")
    lines: list[Line] = [[Segment(lead, style), Segment(row, style)] for lead, row in zip(leads, rows, strict=False)]
    return [spread(lines[0], more, width), *(fit(line, width) for line in lines[1:])]


def calm_style(snapshot: Snapshot, look: Look) -> tuple[str, Style]:
    """The glyph before the sentence of a run without findings: a tick only where all is known to be even."""
    return (look.glyphs.finished if is_even(snapshot) else look.glyphs.note), look.text


def finding_style(finding: Finding, look: Look) -> tuple[str, Style]:
    """The glyph and the style in which a finding is written."""
    if is_broken(finding):
        return look.glyphs.lost, look.broken
    if at_or_above(finding.severity, "warning"):
        return look.glyphs.mark, look.accent
    return look.glyphs.note, look.text


def _more(number: int, calm: bool, look: Look) -> Line:
    if number <= 0:
        return []
    words = plural(number, "note") if calm else f"{number:,} more"
    return [Segment(f"{words} ", look.text), Segment("[5] ", look.dim)]


def figures_line(picture: ViewState, width: int) -> Line:
    """`step 1,204    last 0.4 s ago    172 ms/step    loss 2.314    1,482 samples/s ...`, as many as fit."""
    look, snapshot = picture.look, picture.snapshot
    step = snapshot.run.step if snapshot.run else None
    parts = [[Segment("step ", look.dim), Segment(f"{count(step, look.unknown):>7}", look.strong)]]
    if words := progress_words(snapshot.job, brief=width < 140):
        parts += [[Segment(words, look.text)]]
    parts += [_last_step(snapshot, look, brief=width < 100)]
    parts += _figures(snapshot.job, look, brief=width < 100)
    for gap in (4, 3, 2):
        for keep in range(len(parts), 1, -1):
            line = [Segment(" ", look.text), *joined(parts[:keep], Segment(" " * gap, look.text))]
            if width_of(line) < width and (keep >= len(parts) - 1 or gap == 2):
                return fit(line, width)
    return fit([Segment(" ", look.text), *parts[0]], width)


def _last_step(snapshot: Snapshot, look: Look, *, brief: bool) -> Line:
    """How long ago a step was finished: dim as long as the next one is not overdue."""
    run = snapshot.run
    seconds = run.step_age_s if run else None
    text = f"{'last' if brief else 'last step'} {age(seconds, look.unknown):>5} ago"
    due_s = max(LATE_WORD_S, 3 * (snapshot.job.step_ms or 0.0) / 1e3)
    overdue = run is not None and run.state != "finished" and seconds is not None and seconds > due_s
    return [Segment(text, look.accent if overdue else look.dim)]


def _figures(job: JobView, look: Look, *, brief: bool) -> list[Line]:
    loss = f"{job.loss:.4g}" if known(job.loss) else look.unknown
    tokens = known(job.tokens_per_s)
    efficiency = f"{job.sync_efficiency * 100:.0f}" if known(job.sync_efficiency) else look.unknown  # type: ignore[operator]
    return [
        [Segment(f"{figure(job.step_ms, look.unknown):>5}", look.text), Segment(" ms/step", look.dim)],
        [Segment("loss ", look.dim), Segment(f"{loss:<5}", look.text)],
        [
            Segment(f"{figure(job.throughput, look.unknown):>5} ", look.text),
            Segment(look.clean(job.throughput_unit), look.dim),
        ],
        *([[Segment(f"{figure(job.tokens_per_s)} ", look.text), Segment("tokens/s", look.dim)]] if tokens else []),
        [Segment("waiting " if brief else "lost to waiting ", look.dim), *_lost(job, look)],
        [Segment("sync " if brief else "sync efficiency ", look.dim), Segment(f"{efficiency} %", look.text)],
    ]


def _lost(job: JobView, look: Look) -> Line:
    if not known(job.lost_to_waiting_pct):
        return [Segment(look.unknown, look.dim)]
    share = job.lost_to_waiting_pct or 0.0
    notable = share >= 5 and bool(job.waiting_for)
    line = [Segment(f"{share:.0f} %", look.accent if notable else look.text)]
    if notable:
        ranks = ", ".join(str(rank) for rank in job.waiting_for[:3])
        line.append(Segment(f" for rank{'s' if len(job.waiting_for) > 1 else ''} {ranks}", look.accent))
    return line


def _dot(look: Look) -> Segment:
    return Segment(f" {look.glyphs.dot} " if not look.ascii_only else " | ", look.faint)


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


def too_small_lines(width: int, height: int, least: tuple[int, int], look: Look) -> list[Line]:
    """Too little room: say how much is needed and how to leave."""
    block = [
        ("too small", look.strong),
        (f"{width}x{height}, needs {least[0]}x{least[1]}", look.text),
        ("q quits", look.dim),
    ]
    return _centred(block, width, height)


def _centred(block: list[tuple[str, Style]], width: int, height: int) -> list[Line]:
    above = max((height - len(block)) // 2, 0)
    lines: list[Line] = [[] for _ in range(above)]
    for text, style in block:
        lines.append(fit([Segment(" " * max((width - len(text)) // 2, 0)), Segment(text, style)], width))
    return fit_all(lines, width, height)
