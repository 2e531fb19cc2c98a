"""The sentences on the job as a whole: its pace, uneven work, a hidden pace, pauses, and losses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.hidden import HiddenPaceMeasures
from ddpmon.diagnose.late_policy import ALERTS
from ddpmon.diagnose.load_imbalance import UnevenWorkMeasures
from ddpmon.diagnose.losses import LossJumpMeasures, NonfiniteLossMeasures
from ddpmon.diagnose.pauses import GcMeasures, LongStepMeasures, NamedPauseMeasures
from ddpmon.diagnose.regression import JobSlowerMeasures, SlowNetworkMeasures
from ddpmon.format import age, loss_words, ms, pct, plural
from ddpmon.report.late_sentences import advice_on
from ddpmon.report.tense import during, tense
from ddpmon.report.wording import (
    Evidence,
    Sentence,
    Words,
    clean,
    format_ranks,
    host_of,
    in_brackets,
    run_share,
)

_DIFFERENT_RANKS = "see in the heat map which rank is last: uneven batches and other jobs move from rank to rank"
_ONE_HOST = "check what else uses the memory bandwidth and the cores of the host, which all ranks share"
_LINKS = "check the links between the hosts: errors, retransmits, other traffic, a port that runs at a lower speed"
_BALANCE = "balance the batches: sort or bucket samples by length, pack sequences, or balance tokens across ranks"
_SYNCHRONISE = "let all ranks synchronise now and then: loss.item() every 50 steps shows how much time their CPUs need"
_NAME_IT = "if this is a checkpoint or an evaluation, wrap it in `with monitor.phase(name)`"
_SAVE_LESS = "save less often, or in the background (torch.distributed.checkpoint.async_save)"
_COLLECT_TOGETHER = (
    "call gc.freeze() once the model is built; or call gc.disable(), and gc.collect() every few hundred steps at the "
    "same step on all ranks"
)
_NAME_CHARACTERS = 40  # a pause's name is shown on one line, with numbers behind it
_LOSSES = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}
_ITS_DATA = "check the data that this rank read from that step on"
_ALL_LOSSES = "check learning rate, gradient clipping and the data from that step on; restart from an older checkpoint"
_SKIPPED = "normal now and then in mixed precision, where the gradient scaler skips such steps; see whether it recurs"


def _job_slower(m: JobSlowerMeasures, alert: Alert) -> Words:
    rises = {f"rise_{name}_ms": rise for name, rise in m.rises_ms}
    evidence = {"step_ms": m.step_ms, "normal_step_ms": m.normal_step_ms, **rises}
    if m.is_waiting:
        return _longer_waits(m, alert, evidence)
    shared = "storage, the network, power" if m.several_hosts else "storage, power, clocks, other jobs"
    return Words(
        f"the whole run {tense(alert, 'has been')} slower by {ms(m.longer_ms)} a step {during(alert)}"
        f"{f', in {alert.phase}' if alert.phase else ''}: the typical rank {tense(alert, 'works')} longer, "
        "so that no single rank explains it",
        rest=_costs(alert),
        tells_end=True,
        advice=f"check what all ranks share: {shared}; or whether sequences or batches have become larger",
        evidence=evidence,
    )


def _longer_waits(m: JobSlowerMeasures, alert: Alert, evidence: Evidence) -> Words:
    return Words(
        f"steps {tense(alert, 'have taken')} {ms(m.longer_ms)} longer {during(alert)}, and most of it "
        f"{tense(alert, 'is')} waiting; the typical rank {tense(alert, 'does')} not work longer, but a "
        f"different rank {tense(alert, 'is')} late from step to step",
        rest=_costs(alert),
        tells_end=True,
        advice=_DIFFERENT_RANKS,
        evidence=evidence,
    )


def _slow_network(m: SlowNetworkMeasures, alert: Alert) -> Words:
    where = (
        f"the network {tense(alert, 'is')} slow, and durations do not show which link"
        if m.several_hosts
        else "they share one host, so no network link is to blame"
    )
    return Words(
        f"the gradient transfer {tense(alert, 'has taken')} {ms(m.longer_ms)} longer a step {during(alert)}, "
        f"equally on all ranks: {where}",
        rest=_costs(alert),
        tells_end=True,
        advice=_LINKS if m.several_hosts else _ONE_HOST,
        evidence={
            "transfer_ms": m.transfer_ms,
            "normal_transfer_ms": m.normal_transfer_ms,
            "spread_rise_ms": m.spread_rise_ms,
            "step_ms": m.step_ms,
        },
    )


def _uneven_work(m: UnevenWorkMeasures, alert: Alert) -> Words:
    when = "" if alert.cleared_at_step is None else f" {during(alert)}"
    return Words(
        f"work {tense(alert, 'is')} uneven{when}: the slowest rank of a step {tense(alert, 'works')} {ms(m.gap_ms)} "
        f"longer than the mean, and it {tense(alert, 'is')} a different rank from step to step",
        rest=_costs(alert),
        tells_end=True,
        advice=_BALANCE,
        evidence={
            "imbalance": m.imbalance_share,
            "most_often_last_share": m.most_often_last_share,
            "window_steps": m.window_steps,
        },
    )


def _hidden_pace(m: HiddenPaceMeasures, alert: Alert) -> Words:
    return Words(
        f"rank {alert.ranks[0]}{in_brackets(host_of(alert))} {tense(alert, 'sets')} the pace: its GPU "
        f"{tense(alert, 'waits')} for its CPU",
        rest=_hidden_cost(m, alert),
        advice=_SYNCHRONISE,
        evidence={"cost_most_pct": m.cost_most_pct, "window_steps": m.window_steps},
    )


def _hidden_cost(m: HiddenPaceMeasures, alert: Alert) -> str:
    share = run_share(f"{pct(m.cost_most_pct)} %", is_over=alert.cleared_at_step is not None)
    cost = f"Fixing it saves at most {share}" if alert.cleared_at_step is None else f"Cost at most {share}"
    needed = f"How much time the CPUs of the other ranks {tense(alert, 'need')} {tense(alert, 'is')} unknown"
    return f"{needed}. {cost}, and perhaps nothing."


def _named_pause(m: NamedPauseMeasures, alert: Alert) -> Words:
    name, cost = clean(m.name, _NAME_CHARACTERS), alert.cost_pct or 0.0
    where = f"on rank {alert.ranks[0]}" if alert.ranks else f"on {plural(m.ranks, 'rank')}"
    often = f"{plural(m.times, 'time')}, {pct(cost)} % of the run's time"
    if m.steps_not_compared:
        often += "; steps that contain it are not used to compare ranks"
    return Words(
        f"{name} {where}: {age(m.last_ms / 1e3)} at step {m.last_step:,} ({often})",
        advice=_SAVE_LESS if cost >= ALERTS.warning_pct and "checkpoint" in m.name.lower() else "",
        evidence={
            "name": name,
            "last_ms": m.last_ms,
            "total_ms": m.total_ms,
            "times": m.times,
            "last_step": m.last_step,
        },
        tells_moment=True,
    )


def _long_step(m: LongStepMeasures, alert: Alert) -> Words:
    again = f"; {m.times} times, {pct(alert.cost_pct or 0.0)} % of the run's time" if m.times > 1 else ""
    return Words(
        f"rank {alert.ranks[0]} held the others up for {age(m.last_ms / 1e3)} at step {m.last_step:,} "
        f"({alert.phase}){again}",
        advice=_advice_on_long_step(alert.phase or "work"),
        evidence={"last_ms": m.last_ms, "total_ms": m.total_ms, "times": m.times, "last_step": m.last_step},
        tells_moment=True,
    )


def _advice_on_long_step(phase: str) -> str:
    """Nobody saves or evaluates in forward or backward; an evaluation may well wait for a loader of its own."""
    if phase in ("forward", "backward"):
        return advice_on(phase)
    return f"{advice_on(phase)}; {_NAME_IT}" if phase == "input" else _NAME_IT


def _gc(m: GcMeasures, alert: Alert) -> Words:
    return Words(
        f"Python's garbage collector {tense(alert, 'costs')} {_share(alert)}: pauses of "
        f"{ms(m.pause_ms)}, one in {m.every_steps:.0f} steps, mostly on {format_ranks(alert.ranks)}",
        advice=_COLLECT_TOGETHER,
        evidence={"pauses": m.pauses, "pause_ms": m.pause_ms, "steps": m.steps, "every": m.every_steps},
    )


def _loss_jump(m: LossJumpMeasures, alert: Alert) -> Words:
    alone = "the losses of the other ranks did not" if alert.ranks else "on no rank in particular"
    if m.world_size == 1:
        alone = "it had been steady for many steps"
    jump = f"jumped from {loss_words(m.before)} to {loss_words(m.after)}"
    return Words(
        f"{_whose_loss(alert)} {jump} at step {_since(alert)}: {alone}",
        advice=_ITS_DATA if alert.ranks else _ALL_LOSSES,
        evidence={"before": m.before, "after": m.after, "limit": m.limit, "calm_steps": m.calm_steps},
        tells_moment=True,
    )


def _nonfinite_loss(m: NonfiniteLossMeasures, alert: Alert) -> Words:
    return Words(
        _since_when(m, alert) if m.finite_since is None else _passing(m, m.finite_since, alert),
        tells_end=True,
        advice=_after_nonfinite(m, alert),
        evidence={
            "first_step": m.first_step,
            "last_step": m.last_step,
            "count": m.count,
            "ranks": len(m.first_ranks) + len(m.later_ranks),
        },
        tells_moment=m.finite_since is not None,
    )


def _since_when(m: NonfiniteLossMeasures, alert: Alert) -> str:
    """Losses that are still not finite."""
    lasted = during(replace(alert, since_step=m.first_step, since_is_bound=False))
    text = f"{_whose_loss(alert)} {tense(alert, 'has been')} {_LOSSES[m.value]} {lasted}"
    if not alert.ranks:
        return f"{text} on {format_ranks(m.first_ranks)}: no single rank is to blame"
    if m.later_step is None:
        return text
    return f"{text}; it spread through the gradients to {format_ranks(m.later_ranks)} from step {m.later_step:,} on"


def _passing(m: NonfiniteLossMeasures, finite_since: int, alert: Alert) -> str:
    """Losses that are finite again."""
    one = m.last_step == m.first_step
    passing = f"at step {m.first_step:,}" if one else f"between steps {m.first_step:,} and {m.last_step:,}"
    again = f"has been finite again since step {finite_since:,}"
    return f"{_whose_loss(alert)} was {_LOSSES[m.value]} {passing}, and {again}"


def _after_nonfinite(m: NonfiniteLossMeasures, alert: Alert) -> str:
    if m.finite_since is not None:
        return _SKIPPED
    if alert.ranks:
        batch = f"the batch that {format_ranks(alert.ranks)} read at step {m.first_step:,}"
        return f"check {batch}, then restart from an earlier checkpoint"
    before = f"restart from a checkpoint before step {m.first_step:,}"
    return f"{before}; check learning rate, gradient clipping and loss scaling"


def _whose_loss(alert: Alert) -> str:
    return f"the loss of {format_ranks(alert.ranks)}" if alert.ranks else "the loss"


def _since(alert: Alert) -> str:
    return f"{alert.since_step or 0:,}"


def _costs(alert: Alert) -> str:
    return f"{tense(alert, 'Costs')} {_share(alert)}."


def _share(alert: Alert) -> str:
    return run_share(f"{pct(alert.cost_pct or 0.0)} %", is_over=alert.cleared_at_step is not None)


SENTENCES: Mapping[type[Measures], Sentence] = {
    JobSlowerMeasures: _job_slower,
    SlowNetworkMeasures: _slow_network,
    UnevenWorkMeasures: _uneven_work,
    HiddenPaceMeasures: _hidden_pace,
    NamedPauseMeasures: _named_pause,
    LongStepMeasures: _long_step,
    GcMeasures: _gc,
    LossJumpMeasures: _loss_jump,
    NonfiniteLossMeasures: _nonfinite_loss,
}
