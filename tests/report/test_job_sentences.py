"""What is said of the job as a whole: its pace, uneven work, a hidden pace, pauses, and losses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.hidden import HiddenPaceMeasures
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.load_imbalance import UnevenWorkMeasures
from ddpmon.diagnose.losses import LossJumpMeasures, NonfiniteLossMeasures
from ddpmon.diagnose.pauses import GcMeasures, LongStepMeasures, NamedPauseMeasures
from ddpmon.diagnose.regression import JobSlowerMeasures, SlowNetworkMeasures
from ddpmon.report.job_sentences import SENTENCES
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text

RISES = tuple(
    zip(
        ("typical", "transfer", "spread", "input", "forward", "backward", "optimizer", "other"),
        (30.0, 0.5, 0.25, 1.0, 27.0, 2.0, 0.0, -0.5),
        strict=True,
    )
)
SLOWER = JobSlowerMeasures(132.5, 102.0, 30.5, RISES, is_waiting=False, several_hosts=False)
NETWORK = SlowNetworkMeasures(37.25, 12.25, 25.0, 0.5, 137.0, several_hosts=True)
UNEVEN = UnevenWorkMeasures(25.5, 0.25, 0.22, 50)
HIDDEN = HiddenPaceMeasures(17.5, 50)
CHECKPOINT = NamedPauseMeasures("checkpoint", 1, 4200.0, 12600.0, 3, 1250, steps_not_compared=False)
LONG = LongStepMeasures(2100.0, 2100.0, 1, 1280)
GC = GcMeasures(37, 80.25, 380, 10.27)
JUMP = LossJumpMeasures(2.00049, 12.0, 10.125, 3, 4)
NAN = NonfiniteLossMeasures("nan", 1080, 1099, 77, (2,), (0, 1, 3), 1081, None)
OF_ALL = NonfiniteLossMeasures("inf", 1080, 1099, 80, (0, 1, 2, 3), (), None, None)

BALANCE = "balance the batches: sort or bucket samples by length, pack sequences, or balance tokens across ranks"
NAME_IT = "if this is a checkpoint or an evaluation, wrap it in `with monitor.phase(name)`"
SKIPPED = "normal now and then in mixed precision, where the gradient scaler skips such steps; see whether it recurs"


def slower(measures: JobSlowerMeasures = SLOWER, phase: str | None = None, cleared: int | None = None) -> Alert:
    found = Alert("job_slower", "info", phase=phase, since_step=1150, cost_pct=23.02, measures=measures)
    return found if cleared is None else replace(found, severity="info", cleared_at_step=cleared)


def network(measures: SlowNetworkMeasures = NETWORK) -> Alert:
    return Alert("slow_network", "warning", since_step=1150, cost_pct=18.2, measures=measures)


def hidden(*nodes: str) -> Alert:
    return Alert("straggler", "info", ranks=(3,), nodes=nodes, phase="work", cost_pct=0.0, measures=HIDDEN)


def pause(measures: Measures, *ranks: int, phase: str = "other", cost_pct: float = 2.5) -> Alert:
    return Alert("pause", "info", ranks=ranks, phase=phase, cost_pct=cost_pct, measures=measures)


def loss(measures: LossJumpMeasures | NonfiniteLossMeasures, *ranks: int) -> Alert:
    kind: KindName = "loss_jump" if isinstance(measures, LossJumpMeasures) else "nonfinite_loss"
    return Alert(kind, "warning", ranks=ranks, since_step=1200, measures=measures)


ROWS = [
    (
        "slower",
        slower(),
        "the whole run has been slower by 30.5 ms a step since step 1,150: the typical rank works longer, so that no "
        "single rank explains it. Costs 23 % of the run's time.",
        "check what all ranks share: storage, power, clocks, other jobs; or whether sequences or batches have become "
        "larger",
    ),
    (
        "slower in a phase on several hosts",
        slower(replace(SLOWER, several_hosts=True), "forward"),
        "the whole run has been slower by 30.5 ms a step since step 1,150, in forward: the typical rank works longer, "
        "so that no single rank explains it. Costs 23 % of the run's time.",
        "check what all ranks share: storage, the network, power; or whether sequences or batches have become larger",
    ),
    (
        "slower no more",
        slower(cleared=1400),
        "the whole run was slower by 30.5 ms a step from step 1,150 to 1,400: the typical rank worked longer, so that "
        "no single rank explains it. Cost 23 % of the run's time while it lasted.",
        "",
    ),
    (
        "waits longer",
        slower(replace(SLOWER, is_waiting=True)),
        "steps have taken 30.5 ms longer since step 1,150, and most of it is waiting; the typical rank does not work "
        "longer, but a different rank is late from step to step. Costs 23 % of the run's time.",
        "see in the heat map which rank is last: uneven batches and other jobs move from rank to rank",
    ),
    (
        "slow network",
        network(),
        "the gradient transfer has taken 25 ms longer a step since step 1,150, equally on all ranks: the network is "
        "slow, and durations do not show which link. Costs 18 % of the run's time.",
        "check the links between the hosts: errors, retransmits, other traffic, a port that runs at a lower speed",
    ),
    (
        "slow transfer within a host",
        network(replace(NETWORK, several_hosts=False)),
        "the gradient transfer has taken 25 ms longer a step since step 1,150, equally on all ranks: they share one "
        "host, so no network link is to blame. Costs 18 % of the run's time.",
        "check what else uses the memory bandwidth and the cores of the host, which all ranks share",
    ),
    (
        "uneven work",
        Alert("uneven_work", "info", since_step=52, cost_pct=19.96, measures=UNEVEN),
        "work is uneven: the slowest rank of a step works 25.5 ms longer than the mean, and it is a different rank "
        "from step to step. Costs 20 % of the run's time.",
        BALANCE,
    ),
    (
        "hidden pace",
        hidden("node0"),
        "rank 3 (node0) sets the pace: its GPU waits for its CPU. How much time the CPUs of the other ranks need is "
        "unknown. Fixing it saves at most 18 % of the run's time, and perhaps nothing.",
        "let all ranks synchronise now and then: loss.item() every 50 steps shows how much time their CPUs need",
    ),
    (
        "hidden pace on no known host",
        hidden(),
        "rank 3 sets the pace: its GPU waits for its CPU. How much time the CPUs of the other ranks need is unknown. "
        "Fixing it saves at most 18 % of the run's time, and perhaps nothing.",
        "let all ranks synchronise now and then: loss.item() every 50 steps shows how much time their CPUs need",
    ),
    (
        "dear checkpoints of one rank",
        pause(CHECKPOINT, 0, cost_pct=29.0),
        "checkpoint on rank 0: 4.2 s at step 1,250 (3 times, 29 % of the run's time)",
        "save less often, or in the background (torch.distributed.checkpoint.async_save)",
    ),
    (
        "cheap checkpoints",
        pause(CHECKPOINT, 0, cost_pct=4.9),
        "checkpoint on rank 0: 4.2 s at step 1,250 (3 times, 4.9 % of the run's time)",
        "",
    ),
    (
        "an evaluation of all",
        pause(NamedPauseMeasures("eval", 1024, 803.0, 803.0, 1, 290, steps_not_compared=False), cost_pct=9.0),
        "eval on 1,024 ranks: 0.8 s at step 290 (1 time, 9.0 % of the run's time)",
        "",
    ),
    (
        "a pause in most steps",
        pause(replace(CHECKPOINT, name="log", last_ms=60.0, times=150, steps_not_compared=True), 1, cost_pct=4.0),
        "log on rank 1: 0.1 s at step 1,250 (150 times, 4.0 % of the run's time; steps that contain it are not used "
        "to compare ranks)",
        "",
    ),
    (
        "an odd name",
        pause(replace(CHECKPOINT, name="\x1b[31msave\n" + "x" * 99), 0),
        f"[31msave {'x' * 30}… on rank 0: 4.2 s at step 1,250 (3 times, 2.5 % of the run's time)",
        "",
    ),
    (
        "a long step",
        pause(LONG, 2),
        "rank 2 held the others up for 2.1 s at step 1,280 (other)",
        NAME_IT,
    ),
    (
        "long steps in input",
        pause(replace(LONG, total_ms=23100.0, times=11), 5, phase="input", cost_pct=6.6),
        "rank 5 held the others up for 2.1 s at step 1,280 (input); 11 times, 6.6 % of the run's time",
        f"check the data loading of this rank: storage, shard size, DataLoader workers and their transforms; {NAME_IT}",
    ),
    (
        "a long step in backward",
        pause(LONG, 2, phase="backward"),
        "rank 2 held the others up for 2.1 s at step 1,280 (backward)",
        "check the GPU of this rank: clocks, other processes; compare sequence lengths",
    ),
    (
        "garbage collector",
        Alert("gc_pauses", "warning", ranks=(3, 0, 1), since_step=30, cost_pct=7.02, measures=GC),
        "Python's garbage collector costs 7.0 % of the run's time: pauses of 80.2 ms, one in 10 steps, mostly on "
        "ranks 0, 1, 3",
        "call gc.freeze() once the model is built; or call gc.disable(), and gc.collect() every few hundred steps at "
        "the same step on all ranks",
    ),
    (
        "a jump of one rank",
        loss(JUMP, 1),
        "the loss of rank 1 jumped from 2.000 to 12.00 at step 1,200: the losses of the other ranks did not",
        "check the data that this rank read from that step on",
    ),
    (
        "a jump of all",
        loss(JUMP),
        "the loss jumped from 2.000 to 12.00 at step 1,200: on no rank in particular",
        "check learning rate, gradient clipping and the data from that step on; restart from an older checkpoint",
    ),
    (
        "a jump of the only rank",
        loss(replace(JUMP, world_size=1)),
        "the loss jumped from 2.000 to 12.00 at step 1,200: it had been steady for many steps",
        "check learning rate, gradient clipping and the data from that step on; restart from an older checkpoint",
    ),
    (
        "not finite on one rank first",
        loss(NAN, 2),
        "the loss of rank 2 has been NaN since step 1,080; it spread through the gradients to ranks 0, 1, 3 from step "
        "1,081 on",
        "check the batch that rank 2 read at step 1,080, then restart from an earlier checkpoint",
    ),
    (
        "not finite on one rank alone",
        loss(replace(NAN, value="-inf", later_ranks=(), later_step=None), 2),
        "the loss of rank 2 has been minus infinite since step 1,080",
        "check the batch that rank 2 read at step 1,080, then restart from an earlier checkpoint",
    ),
    (
        "not finite on all at once",
        loss(OF_ALL),
        "the loss has been infinite since step 1,080 on ranks 0, 1, 2, 3: no single rank is to blame",
        "restart from a checkpoint before step 1,080; check learning rate, gradient clipping and loss scaling",
    ),
    (
        "finite again",
        loss(replace(NAN, finite_since=1100), 2),
        "the loss of rank 2 was NaN between steps 1,080 and 1,099, and has been finite again since step 1,100",
        SKIPPED,
    ),
    (
        "finite again after one step",
        loss(replace(OF_ALL, last_step=1080, finite_since=1081)),
        "the loss was infinite at step 1,080, and has been finite again since step 1,081",
        SKIPPED,
    ),
]

NETWORK_EVIDENCE = {"transfer_ms": 37.25, "normal_transfer_ms": 12.25, "spread_rise_ms": 0.5, "step_ms": 137.0}
SLOWER_EVIDENCE = {"step_ms": 132.5, "normal_step_ms": 102.0, **{f"rise_{name}_ms": rise for name, rise in RISES}}
PAUSE_EVIDENCE = {"last_ms": 4200.0, "total_ms": 12600.0, "times": 3, "last_step": 1250}
EVIDENCE = [
    (slower(), SLOWER_EVIDENCE),
    (slower(replace(SLOWER, is_waiting=True)), SLOWER_EVIDENCE),
    (network(), NETWORK_EVIDENCE),
    (
        Alert("uneven_work", "info", cost_pct=20.0, measures=UNEVEN),
        {"imbalance": 0.25, "most_often_last_share": 0.22, "window_steps": 50},
    ),
    (hidden("node0"), {"cost_most_pct": 17.5, "window_steps": 50}),
    (pause(CHECKPOINT, 0), {"name": "checkpoint", **PAUSE_EVIDENCE}),
    (pause(replace(CHECKPOINT, name="a\n" + "b" * 50), 0), {"name": f"a {'b' * 37}…", **PAUSE_EVIDENCE}),
    (pause(LONG, 2), {"last_ms": 2100.0, "total_ms": 2100.0, "times": 1, "last_step": 1280}),
    (
        Alert("gc_pauses", "info", ranks=(3,), cost_pct=2.0, measures=GC),
        {"pauses": 37, "pause_ms": 80.25, "steps": 380, "every": 10.27},
    ),
    (loss(JUMP, 1), {"before": 2.00049, "after": 12.0, "limit": 10.125, "calm_steps": 3}),
    (loss(NAN, 2), {"first_step": 1080, "last_step": 1099, "count": 77, "ranks": 4}),
]


@pytest.mark.parametrize(("alert", "summary", "advice"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_is_said(alert: Alert, summary: str, advice: str) -> None:
    told = tell(alert)
    assert (told.summary, advice_text(told.advice), told.cause) == (summary, advice, None)


@pytest.mark.parametrize(("alert", "evidence"), EVIDENCE)
def test_the_evidence_and_its_order(alert: Alert, evidence: dict[str, float | int | str]) -> None:
    assert list(tell(alert).evidence.items()) == list(evidence.items())


def test_all_measures_are_in_both_tables() -> None:
    assert {type(row[1].measures) for row in ROWS} == {type(alert.measures) for alert, _ in EVIDENCE} == {*SENTENCES}
