"""Sentences on a job without progress: hangs, pauses under way, and uneven inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.hang import (
    Hang,
    MismatchMeasures,
    SilentMeasures,
    StuckMeasures,
    UnattributedMeasures,
    Waiters,
)
from ddpmon.diagnose.pause import GraphMeasures, OngoingPauseMeasures, UnsynchronisedMeasures
from ddpmon.diagnose.rank_position import own_line
from ddpmon.diagnose.stall_state import Collective
from ddpmon.diagnose.uneven_inputs import LeftBehindMeasures, UnevenInputsMeasures
from ddpmon.format import age, plural
from ddpmon.parts import StackFrame
from ddpmon.report.tense import tense
from ddpmon.report.wording import (
    Evidence,
    Sentence,
    Words,
    clean,
    does,
    format_line,
    format_ranks,
    format_stack,
    on_host,
    others_do,
    phase_words,
    stack_command,
)
from ddpmon.shell_command import Advice

_COLLECTIVES: Mapping[str, str] = {"exposed": "the gradient reduction", "barrier": "a collective"}
_WRAP = "wrap evaluations and checkpoints in `with monitor.phase(name)`, so that their time has a name"
_RECOMPILES = (
    "if it compiles again and again, find out why: TORCH_LOGS=recompiles; a shared TORCHINDUCTOR_CACHE_DIR helps"
)
_SAME_BATCHES = (
    "give every rank the same number of batches: DistributedSampler, drop_last=True, or a fixed number of steps; "
    "or let the others continue with torch.distributed.algorithms.join.Join"
)


def _silent(m: SilentMeasures, alert: Alert) -> Words:
    """Who has fallen silent, in which phase, and who waits."""
    fallen = f"{does(alert.ranks, 'have fallen', alert)} silent {phase_words(clean(m.hang.shown.phase, 40))}"
    said = [f"{fallen}; {_no_step(m.hang, alert)}", *_waiters(m.hang.waiters, alert)]
    return _hang("; ".join(said), m.hang, alert)


def _no_step(hang: Hang, alert: Alert) -> str:
    return f"no step {tense(alert, 'has finished')} for {age(hang.seconds)}"


def _mismatch(m: MismatchMeasures, alert: Alert) -> Words:
    """Who never came to the collective that the others are in, or is in another; or that two sides disagree."""
    sides, operation = m.mismatch, _collective(m.mismatch.collective)
    if sides.absent:
        who = f"{others_do(sides.others, 'wait', alert)} for {_them(sides.ranks)} in {operation}"
        return _hang(f"{_stuck_in(m.hang, sides.ranks, m.line, alert)}; {who}", m.hang, alert, operation, m.line)
    elsewhere = f"{does(sides.ranks, 'are', alert)} in {_collective(sides.theirs)}{_at(m.line)}"
    others = f"{others_do(sides.others, 'are', alert)} in {operation}{_at(m.others_line)}"
    end = (
        f"{format_ranks(sides.ranks)} took another path"
        if sides.certain
        else f"the groups {tense(alert, 'disagree')}, and which {tense(alert, 'is')} wrong is unknown"
    )
    said = f"for {age(m.hang.seconds)}, {elsewhere}, but {others}: {end}"
    return _hang(said, m.hang, alert, operation, others=(m.line, m.others_line))


def _stuck(m: StuckMeasures, alert: Alert) -> Words:
    """Which ranks are stuck, and who waits for them."""
    waiters = [] if m.is_alone else _waiters(m.hang.waiters, alert)
    return _hang("; ".join([_stuck_in(m.hang, alert.ranks, m.line, alert), *waiters]), m.hang, alert, line=m.line)


def _unattributed(m: UnattributedMeasures, alert: Alert) -> Words:
    """Everybody waits, or everybody is at work."""
    alone, seconds = len(m.ranks) == 1, age(m.hang.seconds)
    everybody = format_ranks(m.ranks) if m.absent or alone else f"all {len(m.ranks):,} ranks"
    are = tense(alert, "are")
    silent = f"{plural(m.absent, 'other')} {tense(alert, 'is') if m.absent == 1 else are} silent"
    missing = f" ({silent})" if m.absent else ""
    devices = f"; the GPUs {are} in {_counted(m.device_phases)}" if m.device_phases else ""
    if m.hang.waiters is not None:
        where = _operation(m.hang) or " and ".join(sorted(_COLLECTIVES.get(p) or clean(p, 40) for p, _ in m.phases))
        waited = (
            f"{everybody}{missing} {tense(alert, 'has waited' if alone else 'have waited')} in {where} for {seconds}"
        )
        return _hang(f"{waited}: no single rank {tense(alert, 'is')} to blame{devices}", m.hang, alert)
    where = _counted(m.phases) if len(m.phases) > 1 else clean(m.phases[0][0], 40)
    nobody = "" if alone else f": no rank {tense(alert, 'waits')} for another"
    busy = f"{everybody}{missing} in {where}{_at(m.line)}{nobody}{devices}"
    return _hang(f"{_no_step(m.hang, alert)}: {busy}", m.hang, alert, others=(m.line,))


def _hang(
    sentence: str,
    hang: Hang,
    alert: Alert,
    operation: str = "",
    line: StackFrame | None = None,
    others: Sequence[StackFrame | None] = (),
) -> Words:
    """What is the same of every hang: how the first step is spoken of, the evidence, the advice.

    Args:
        sentence: what is particular to it.
        hang: how long, who waits, and where one rank is.
        alert: whom it names.
        operation: the collective that the sentence names; empty: the one of the waiting ranks.
        line: where the ranks are stuck, as the sentence says.
        others: further lines of code that the sentence names.
    """
    first = f"no rank {tense(alert, 'has finished its first step (still compiling?)')}: " if hang.is_first_step else ""
    texts = {
        "stack": format_stack(hang.shown.stack),
        "operation": operation or _operation(hang),
        "device_phase": clean(hang.shown.device_phase, 40),
        "device_error": clean(hang.shown.device_error, 60),
    }
    evidence: dict[str, float | int | str] = {
        "seconds": hang.seconds,
        "waiting": 0 if hang.waiters is None else len(hang.waiters.ranks),
    }
    evidence |= {name: text for name, text in texts.items() if text}
    advice = _hang_advice(hang, alert, line)
    return Words(f"{first}{sentence}", advice=advice, evidence=evidence, lines=_known(line, *others))


def _known(*lines: StackFrame | None) -> tuple[StackFrame, ...]:
    return tuple(line for line in lines if line is not None)


def _hang_advice(hang: Hang, alert: Alert, line: StackFrame | None) -> Advice:
    """What to look at; `line` is where the ranks are stuck, as the sentence says, None if it does not."""
    host, stack = hang.shown.host, stack_command(hang.shown.host, hang.shown.pid)
    if alert.ranks and hang.shown.device:
        gpu, errors = on_host(host, "nvidia-smi"), on_host(host, "sudo dmesg")
        return "look at this GPU: ", gpu, ", and for Xid errors ", errors, "; then ", stack
    if alert.ranks:
        return "see what that line waits for: " if line is not None else "see where it is: ", stack
    if hang.waiters is not None:
        return f"check the network and the log of {clean(hang.backend, 20)}; the rank detail shows every stack"
    return "if this is an evaluation or a checkpoint, wrap it in `with monitor.phase(name)`; else compare the stacks"


def _stuck_in(hang: Hang, ranks: Sequence[int], line: StackFrame | None, alert: Alert) -> str:
    """Where `ranks` are stuck and for how long, with the line of one; the GPU first, if it is that."""
    shown, seconds, at = hang.shown, age(hang.seconds), _at(line)
    phase = phase_words(clean(shown.phase, 40))
    if not shown.device:
        return f"{does(ranks, 'have been', alert)} stuck {phase} for {seconds}{',' if at else ''}{at}"
    whose = f"the GPU{'s' if len(ranks) > 1 else ''} of {format_ranks(ranks)}"
    have = "have" if len(ranks) > 1 else "has"
    if shown.device == "no_answer":
        return f"{whose} {tense(alert, f'{have} not answered')}, and {_no_step(hang, alert)}"
    stuck = f"{tense(alert, f'{have} been')} stuck {phase_words(clean(shown.device_phase, 40))} for {seconds}"
    broken = f"{tense(alert, 'cannot')} go on: error {clean(shown.device_error, 60)}"
    return f"{whose} {broken if shown.device == 'broken' else stuck} (the CPU {tense(alert, 'is')} {phase}{at})"


def _waiters(waiters: Waiters | None, alert: Alert) -> list[str]:
    """Who waits, and in what; nothing if nobody does."""
    if waiters is None:
        return []
    return [f"{others_do(waiters.ranks, 'wait', alert)} in {_collective(waiters.collective)}"]


def _collective(collective: Collective) -> str:
    return clean(collective.operation, 80) or _COLLECTIVES[collective.phase]


def _operation(hang: Hang) -> str:
    """The collective that most of the waiting ranks entered last, "" if unknown."""
    return "" if hang.waiters is None else clean(hang.waiters.collective.operation, 80)


def _counted(phases: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{clean(phase, 40)} ({count})" for phase, count in phases)


def _at(line: StackFrame | None) -> str:
    return "" if line is None else f" at {format_line(line)}"


def _them(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _all_or_these_do(m: GraphMeasures | UnsynchronisedMeasures, verb: str, alert: Alert) -> str:
    """`all 4 ranks go`, else `does` of those that it is about."""
    are_all = m.are_all and len(m.ranks) > 1
    return f"all {len(m.ranks):,} ranks {tense(alert, verb)}" if are_all else does(m.ranks, verb, alert)


def _graph(m: GraphMeasures, alert: Alert) -> Words:
    """Whether the ranks replay a CUDA graph, in which nothing is measured."""
    replay = _all_or_these_do(m, "replay" if m.is_replaying else "have replayed", alert)
    what = "a CUDA graph" if m.is_replaying else f"no CUDA graph for {age(m.replay_s)}"
    return Words(
        f"not measured: a CUDA graph: {replay} {what}, in which no step {tense(alert, 'is')} seen",
        evidence={"seconds": m.seconds, "name": "CUDA graph"},
        advice="run some steps without the graph to measure them: ranks are compared in steps outside CUDA graphs"
        if m.is_replaying
        else "look at the stacks of the ranks and at the GPUs (nvidia-smi): where a graph stands is not known",
    )


def _ongoing_pause(m: OngoingPauseMeasures, alert: Alert) -> Words:
    """Who is busy and with what, for how long, and whether others wait."""
    phase, line = clean(m.shown.phase, 40), own_line(m.shown.stack)
    writing = "" if m.write_bytes_s is None else f", writing {m.write_bytes_s / 1e6:,.0f} MB/s"
    doing = {
        "named_phase": f"in {phase}",
        "compilation": "compiling",
        "unnamed": f"busy without finishing a step ({tense(alert, 'now')} {phase}{writing})",
    }[m.activity]
    alone = f"no rank {tense(alert, 'waits')} for another"
    alone = f"the others {tense(alert, 'have')} finished" if m.others_finished else alone
    return Words(
        f"{does(m.ranks, 'have been', alert)} {doing} for {age(m.seconds)}{',' if line else ''}{_at(line)}; "
        f"{others_do(m.waiting, 'wait', alert) if m.waiting else alone}",
        evidence=_pause_evidence(m, phase),
        advice=_pause_advice(m, late=alert.severity != "info"),
        lines=_known(line),
    )


def _pause_evidence(m: OngoingPauseMeasures, phase: str) -> Evidence:
    """How long, and by what the ranks are seen to make progress."""
    evidence: dict[str, float | int | str] = {"seconds": m.seconds, "waiting": len(m.waiting), "name": phase}
    if m.activity == "compilation":
        evidence["compiling"] = "yes"
    if m.stack_moves:
        evidence["stack_moves"] = "yes"
    if m.write_bytes_s is not None:
        evidence["writes_gb_s"] = m.write_bytes_s / 1e9
    stack = format_stack(m.shown.stack)
    return evidence | ({"stack": stack} if stack else {})


def _pause_advice(m: OngoingPauseMeasures, *, late: bool) -> Advice:
    see = ("see where it is: ", stack_command(m.shown.host, m.shown.pid))
    if m.activity == "compilation":
        return see if late else _RECOMPILES
    if m.activity == "named_phase":
        return f"check the storage that {format_ranks(m.ranks)} uses: it takes far longer than before" if late else ""
    return (*see, f"; {_WRAP}") if m.waiting and late else _WRAP


def _unsynchronised(m: UnsynchronisedMeasures, alert: Alert) -> Words:
    """That all ranks go from phase to phase, and none reduces gradients."""
    now, go = " and ".join(m.phases), _all_or_these_do(m, "go", alert)
    return Words(
        f"no gradient reduction for {age(m.seconds)}, although {go} from phase to phase ({tense(alert, 'now')} {now}): "
        f"gradient accumulation, no_sync, an evaluation, or a model other than the attached one",
        evidence={"seconds": m.seconds, "waiting": m.waiting, "name": now},
        advice="change nothing if this is intended: ranks are compared in steps that reduce gradients; "
        "wrap an evaluation in `with monitor.phase(name)`",
    )


def _uneven_inputs(m: UnevenInputsMeasures, alert: Alert) -> Words:
    """Whose data has ended, and who waits for it."""
    their = "its" if len(alert.ranks) == 1 else "their"
    done = "finished" if m.has_finished else f"reached the end of {their} data"
    ending = f": {their} data ended earlier" if m.has_finished else ""
    waited = others_do(m.waiting, "have waited", alert)
    return Words(
        f"{format_ranks(alert.ranks)} {done} after step {m.last_step:,}; {waited} for {_them(alert.ranks)} at step "
        f"{m.last_step + 1:,} for {age(m.seconds)}{ending}",
        evidence={"seconds": m.seconds, "waiting": len(m.waiting), "last_step": m.last_step},
        advice=_SAME_BATCHES,
        tells_moment=True,
    )


def _left_behind(m: LeftBehindMeasures, alert: Alert) -> Words:
    """Who has finished while the others go on."""
    return Words(
        f"{format_ranks(alert.ranks)} finished after step {m.last_step:,}; the others {tense(alert, 'continue')} "
        f"without {_them(alert.ranks)}",
        evidence={"last_step": m.last_step, "newest_step": m.newest_step},
        advice="if this is not intended, give every rank the same number of batches: DistributedSampler, "
        "drop_last=True",
    )


SENTENCES: Mapping[type[Measures], Sentence] = {
    SilentMeasures: _silent,
    MismatchMeasures: _mismatch,
    StuckMeasures: _stuck,
    UnattributedMeasures: _unattributed,
    GraphMeasures: _graph,
    OngoingPauseMeasures: _ongoing_pause,
    UnsynchronisedMeasures: _unsynchronised,
    UnevenInputsMeasures: _uneven_inputs,
    LeftBehindMeasures: _left_behind,
}
