"""What the rules see and do not say yet: which alert it would be, and what its confirmation takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook, Group, GroupName, Life
from ddpmon.diagnose.contention.contention_lives import Contention
from ddpmon.diagnose.contention.symptom import Source
from ddpmon.diagnose.contention_policy import READING
from ddpmon.diagnose.failures import undecided
from ddpmon.diagnose.job_policy import ADVICE, UNEVEN_WORK
from ddpmon.diagnose.kinds import KINDS, KindName
from ddpmon.diagnose.late_policy import HIDDEN_PACE, INTERMITTENT, SUSTAINED
from ddpmon.diagnose.regression import NETWORK
from ddpmon.diagnose.stall_state import stall_state
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.stop_policy import HANG
from ddpmon.diagnose.tick import Tick
from ddpmon.run.medians import middle
from ddpmon.run.model import LOST_S, SILENT_S

_BY_STEPS: Mapping[GroupName, tuple[KindName, int]] = {  # what each would be, and how many steps a judgement takes
    "late ranks": ("straggler", 1),
    "late hosts": ("slow_node", 1),
    "hidden pace": ("straggler", HIDDEN_PACE.every_steps),
    "late together": ("intermittent_straggler", INTERMITTENT.every_steps),
    "uneven work": ("uneven_work", UNEVEN_WORK.every_steps),
    "pace": ("job_slower", 1),
    "advice": ("advice", ADVICE.every_steps),
}
_OF_RANKS: tuple[GroupName, ...] = ("late ranks", "hidden pace")  # their keys are ranks


class Pending(Struct, frozen=True):
    """One trouble that is seen and not confirmed.

    Attributes:
        kind: the kind of the alert that it would be.
        ranks: the ranks that it would name; empty when it names none, or they are not known yet.
        nodes: the hosts that it would name.
        confirmations: how many more judgements or readings in a row must show it; None where time alone decides.
        seconds: how long its confirmation takes at least.
    """

    kind: KindName
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    confirmations: int | None
    seconds: float


def pending_alerts(
    tick: Tick, said: Sequence[Alert], book: AlertBook, hosts: Mapping[int, str], contentions: Iterable[Contention]
) -> tuple[Pending, ...]:
    """All that is pending after a tick, what is confirmed soonest first.

    Args:
        tick: what was judged.
        said: the alerts at this tick.
        book: where alerts live.
        hosts: key in the group "late hosts" -> the host's name.
        contentions: those that are not confirmed.
    """
    found = [
        *_stopping(tick, said),
        *_failed(tick, said),
        *_silent(tick, said),
        *_nonfinite(tick, said),
        *_by_steps(book, tick.steps, hosts),
        *map(_contention, contentions),
    ]
    return tuple(sorted(found, key=lambda pending: pending.seconds))


def _stopping(tick: Tick, said: Sequence[Alert]) -> Iterator[Pending]:
    """A job that stands still, while its ranks have yet to tell where."""
    if any(KINDS[alert.kind].stops_job is not None for alert in said):
        return
    state = stall_state(tick.run, tick.ages)
    if state is not None:
        left = state.patience_s + HANG.soon_s - state.seconds
        yield Pending("hang", tuple(state.busy()), (), None, max(READING.frame_s, left))


def _failed(tick: Tick, said: Sequence[Alert]) -> Iterator[Pending]:
    """Ranks that have failed because another one had ended, while it is not known which."""
    ages = tick.ages[undecided(tick.run, tick.ages)]
    if len(ages) and all(alert.kind != "rank_failed" for alert in said):
        yield Pending("rank_failed", (), (), None, SILENT_S - float(ages.min()))


def _silent(tick: Tick, said: Sequence[Alert]) -> Iterator[Pending]:
    """Ranks that will be lost if they stay silent; after a failure the launcher ends the others."""
    if any(alert.kind == "rank_failed" for alert in said):
        return
    named = {rank for alert in said if KINDS[alert.kind].stops_job is not None for rank in alert.ranks}
    with np.errstate(invalid="ignore"):
        silent = np.flatnonzero((tick.ages > SILENT_S) & (tick.ages <= LOST_S) & ~tick.run.latest.ended).tolist()
    ranks = tuple(rank for rank in silent if rank not in named)
    if ranks:
        yield Pending("rank_lost", ranks, (), None, LOST_S - float(tick.ages[list(ranks)].max()))


def _nonfinite(tick: Tick, said: Sequence[Alert]) -> Iterator[Pending]:
    """Losses that are not finite, while a rank has yet to tell of the step at which that began."""
    ranks = tuple(rank for rank, loss in sorted(tick.run.latest.bad_loss.items()) if loss.count)
    if ranks and all(alert.kind != "nonfinite_loss" for alert in said):
        yield Pending("nonfinite_loss", ranks, (), None, READING.frame_s)


def _by_steps(book: AlertBook, matrix: StepMatrix, hosts: Mapping[int, str]) -> Iterator[Pending]:
    """What is judged step by step, or block by block."""
    for name, (kind, steps) in _BY_STEPS.items():
        group = book.group(name)
        for life in group.pending:
            yield _of_life(name, kind, life, group, steps * _step_s(matrix), hosts)


def _of_life(
    name: GroupName, kind: KindName, life: Life, group: Group, judgement_s: float, hosts: Mapping[int, str]
) -> Pending:
    missing = group.confirmations - life.high
    return Pending(
        kind="slow_network" if (name, life.key) == ("pace", NETWORK) else kind,
        ranks=(int(life.key),) if name in _OF_RANKS else (),
        nodes=(hosts[life.key],) if name == "late hosts" and life.key in hosts else (),
        confirmations=missing,
        seconds=max(READING.frame_s, missing * judgement_s),
    )


def _step_s(matrix: StepMatrix) -> float:
    """How long a step takes now, in seconds."""
    lately = matrix.job("duration")[-SUSTAINED.window_steps :]
    return middle(lately) / 1e3 if len(lately) else 0.0


def _contention(contention: Contention) -> Pending:
    symptom, missing = contention.symptom, contention.missing
    seconds = missing * reading_s(symptom.source)
    return Pending(symptom.kind, symptom.ranks, (contention.host,), missing, seconds)


def reading_s(source: Source | None) -> float:
    """How many seconds lie between two readings of a source at least."""
    sensor, name = source or ("host", "host")
    if sensor == "link":
        return READING.link_s
    if sensor == "disk":
        return READING.disk_s
    return READING.processes_s if (sensor, name) == ("host", "processes") else READING.frame_s
