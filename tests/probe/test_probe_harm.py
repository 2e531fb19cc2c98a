"""The probe never raises into training, says why it does nothing in one line, and leaves no trace behind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from ddpmon.probe.step_assembler import MAX_SPANS
from ddpmon.store.server import FIRST_PORT, bind
from tests.probe.probe_ranks import STEPS, Played, launched, play

WATCHED = ("nonsense_is_logged", "forked_workers", "elsewhere_in_part")
ALSO = (
    "detached",
    "switched_off",
    "not_ddp",
    "attached_twice",
    "names_are_nonsense",
    "an_error_of_our_own",
    "forked_by_hand",
    "stderr_is_gone",
    "interrupted",
    "compiled_later",
    "copied_and_pickled",
    "never_synchronises",
    "process_group_is_gone",
)


@pytest.fixture(scope="module")
def taken_port() -> Iterator[int]:
    """The first port that a store would take, 29480 unless somebody else has it."""
    with closing(bind("127.0.0.1")) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def played(taken_port: int, tmp_path_factory: pytest.TempPathFactory) -> Played:
    assert taken_port >= FIRST_PORT
    return play(tmp_path_factory.mktemp("harm"), "scenes_harm", 1, watch=WATCHED, also=ALSO)


def one_line(lines: list[str], text: str) -> None:
    assert len(lines) == 1
    assert lines[0].startswith("ddpmon: ")
    assert text in lines[0]


def test_detach_puts_everything_back(played: Played) -> None:
    notes = played.notes("detached")
    hooked = {"dist.barrier", "dist.all_reduce", "wait", "loader", "forward", "optimizer", "collector", "excepthook"}
    assert hooked <= set(notes["changed"])
    assert (notes["restored"], notes["enabled"], notes["ended"], notes["lines"]) == (True, False, True, [])


def test_switched_off_nothing_is_touched(played: Played) -> None:
    assert played.notes("switched_off") == {"same": True, "threads": [], "enabled": False, "lines": []}


def test_a_model_that_is_not_ddp_is_said_once_each(played: Played) -> None:
    for lines in played.notes("not_ddp")["told"]:
        one_line(lines, "is not DistributedDataParallel")


def test_attached_twice_is_said_once_and_the_first_goes_on(played: Played) -> None:
    notes = played.notes("attached_twice")
    one_line(notes["same"], "attach was called twice: this process already watches this model")
    one_line(notes["different"], "attach was called twice: this process already watches another model")
    assert (notes["one"], notes["first"], notes["second"]) == (True, True, False)


def test_attached_without_a_process_group_is_said(played: Played) -> None:
    notes = played.notes("process_group_is_gone")
    assert notes["early"] == []
    one_line(notes["late"], "the process group is gone")
    assert not notes["enabled"]


def test_nonsense_that_is_logged_is_no_number_and_nothing_worse(played: Played) -> None:
    (rank,) = played.runs["nonsense_is_logged"].ranks
    assert rank.notes == {"enabled": True, "lines": []}
    assert math.isnan(rank.steps[1]["loss"])
    assert (rank.steps[3]["loss"], rank.steps[3]["samples"]) == (1.5, 3.0)


def test_a_name_that_is_nonsense_is_no_reason_to_say_anything(played: Played) -> None:
    assert played.notes("names_are_nonsense")["told"] == [[]] * 4


def test_an_error_of_our_own_is_one_line_and_the_end_of_measuring(played: Played) -> None:
    notes = played.notes("an_error_of_our_own")
    told: list[list[Any]] = notes["told"]
    assert notes["results"] == 1, "training computed the same, whatever failed"
    assert notes["hooked"] == len(told) * 3 * 2, "and so did the user's hooks behind ours"
    for *lines, enabled in told:
        one_line(lines, "stopped measuring after an internal error (StopIteration")
        assert not enabled


def test_an_interrupt_during_a_collection_is_not_lost(played: Played) -> None:
    assert played.notes("interrupted")["came_out"] == [True] * 5


def test_a_compiler_leaves_our_hooks_alone(played: Played) -> None:
    assert played.notes("compiled_later") == {"enabled": True, "traced": []}


def test_a_copy_of_a_watched_model_is_not_watched(played: Played) -> None:
    notes = played.notes("copied_and_pickled")
    assert (notes["enabled"], notes["counted"], notes["ours"], notes["lines"]) == (True, 0, False, [])
    assert notes["equal"] == [True, True]


def test_without_a_sync_point_nothing_grows_for_ever(played: Played) -> None:
    assert played.notes("never_synchronises")["longest"] == MAX_SPANS


def test_a_forked_worker_publishes_nothing_and_holds_nothing(played: Played) -> None:
    (rank,) = played.runs["forked_workers"].ranks
    assert rank.frame.pid == rank.notes["pid"]
    assert rank.notes["workers"] == 2
    for pid, *facts in rank.notes["seen"]:
        assert pid != rank.notes["pid"]
        assert facts == [0.0, 0.0, 0.0]
    assert all("loss" not in row or math.isnan(row["loss"]) for row in rank.steps.values())
    assert len(rank.steps) >= STEPS


def test_what_a_fork_has_inherited_is_not_destroyed_in_it(played: Played) -> None:
    assert played.notes("forked_by_hand") == {"kept": 1}


def test_time_is_taken_where_gradients_are_reduced_and_not_on_the_default_device(played: Played) -> None:
    (rank,) = played.runs["elsewhere_in_part"].ranks
    assert rank.notes == {"enabled": True, "first": "meta", "lines": []}
    assert not rank.of_device
    assert {rank.steps[step]["samples"] for step in range(1, STEPS)} == {2.0}


def test_without_stderr_nothing_is_said_elsewhere(played: Played) -> None:
    assert played.notes("stderr_is_gone") == {"stdout": ""}


def test_a_port_that_is_taken_is_passed_over_and_the_run_found_at_another(played: Played, taken_port: int) -> None:
    urls = [played.runs[scene].announcement.url for scene in WATCHED]
    ports = [int(url.rpartition(":")[2]) for url in urls]
    assert min(ports) >= FIRST_PORT
    assert taken_port not in ports
    assert played.output.count("to watch this run: ddpmon watch") >= 1


def test_the_discovery_files_are_gone_at_the_end(played: Played) -> None:
    assert list(Path(played.folder, "ddpmon").iterdir()) == []


def test_no_thread_holds_a_modules_lock_when_the_process_forks(tmp_path: Path) -> None:
    notes = play(tmp_path, "scenes_threads", 1, watch=["nothing_is_imported"], launch=launched).notes(
        "nothing_is_imported"
    )
    assert notes["imported"] == []
    assert notes["seen"] > 0
