"""Uneven inputs: a rank whose data has ended."""

from __future__ import annotations

from typing import Any

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.hang import find_hang
from ddpmon.diagnose.uneven_inputs import LeftBehindMeasures, UnevenInputsMeasures
from ddpmon.parts import Flight, Loader, Stall
from ddpmon.run.model import Run
from tests.diagnose.measured import measured
from tests.made_frames import columns, rank_frame, run_info, tick

WAITS: dict[str, Any] = {"state": "stalled", "phase": "exposed", "phase_s": 15.0, "stall": Stall(15.0)}


def judge(*ranks: tuple[int, dict[str, Any]]) -> list[Alert]:
    """The alerts on ranks that have finished this step and say this."""
    run = Run(run_info(len(ranks)))
    for rank, (step, says) in enumerate(ranks):
        run.add_rank(rank_frame(rank, 20, columns([step], {"duration": [100.0]}), **says), 1.0)
    return find_hang(tick(run, run.ages(1.0)), ())


def test_a_rank_that_finished_while_the_others_wait_for_it() -> None:
    (alert,) = judge((120, WAITS), (120, WAITS), (120, {"state": "finished"}), (120, WAITS))
    assert (alert.kind, alert.severity, alert.ranks) == ("uneven_inputs", "critical", (2,))
    assert alert.measures == UnevenInputsMeasures(15.0, (0, 1, 3), 120, has_finished=True)
    assert alert.since_step == 121


def test_a_rank_whose_loader_has_ended_while_it_waits_elsewhere() -> None:
    def loading(batches: int, ended: bool, operation: str = "gloo:all_reduce") -> dict[str, Any]:
        flight = Flight("0", 33, 32, operation)
        return WAITS | {"loader": Loader(0, batches, ended), "stall": Stall(15.0, [], [flight])}

    dry = loading(120, True, "gloo:barrier") | {"phase": "barrier"}
    (alert,) = judge((120, loading(121, False)), (120, dry), (120, loading(121, False)))
    assert (alert.kind, alert.ranks) == ("uneven_inputs", (1,))
    assert not measured(alert, UnevenInputsMeasures).has_finished
    (alert,) = judge((120, loading(500, False)), (120, dry), (120, loading(500, False)))
    assert alert.kind == "hang"  # another loader than the one they train with
    (alert,) = judge((120, loading(121, True)), (120, dry), (120, loading(121, True)))
    assert alert.kind == "hang"


def test_a_rank_that_finished_long_ago_is_not_what_they_wait_for() -> None:
    (alert,) = judge((120, WAITS), (120, WAITS), (60, {"state": "finished"}))
    assert alert.kind == "hang"


def test_the_others_may_go_on_without_it() -> None:
    runs = {"state": "running", "phase": "forward"}
    (alert,) = judge((130, runs), (120, {"state": "finished"}), (130, runs))
    assert (alert.kind, alert.severity, alert.ranks) == ("uneven_inputs", "info", (1,))
    assert alert.measures == LeftBehindMeasures(120, 130)


def test_the_ordinary_end_of_a_run_is_nothing() -> None:
    runs = {"state": "running", "phase": "exposed"}
    done = {"state": "finished"}
    assert judge((119, runs), (120, done), (120, done)) == []
    assert judge((120, runs), (120, done)) == []
    assert judge((120, done), (120, done)) == []
