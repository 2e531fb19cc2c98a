"""Where a delay is seen: in its phase on the rank that has it, and as waiting on the ranks that do not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Played, Rank, play
from tests.probe.probe_stage import SLOW_S

SLOW_MS = 1000 * SLOW_S * 0.99  # the clock's and float32's rounding
HALF_MS = SLOW_MS / 2
PHASES = ("input", "forward", "backward", "optimizer", "other")
CLOSED = ("input", "forward", "backward", "optimizer")
MEETING = (
    "late_for_a_barrier",
    "late_for_a_barrier_imported_before",
    "late_for_a_sum_waited_for",
    "late_for_a_sum_in_forward",
)
SCENES = (
    *(f"slow_{phase}" for phase in PHASES),
    *(f"slow_{phase}_of_a_closure" for phase in CLOSED),
    *MEETING,
    "late_for_the_buffers",
    "evaluating",
    "named_loading",
    "loader_of_ones_own",
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("phases"), "scenes_phases", 2, watch=SCENES)


def ranks(played: Played, scene: str) -> list[Rank]:
    return played.runs[scene].ranks


@pytest.mark.parametrize("phase", PHASES)
def test_a_delay_lands_in_its_phase_on_its_rank(played: Played, phase: str) -> None:
    quick, slow = ranks(played, f"slow_{phase}")
    assert min(slow.column(phase)) >= SLOW_MS
    assert min(quick.column(phase)) < HALF_MS
    for other in set(PHASES) - {phase}:
        assert min(slow.column(other)) < HALF_MS, other


@pytest.mark.parametrize("phase", CLOSED)
def test_a_closures_phases_are_not_the_optimizers(played: Played, phase: str) -> None:
    quick, slow = ranks(played, f"slow_{phase}_of_a_closure")
    assert min(slow.column(phase)) >= SLOW_MS
    assert max(quick.column("exposed")) > HALF_MS
    for other in {*PHASES, "exposed"} - {phase}:
        assert min(slow.column(other)) < HALF_MS, other
        assert min(slow.column(other)) >= -1, other


@pytest.mark.parametrize("phase", PHASES)
def test_the_rank_without_the_delay_is_the_one_that_waits(played: Played, phase: str) -> None:
    quick, slow = ranks(played, f"slow_{phase}")
    assert max(quick.column("exposed")) > HALF_MS
    assert max(quick.column("barrier")) == 0, "DDP's own waiting is no barrier"
    assert min(slow.column("exposed")) < HALF_MS
    assert min(slow.column("work")) >= SLOW_MS
    assert min(quick.column("work")) < HALF_MS


@pytest.mark.parametrize("phase", PHASES)
def test_both_ranks_steps_take_equally_long(played: Played, phase: str) -> None:
    quick, slow = ranks(played, f"slow_{phase}")
    # A rank that the machine holds up at the end of one step has more of it, and less of the next.
    steps = zip(quick.column("duration"), slow.column("duration"), strict=True)
    assert min(abs(one - other) for one, other in steps) < HALF_MS


@pytest.mark.parametrize("scene", MEETING)
def test_waiting_in_a_collective_is_barrier_time_and_not_work(played: Played, scene: str) -> None:
    waiting, late = ranks(played, scene)
    assert max(waiting.column("barrier")) > HALF_MS
    assert min(waiting.column("work")) < HALF_MS
    assert min(waiting.column("forward")) < HALF_MS
    assert min(waiting.column("other")) > -HALF_MS, "nothing counts twice"
    assert min(late.column("barrier")) < HALF_MS
    assert min(late.column("other")) >= SLOW_MS


def test_waiting_for_rank_0s_buffers_is_barrier_time_and_not_forward(played: Played) -> None:
    late, waiting = ranks(played, "late_for_the_buffers")
    assert max(waiting.column("barrier")) > HALF_MS
    assert min(waiting.column("forward")) < HALF_MS
    assert min(late.column("other")) >= SLOW_MS


def test_a_named_phase_is_marked_and_what_is_in_it_is_not_the_steps(played: Played) -> None:
    _, slow = ranks(played, "evaluating")
    assert min(slow.column("marked")) >= SLOW_MS
    for phase in PHASES:
        assert min(slow.column(phase)) < HALF_MS, phase
    marks = {mark.step: mark for mark in slow.frame.marks}
    assert all(marks[step].name == "eval" and marks[step].ms >= SLOW_MS for step in (1, 2, 3))


def test_loading_that_is_named_input_counts_once(played: Played) -> None:
    _, slow = ranks(played, "named_loading")
    assert min(slow.column("input")) >= SLOW_MS
    assert min(slow.column("other")) > -HALF_MS


def test_a_loader_of_ones_own_counts_as_input(played: Played) -> None:
    quick, slow = ranks(played, "loader_of_ones_own")
    assert min(slow.column("input")) >= SLOW_MS
    assert min(slow.column("other")) < HALF_MS
    assert min(quick.column("input")) < HALF_MS
    assert slow.frame.marks == []


def test_a_monitor_is_a_no_op_after_detach(played: Played) -> None:
    assert [rank.notes for rank in ranks(played, "loader_of_ones_own")] == [{"enabled": False, "alive": True}] * 2


def test_runs_one_after_the_other_in_the_same_processes_are_runs_of_their_own(played: Played) -> None:
    runs = list(played.runs.values())
    assert len({seen.info.run_id for seen in runs}) == len(SCENES)
    assert len({tuple(rank.frame.pid for rank in seen.ranks) for seen in runs}) == 1
    assert all(min(rank.steps) == 0 for seen in runs for rank in seen.ranks)


def test_the_run_describes_itself(played: Played) -> None:
    info = played.runs["slow_input"].info
    assert (info.name, info.world_size, info.backend, info.device) == ("slow_input", 2, "gloo", "cpu")
    assert info.parameters == 2 * (8 * 8 + 8)
    assert info.gradient_bytes == 4 * info.parameters
    assert not info.bucket_detail
    quick, _ = ranks(played, "slow_input")
    assert set(quick.column("samples")) == {1.0}
    assert not quick.of_device
