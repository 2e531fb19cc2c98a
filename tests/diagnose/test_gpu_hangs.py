"""Hangs where hosts run ahead of their GPUs: who is named, by how far the GPUs have come, with and without recorder."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.hang import StuckMeasures, UnattributedMeasures, Waiters
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.stall_state import Collective
from ddpmon.parts import NO_ANSWER, Flight, StackFrame
from ddpmon.run.model import Run
from tests.diagnose.measured import hang, measured, only, waiting
from tests.diagnose.test_hang import SLEEP, STEPS, flight, judge, stall
from tests.made_frames import columns, rank_frame, run_info

RANKS = 8
ITEM = [StackFrame("/home/me/train.py", 60, "main", "print(loss.item())")]
QUEUED = flight(33, 32, "nccl:all_reduce [1000]")
NEVER = flight(32, 32, "nccl:all_reduce [1000]")
NO_STEPS = columns([], {})


def gpu(*flights: Flight, host: str = "other", device: str = "", error: str = "", **changes: Any) -> dict[str, Any]:
    """A rank on a GPU that finishes no step: its host blocks in `host`, its GPU has come to `device`."""
    frames = changes.pop("frames", ITEM)
    told = replace(stall(20.0, *flights, frames=frames), device_phase=device, device_error=error)
    told = replace(told, **changes.pop("told", {}))
    says = {"state": "stalled", "phase": host, "phase_s": 20.0, "gpu_uuid": "GPU-1", "stall": told, "step": 120}
    return says | changes


def ranks(one: dict[str, Any], others: dict[str, Any], number: int = 3) -> list[dict[str, Any]]:
    """Rank `number` of eight is `one`, the rest are `others`."""
    return [one if rank == number else others for rank in range(RANKS)]


VICTIM = gpu(QUEUED, device="exposed")


@pytest.mark.parametrize("recorded", [(QUEUED,), ()])
@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer", "other"])
def test_a_stuck_gpu_is_named_though_all_hosts_have_queued_the_reduction(
    recorded: tuple[Flight, ...], phase: str
) -> None:
    victim = gpu(*recorded, device="exposed")
    alert = only(judge(*ranks(gpu(*recorded, host="barrier", device=phase), victim)))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("hang", "critical", (3,), phase)
    measures = measured(alert, StuckMeasures)
    shown = measures.hang.shown
    assert (shown.device, shown.device_phase, shown.phase) == ("stuck", phase, "barrier")
    assert (measures.line, measures.hang.seconds, measures.is_alone) == (ITEM[0], 20.0, False)
    assert waiting(alert) == (0, 1, 2, 4, 5, 6, 7)


def test_a_stuck_gpu_is_no_pause_whatever_its_host_is_at() -> None:
    """Its host waits in an evaluation, or has a checkpoint written in the background."""
    for host, told in (("eval", {}), ("other", {"write_bytes_s": 250e6}), ("other", {"moves": True})):
        alert = only(judge(*ranks(gpu(QUEUED, host=host, device="forward", told=told), VICTIM)))
        assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (3,))


def test_a_stuck_gpu_is_named_beside_a_rank_that_evaluates() -> None:
    found = ranks(gpu(QUEUED, device="forward"), VICTIM)
    found[5] = gpu(device="other", told={"moves": True}, frames=SLEEP)
    alert = only(judge(*found))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (3,))


def test_a_gpu_whose_host_is_in_a_named_phase_and_that_has_done_all_its_work_is_not_stuck() -> None:
    alert = only(judge(*ranks(gpu(host="eval", device="eval", state="running"), VICTIM)))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))


def test_a_stuck_gpu_whose_host_blocks_in_backward_has_taken_no_other_path() -> None:
    """The launch queue is full before its last two buckets: it has entered fewer reductions, and waits in one."""
    early = gpu(flight(31, 30, "nccl:all_reduce [500]"), host="backward", device="forward")
    alert = only(judge(*ranks(early, VICTIM)))
    shown = measured(alert, StuckMeasures).hang.shown
    assert (alert.ranks, shown.device, shown.device_phase, shown.phase) == ((3,), "stuck", "forward", "backward")


def test_a_gpu_that_cannot_go_on_is_named_with_its_error() -> None:
    alert = only(judge(*ranks(gpu(QUEUED, error="700 (illegal memory access)"), gpu(QUEUED))))
    assert (alert.kind, alert.ranks) == ("hang", (3,))
    shown = measured(alert, StuckMeasures).hang.shown
    assert (shown.device, shown.device_error) == ("broken", "700 (illegal memory access)")


def test_the_one_gpu_that_does_not_answer_is_named_if_all_others_wait() -> None:
    silent = gpu(QUEUED, error=NO_ANSWER)
    alert = only(judge(*ranks(silent, VICTIM)))
    assert (alert.ranks, measured(alert, StuckMeasures).hang.shown.device) == ((3,), "no_answer")
    found = ranks(silent, VICTIM)
    found[5] = gpu(QUEUED, device="forward")
    assert only(judge(*found)).ranks == (5,), "a driver may block on a victim, too"


def test_a_lost_network_names_nobody() -> None:
    alert = only(judge(*[VICTIM] * RANKS))
    assert (alert.ranks, alert.severity) == ((), "critical")
    assert measured(alert, UnattributedMeasures).absent == 0
    assert hang(alert).waiters == Waiters((*range(8),), Collective("nccl:all_reduce [1000]", "exposed"))


def test_gpus_that_are_all_in_one_phase_name_nobody_and_are_told_of() -> None:
    """A kernel that does not end, or a collective in forward that has no marks."""
    alert = only(judge(*[gpu(QUEUED, device="forward")] * RANKS))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", ())
    assert measured(alert, UnattributedMeasures).device_phases == (("forward", 8),)
    assert waiting(alert) == (*range(8),)
    alert = only(judge(*[gpu(device="forward")] * RANKS))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", ())


def test_a_single_gpu_that_is_stuck_is_named() -> None:
    alert = only(judge(gpu(QUEUED, device="backward")))
    assert (alert.kind, alert.ranks, alert.phase) == ("hang", (0,), "backward")
    assert measured(alert, StuckMeasures).is_alone


@pytest.mark.parametrize("device", ["", "exposed"])
@pytest.mark.parametrize("host", ["input", "other"])
def test_a_host_stuck_at_an_earlier_step_is_named_without_a_recorder(host: str, device: str) -> None:
    own = host if device else ""
    alert = only(judge(*ranks(gpu(host=host, device=own, step=119, frames=SLEEP), gpu(device=device))))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("hang", "critical", (3,), host)
    assert (measured(alert, StuckMeasures).line, len(waiting(alert))) == (SLEEP[2], 7)


def test_a_host_that_ran_ahead_is_not_behind_where_the_gpus_tell() -> None:
    """Rank 0 logs its loss at step 120 and blocks there; the others have queued a step more. Rank 3's GPU is stuck."""
    ahead = gpu(device="exposed", step=121)
    found = ranks(gpu(device="forward", step=121), ahead)
    found[0] = gpu(device="exposed", step=120)
    assert only(judge(*found)).ranks == (3,)


def test_hosts_at_one_step_without_a_recorder_tell_nothing() -> None:
    alert = only(judge(*[gpu()] * RANKS))
    assert (alert.kind, alert.ranks) == ("pause", ())


def test_a_rank_that_evaluates_is_a_pause_with_the_recorder_off() -> None:
    evaluates = gpu(device="other", told={"moves": True}, frames=SLEEP)
    alert = only(judge(*ranks(evaluates, gpu(device="exposed"))))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))


@pytest.mark.parametrize("age", [6.0, 15.0, 40.0])
@pytest.mark.parametrize("how", ["recorder", "device", "steps"])
def test_a_silent_victim_is_not_named_instead_of_the_culprit(age: float, how: str) -> None:
    """Its interpreter is held, such as by a query that hangs in the driver; rank 3 is stuck in its data."""
    recorded = how == "recorder"
    culprit = gpu(*[NEVER] * recorded, host="input", step=119, frames=SLEEP, device="input" if how == "device" else "")
    found = ranks(culprit, gpu(*[QUEUED] * recorded, device="exposed" if how == "device" else ""))
    found[5] = found[0] | {"stall": None, "state": "running"}
    alert = only(judge(*found, silent={5: age}))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("hang", "critical", (3,), "input")
    run = Run(run_info(RANKS))
    for rank, says in enumerate(found):
        run.add_rank(rank_frame(rank, 20, STEPS, **says), 100.0, age if rank == 5 else 0.0)
    kinds = [alert.kind for alert in Judge()(run, run.ages(100.0)) if alert.severity == "critical"]
    assert kinds == ["hang", *["rank_lost"] * (age > 10)]


@pytest.mark.parametrize("age", [6.0, 40.0])
def test_a_silent_rank_that_the_gpus_of_all_others_wait_for_is_the_one(age: float) -> None:
    found = ranks(gpu(step=120, state="running", stall=None), VICTIM)
    found[0] = gpu(QUEUED, device="exposed", step=121)
    verdict = [alert.ranks for alert in judge(*found, silent={3: age})]
    assert verdict == ([(3,)] if age < 10 else []), "as a lost rank it is spoken of elsewhere"


def test_a_mismatch_that_a_silent_rank_may_have_caused_does_not_beat_its_silence() -> None:
    """It sent its part of the 33rd reduction to rank 0 alone, and rank 0 has entered the next one."""
    waits = {"state": "stalled", "phase": "exposed", "phase_s": 15.0}
    ahead, behind = (waits | {"stall": stall(15.0, flight(number, 32))} for number in (34, 33))
    lost = {"state": "running", "phase": "backward", "phase_s": 0.1}
    assert only(judge(ahead, behind, behind, lost, silent={3: 6.0})).ranks == (3,)


def test_on_cpus_a_certain_mismatch_beats_silence_and_phases_alone_do_not() -> None:
    waits = {"state": "stalled", "phase": "exposed", "phase_s": 15.0}
    silent = {"state": "running", "phase": "backward", "phase_s": 0.1}
    stuck = waits | {"phase": "input", "stall": stall(15.0, frames=SLEEP)}
    told = waits | {"stall": stall(15.0)}
    assert only(judge(told, stuck, silent, silent={2: 6.0})).ranks == (2,)
    told = waits | {"stall": stall(15.0, flight(33, 32))}
    stuck = stuck | {"stall": stall(15.0, flight(32, 32), frames=SLEEP)}
    for age in (6.0, 40.0):
        assert only(judge(told, stuck, silent, silent={2: age})).ranks == (1,)


def test_a_mismatch_is_not_spoken_of_beside_a_rank_that_has_failed() -> None:
    waits = {"state": "stalled", "phase": "exposed", "phase_s": 15.0}
    told = waits | {"stall": stall(15.0, flight(33, 32))}
    stuck = waits | {"phase": "input", "stall": stall(15.0, flight(32, 32), frames=SLEEP)}
    silent = {"state": "running", "phase": "backward", "phase_s": 0.1}
    assert judge(told, stuck, silent, {"state": "failed", "phase": "input"}, silent={2: 6.0}) == []


@pytest.mark.parametrize("age", [6.0, 40.0])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_silent_rank_beside_one_that_saves_and_that_the_others_wait_for_makes_no_hang(
    age: float, recorded: bool
) -> None:
    saves = gpu(*[NEVER] * recorded, host="checkpoint", device="checkpoint", state="running", phase_s=15.0)
    found = ranks(saves, gpu(*[QUEUED] * recorded, device="exposed"))
    found[5] = found[0] | {"stall": None, "state": "running"}
    alert = only(judge(*found, silent={5: age}))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))


@pytest.mark.parametrize("device", ["banana", "\x1b[31m", "EXPOSED", "start" * 50])
def test_a_phase_that_no_gpu_can_be_in_tells_nothing(device: str) -> None:
    alert = only(judge(*ranks(gpu(QUEUED, device=device), VICTIM)))
    assert alert.ranks == (), "its recorder says that it waits"
    assert only(judge(*[gpu(QUEUED, device=device)] * RANKS)) == only(judge(*[gpu(QUEUED)] * RANKS))


def test_what_a_rank_without_a_gpu_says_of_one_is_not_believed() -> None:
    says, told = {"state": "stalled", "phase": "exposed", "phase_s": 15.0}, stall(15.0, flight(33, 32))
    honest = says | {"stall": told}
    odd = says | {"stall": replace(told, device_phase="forward", device_error="700", graph_replay_s=1.0)}
    assert only(judge(honest, odd, honest)) == only(judge(honest, honest, honest))


def test_a_gpu_that_says_nothing_is_not_blamed_beside_one_that_is_known_to_be_stuck() -> None:
    found = ranks(gpu(device="forward"), gpu(device="exposed"))
    found[5] = gpu()
    alert = only(judge(*found))
    assert (alert.ranks, len(waiting(alert))) == ((3,), 6)


@pytest.mark.parametrize(("hosts", "severity"), [(1, "critical"), (100, "info")])
def test_the_first_step_may_take_longer_on_many_hosts(hosts: int, severity: str) -> None:
    late = gpu(QUEUED, device="exposed", phase_s=400.0, step=-1, told={"seconds": 400.0})
    run = Run(run_info(RANKS * hosts, node_keys=list(range(hosts))))
    for rank in range(RANKS):
        run.add_rank(rank_frame(rank, 20, NO_STEPS, **late), 100.0)
    (alert,) = [found for found in Judge()(run, run.ages(100.0)) if found.kind == "hang"]
    assert alert.severity == severity
