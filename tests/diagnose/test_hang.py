"""Hangs: who is named, from silence, flight recorders and phases; and what is only a pause."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.hang import (
    MismatchMeasures,
    SilentMeasures,
    StuckMeasures,
    UnattributedMeasures,
    Waiters,
    find_hang,
)
from ddpmon.diagnose.pause import OngoingPauseMeasures, UnsynchronisedMeasures
from ddpmon.diagnose.rank_position import own_line
from ddpmon.diagnose.stall_state import Collective
from ddpmon.parts import Flight, Stack, StackFrame, Stall
from ddpmon.report.sentences import tell
from ddpmon.run.model import Run
from tests.diagnose.measured import hang, measured, only, waiting
from tests.made_frames import columns, mark, rank_frame, run_info, tick

STEPS = columns(range(100, 121), {"duration": [100.0] * 21})
SLEEP = [
    StackFrame("/home/me/train.py", 40, "main", "for batch in loader:"),
    StackFrame("/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 700, "__next__", own=False),
    StackFrame("/home/me/data.py", 88, "__getitem__", "time.sleep(1e9)"),
    StackFrame("/usr/lib/python3.11/random.py", 5, "wait", own=False),
]
REDUCTION = Collective("gloo:all_reduce [1000]", "exposed")


def stall(seconds: float = 15.0, *flights: Flight, frames: list[StackFrame] | None = None) -> Stall:
    return Stall(seconds, [Stack("MainThread", frames)] if frames else [], list(flights))


def flight(enqueued: int, completed: int = -1, operation: str = "gloo:all_reduce [1000]", group: str = "0") -> Flight:
    return Flight(group, enqueued, completed, operation)


def waiter(*flights: Flight, phase: str = "exposed", **changes: Any) -> dict[str, Any]:
    return {"state": "stalled", "phase": phase, "phase_s": 15.0, "stall": stall(15.0, *flights)} | changes


def stuck(phase: str = "input", *flights: Flight, **changes: Any) -> dict[str, Any]:
    values = {"state": "stalled", "phase": phase, "phase_s": 15.0, "stall": stall(15.0, *flights, frames=SLEEP)}
    return values | changes


def judge(*ranks: dict[str, Any] | None, silent: dict[int, float] | None = None, marks: Any = ()) -> list[Alert]:
    """The alerts on ranks that say this; None is a rank never heard of."""
    run = Run(run_info(len(ranks)))
    for rank, says in enumerate(ranks):
        if says is not None:
            if marks:
                run.add_rank(rank_frame(rank, 1, STEPS, marks=list(marks)), 0.0)
            frame = rank_frame(rank, 20, says.get("steps", STEPS), **{k: v for k, v in says.items() if k != "steps"})
            run.add_rank(frame, 100.0, (silent or {}).get(rank, 0.0))
    return find_hang(tick(run, run.ages(100.0)), ())


def test_a_rank_stuck_in_the_dataset_is_named_with_its_stack_line() -> None:
    alert = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32)), stuck("input", flight(32, 32)), waiter()))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("hang", "critical", (2,), "input")
    assert alert.since_step == 121
    measures = measured(alert, MismatchMeasures)
    assert (measures.line, measures.hang.shown.stack) == (SLEEP[2], tuple(SLEEP))
    assert (measures.mismatch.absent, measures.mismatch.others) == (True, (0, 1))
    assert measures.mismatch.collective.operation == "gloo:all_reduce [1000]"
    assert waiting(alert) == (0, 1, 3)


def test_without_flight_recorders_the_phases_tell() -> None:
    alert = only(judge(waiter(), stuck("forward", host="gpu-7", pid=2001), waiter(phase="barrier"), waiter()))
    assert (hang(alert).shown.host, hang(alert).shown.pid, alert.nodes) == ("gpu-7", 2001, ("gpu-7",))
    assert (alert.kind, alert.ranks, alert.phase) == ("hang", (1,), "forward")
    assert measured(alert, StuckMeasures).hang.waiters == Waiters((0, 2, 3), Collective(phase="exposed"))


def test_a_job_that_steps_does_not_hang() -> None:
    healthy = {"state": "running", "phase": "exposed", "phase_s": 0.1}
    assert judge(healthy, healthy) == []
    assert judge(waiter(), waiter()) != []
    went_on = columns(range(100, 122), {"duration": [100.0] * 22})
    assert judge(waiter(), healthy | {"steps": went_on}, healthy | {"steps": went_on}) == []


def test_a_long_step_is_not_a_hang_where_steps_are_long() -> None:
    slow = columns(range(10), {"duration": [5000.0] * 10})
    waits = {"state": "running", "phase": "exposed", "phase_s": 20.0}
    assert judge(waits | {"steps": slow}, {"phase": "forward", "phase_s": 20.0, "steps": slow}) == []
    assert judge(waits, {"phase": "forward", "phase_s": 20.0}) != []


def test_the_rank_in_another_operation_took_another_path() -> None:
    other = flight(33, 32, "gloo:barrier")
    alert = only(judge(*[waiter(flight(33, 32))] * 2, waiter(other, phase="barrier"), waiter(flight(33, 32))))
    mismatch = measured(alert, MismatchMeasures).mismatch
    assert alert.ranks == mismatch.ranks == (2,)
    assert (mismatch.absent, mismatch.certain, mismatch.theirs.operation) == (False, True, "gloo:barrier")


def test_the_rank_that_left_a_collective_out_is_named_though_it_is_ahead() -> None:
    ahead = waiter(flight(34, 32))
    alert = only(judge(*[waiter(flight(33, 32, "gloo:barrier"), phase="barrier")] * 3, ahead))
    mismatch = measured(alert, MismatchMeasures).mismatch
    assert (alert.ranks, mismatch.absent, mismatch.certain) == ((3,), False, True)


def test_a_gather_has_other_sizes_at_its_root() -> None:
    root = waiter(flight(33, 32, "gloo:gather [4, 100]"))
    alert = only(judge(root, *[waiter(flight(33, 32, "gloo:gather [100]"))] * 3))
    assert (alert.ranks, waiting(alert)) == ((), (0, 1, 2, 3))
    measured(alert, UnattributedMeasures)


def test_two_ranks_that_disagree_are_both_told_of_and_neither_blamed() -> None:
    alert = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32, "gloo:barrier"), phase="barrier")))
    mismatch = measured(alert, MismatchMeasures).mismatch
    operations = {mismatch.collective.operation, mismatch.theirs.operation}
    assert operations == {"gloo:all_reduce [1000]", "gloo:barrier"}
    assert (alert.ranks, mismatch.certain) == ((), False)


def test_of_two_ranks_the_one_that_does_not_wait_is_named() -> None:
    found = judge(stuck("forward", flight(33, 33, "gloo:barrier")), waiter(flight(33, 32)))
    assert only(found).ranks == (0,)


def test_a_rank_that_waits_in_a_subgroup_is_not_blamed_for_the_one_that_is_stuck() -> None:
    near = waiter(flight(32, 32), flight(5, 4, "gloo:broadcast", "sub"))
    alert = only(judge(*[waiter(flight(33, 32))] * 2, near, stuck("other", flight(32, 32), flight(4, 4, "", "sub"))))
    assert alert.ranks == (3,)


def test_when_all_wait_in_the_same_collective_nobody_is_named() -> None:
    alert = only(judge(*[waiter(flight(33, 32))] * 4))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", ())
    assert (measured(alert, UnattributedMeasures).absent, hang(alert).backend) == (0, "gloo")
    assert hang(alert).waiters == Waiters((0, 1, 2, 3), REDUCTION)


def test_when_all_compute_nobody_is_named() -> None:
    alert = only(judge(*[stuck("forward")] * 4))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", ())
    measures = measured(alert, UnattributedMeasures)
    assert (measures.phases, measures.absent, waiting(alert)) == ((("forward", 4),), 0, ())


def test_a_silent_rank_is_the_one() -> None:
    frame = {"state": "running", "phase": "backward", "phase_s": 0.1}
    alert = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32)), frame, silent={2: 6.0}))
    assert (alert.kind, alert.ranks, alert.phase) == ("hang", (2,), "backward")
    assert measured(alert, SilentMeasures).hang.waiters == Waiters((0, 1), REDUCTION)


def test_beside_a_lost_or_failed_rank_there_is_nothing_to_add() -> None:
    frame = {"state": "running", "phase": "backward", "phase_s": 0.1}
    assert judge(waiter(), waiter(), frame, silent={2: 30.0}) == []
    assert judge(waiter(), waiter(), {"state": "failed", "phase": "input"}) == []


@pytest.mark.parametrize(("step_ms", "behind"), [(93.0, 20), (10.0, 150)])
def test_what_a_silent_rank_did_after_its_last_word_is_allowed_for(step_ms: float, behind: int) -> None:
    took = [30_000.0] + [step_ms] * 299  # the first step is as long as it likes
    before = {"steps": columns(range(300 - behind), {"duration": took[: 300 - behind]}), "phase_s": 0.1}
    waits = waiter(flight(33, 32), steps=columns(range(300), {"duration": took}))
    alert = only(judge(waits, before, waits, silent={1: 6.0}))
    assert (alert.kind, alert.ranks) == ("hang", (1,))
    assert judge(waits, before, waits, silent={1: 12.0}) == []  # as a lost rank it is spoken of elsewhere


@pytest.mark.parametrize(("writer", "named"), [(0, (1,)), (-1, ())])
def test_a_watcher_that_comes_late_allows_for_the_host_frames_that_it_cannot_read(
    writer: int, named: tuple[int, ...]
) -> None:
    """It called nobody to blame where a stopped rank was 45 steps of 70 ms behind in its last whole frame."""
    steps, fewer = (columns(range(end), {"duration": [70.0] * end}) for end in (300, 255))
    waits = waiter(flight(33, 32), steps=steps)
    (alert,) = judge(waits, {"steps": fewer, "phase_s": 0.1, "writer": writer}, waits, silent={1: 6.0})
    assert (alert.kind, alert.ranks) == ("hang", named)


def test_a_rank_lost_long_ago_does_not_hide_a_hang() -> None:
    old = {"state": "running", "steps": columns([50], {"duration": [1.0]})}
    assert only(judge(waiter(), stuck(), old, silent={2: 300.0})).ranks == (1,)


def test_the_first_step_may_take_its_time() -> None:
    none = columns([], {})
    first = {"steps": none, "step": -1}
    alert = only(judge(waiter() | first, stuck("forward") | first))
    assert (alert.kind, alert.severity, alert.since_step) == ("hang", "info", 0)
    assert hang(alert).is_first_step
    late = {"stall": stall(400.0)} | first
    assert only(judge(waiter() | late, stuck("forward") | late)).severity == "critical"


def test_a_checkpoint_is_a_pause_until_it_takes_far_too_long() -> None:
    def saving(seconds: float) -> dict[str, Any]:
        return {"state": "running", "phase": "checkpoint", "phase_s": seconds}

    alert = only(judge(saving(45.0), waiter(), waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (0,))
    pause = measured(alert, OngoingPauseMeasures)
    assert (pause.activity, pause.ranks, pause.shown.phase, pause.seconds) == ("named_phase", (0,), "checkpoint", 45.0)
    assert pause.waiting == (1, 2, 3)
    assert only(judge(saving(100.0), waiter())).kind == "hang"
    assert only(judge(saving(100.0), waiter())).severity == "warning"
    assert only(judge(saving(700.0), waiter())).severity == "critical"
    earlier = [mark(110, "checkpoint", 30_000.0)]
    assert only(judge(saving(100.0), waiter(), marks=earlier)).kind == "pause"


def test_a_rank_stuck_beside_one_in_a_named_phase_is_named() -> None:
    saving = {"state": "running", "phase": "checkpoint", "phase_s": 15.0}
    alert = only(judge(saving, stuck("input"), waiter(), waiter()))
    assert (alert.kind, alert.ranks) == ("hang", (1,))


def test_ranks_that_wait_inside_a_named_phase_wait_too() -> None:
    evaluating = {"state": "running", "phase": "eval", "phase_s": 30.0}
    alert = only(judge(evaluating, {"state": "running", "phase": "barrier", "phase_s": 20.0}))
    assert (alert.kind, alert.ranks) == ("pause", (0,))


def test_an_evaluation_that_nobody_named_is_no_hang() -> None:
    moving = {"state": "stalled", "phase": "input", "phase_s": 0.2, "stall": stall(30.0)}
    alert = only(judge(moving, moving))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", ())
    alert = only(judge(moving, waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (0,))
    saving = {"state": "stalled", "phase": "other", "phase_s": 30.0, "stall": stall(30.0)}
    assert only(judge(saving, saving)).severity == "info"


def test_a_rank_that_gets_on_while_others_wait_evaluates_or_saves_until_it_takes_too_long() -> None:
    """Nobody named it, and it enters no phase: its stack moves, or it writes."""
    evaluates = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), moves=True)}
    saves = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), write_bytes_s=250e6)}
    for rank in (evaluates, saves):
        alert = only(judge(rank, waiter(), waiter()))
        assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (0,))
        assert own_line(measured(alert, OngoingPauseMeasures).shown.stack) == SLEEP[2]
    assert measured(alert, OngoingPauseMeasures).write_bytes_s == 250e6
    long = evaluates | {"phase_s": 70.0, "stall": replace(evaluates["stall"], seconds=70.0)}
    alert = only(judge(long, waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "warning", (0,))
    pause = measured(alert, OngoingPauseMeasures)
    assert (pause.activity, pause.stack_moves, pause.waiting, pause.shown.pid) == ("unnamed", True, (1, 2), 100)
    in_a_phase = evaluates | {"phase": "forward"}
    assert only(judge(in_a_phase, waiter(), waiter())).severity == "critical"
    logs = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), write_bytes_s=1e6)}
    assert only(judge(logs, waiter(), waiter())).severity == "critical"


GETS_ON = [
    stuck("other") | {"stall": replace(stall(15.0), write_bytes_s=250e6)},
    stuck("other") | {"stall": replace(stall(15.0), moves=True)},
    {"state": "stalled", "phase": "input", "phase_s": 0.2, "stall": stall(15.0)},
]


def later(seconds: float, says: dict[str, Any]) -> dict[str, Any]:
    """The same after so many seconds of silence."""
    return says | {
        "phase_s": min(says["phase_s"], 1.0) if says["phase_s"] < 10 else seconds,
        "stall": replace(says["stall"], seconds=seconds),
    }


@pytest.mark.parametrize("innocent", GETS_ON)
def test_who_gets_on_is_not_blamed_beside_who_is_stuck(innocent: dict[str, Any]) -> None:
    alert = only(judge(innocent, stuck("input"), waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (1,))
    assert measured(alert, StuckMeasures).line == SLEEP[2]


@pytest.mark.parametrize("innocent", GETS_ON)
def test_who_is_between_the_phases_may_wait_for_one_that_gets_on_but_not_for_ever(innocent: dict[str, Any]) -> None:
    alert = only(judge(innocent, stuck("other"), waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (0,))
    alert = only(judge(*(later(70.0, says) for says in (innocent, stuck("other"), waiter(), waiter()))))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (1,))


@pytest.mark.parametrize("seconds", [70.0, 700.0])
def test_who_goes_from_phase_to_phase_for_ever_while_others_wait_is_told_of(seconds: float) -> None:
    """It skips every batch, say; or it evaluates a model that it should not."""
    alert = only(judge(later(seconds, GETS_ON[2]), later(seconds, waiter()), later(seconds, waiter())))
    assert (alert.kind, alert.ranks) == ("hang", (0,))
    assert alert.severity == ("warning" if seconds < 600 else "critical")
    comes_again = later(seconds, waiter(phase="barrier", phase_s=3.0))
    alert = only(judge(comes_again, later(seconds, waiter()), later(seconds, waiter())))
    assert (alert.kind, alert.severity) == ("hang", "critical")
    before = {"steps": columns([], {})}
    says = [before | later(seconds, each) for each in (GETS_ON[2], waiter(), waiter())]
    assert only(judge(*says)).severity == ("info" if seconds < 300 else "critical")


def test_who_has_just_come_back_is_not_stuck_whatever_its_older_stack_and_collectives_say() -> None:
    back = waiter(flight(32, 32), phase_s=0.4, stall=stall(17.0, flight(32, 32), frames=SLEEP))
    ahead = waiter(flight(33, 32), phase_s=17.0, stall=stall(17.0, flight(33, 32)))
    assert judge(back, ahead, ahead) == []
    assert judge(back, waiter(phase_s=17.0), waiter(phase_s=17.0)) == []
    assert only(judge(back | {"phase_s": 6.5}, ahead, ahead)).ranks == (0,)


@pytest.mark.parametrize("phase", ["other", "forward"])
def test_a_rank_is_not_named_before_it_has_told_where_it_is_and_whether_it_gets_on(phase: str) -> None:
    untold = {"state": "running", "phase": phase, "phase_s": 9.9}
    soon = waiter(stall=stall(10.2))
    assert judge(untold, soon, soon) == []
    assert judge(untold, waiter(stall=None, phase_s=10.2), waiter(stall=None, phase_s=10.2)) == []
    assert only(judge(untold, waiter(stall=stall(16.0)), soon)).ranks == (0,)


@pytest.mark.parametrize("step", [-1, 120])
@pytest.mark.parametrize("phases", [("forward", "backward"), ("backward", "backward"), ("barrier", "barrier")])
def test_ranks_that_go_through_their_phases_without_a_reduction_do_not_hang(step: int, phases: tuple[str, str]) -> None:
    """Gradient accumulation for minutes, or `no_sync` for good with parameters that are averaged by hand."""
    own = {"steps": columns([], {})} if step < 0 else {}
    says = [own | {"state": "stalled", "phase": phase, "phase_s": 0.4, "stall": stall(400.0)} for phase in phases]
    alert = only(judge(*says))
    assert (alert.kind, alert.severity, alert.ranks, alert.since_step) == ("pause", "info", (), step + 1)
    measures = measured(alert, UnsynchronisedMeasures)
    assert (measures.ranks, measures.are_all, set(measures.phases)) == ((0, 1), True, {*phases})
    stopped = only(judge(says[0], says[1] | {"phase_s": 30.0}))
    assert (stopped.kind, stopped.severity) == ("hang", "critical")


def test_work_after_the_last_step_is_no_hang() -> None:
    alert = only(judge(stuck("forward"), {"state": "finished"}, {"state": "finished"}))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (0,))
    assert measured(alert, OngoingPauseMeasures).others_finished


def test_foreign_text_comes_in_harmless() -> None:
    evil = [StackFrame("/x/\x1b[31mdata.py", 1, "f\n" + "y" * 200, "\x07z" * 300)]
    alert = tell(only(judge(waiter(), stuck("\x1b]0;forward") | {"stall": stall(15.0, frames=evil)})))
    assert alert.summary.isprintable()
    assert len(alert.summary) < 600


def test_a_host_that_blocks_behind_a_queued_reduction_waits() -> None:
    queued = {"phase": "other", "gpu_uuid": "GPU-a", "stall": stall(15.0, flight(33, 32, "nccl:all_reduce"))}
    alert = only(judge(waiter() | queued, waiter() | queued, stuck("input"), waiter() | queued))
    assert (alert.kind, alert.ranks, waiting(alert)) == ("hang", (2,), (0, 1, 3))
    alert = only(judge(*[waiter() | queued] * 4))
    assert (alert.kind, alert.ranks) == ("hang", ())


def test_a_recorder_that_has_not_noticed_the_end_of_a_collective_is_not_believed() -> None:
    late = flight(242, 241, "gloo:all_reduce [41216]")  # Gloo: the others could not have gone on without it
    ahead = waiter(flight(246, 242, "gloo:all_reduce [41216]"))
    alert = only(judge(ahead, stuck("input", late), ahead))
    assert (alert.ranks, alert.phase, waiting(alert)) == ((1,), "input", (0, 2))
    measures = measured(alert, MismatchMeasures)
    assert (measures.hang.seconds, measures.hang.shown.phase, measures.line) == (15.0, "input", SLEEP[2])
    assert (measures.mismatch.absent, measures.mismatch.others) == (True, (0, 2))
    assert only(judge(ahead, stuck("input", late))).ranks == (1,)


def test_a_rank_stuck_between_the_phases_is_named_while_others_wait_for_it() -> None:
    alert = only(judge(stuck("other"), waiter(), waiter()))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("hang", "critical", (0,), "other")


def test_what_a_silent_rank_said_last_does_not_stop_the_job() -> None:
    runs = {"state": "running", "phase": "forward", "phase_s": 0.1}
    assert judge(runs, waiter(), silent={1: 6.0}) == []


def test_before_the_first_step_nothing_is_called_a_pause() -> None:
    first = {"steps": columns([], {}), "step": -1, "state": "stalled", "phase": "other", "phase_s": 15.0}
    alert = only(judge(first, first))
    assert (alert.kind, alert.severity) == ("hang", "info")


def test_without_flight_recorders_the_phase_tells_who_waits_elsewhere() -> None:
    alert = only(judge(waiter(), waiter(), waiter(phase="barrier"), waiter()))
    mismatch = measured(alert, MismatchMeasures).mismatch
    assert (alert.ranks, mismatch.ranks, mismatch.others) == ((2,), (2,), (0, 1, 3))
    assert (mismatch.theirs, mismatch.collective) == (Collective(phase="barrier"), Collective(phase="exposed"))
    alert = only(judge(waiter(), waiter(phase="barrier")))
    assert (alert.ranks, measured(alert, MismatchMeasures).mismatch.certain) == ((), False)


def test_nobody_is_not_said_to_be_in_particular_before_all_have_told_where_they_stand() -> None:
    early = [waiter(flight(10, 9), stall=stall(11.0, flight(10, 9))) for _ in range(3)]
    untold = waiter(stall=None, state="running", phase_s=9.0)
    assert judge(*early, untold) == []
    assert only(judge(*early, {**early[0]})).ranks == ()
    late = [waiter(flight(10, 9), stall=stall(16.0, flight(10, 9))) for _ in range(3)]
    assert only(judge(*late, untold)).kind == "hang"
