"""Losses and parameters are the same to the last bit, with the monitor and without."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import play
from tests.probe.scenes_identity import LOOPS, WAYS
from trainer.compare import differ, read_dump


@pytest.fixture(scope="module", params=[2, 3, 4])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumps of one launch with so many ranks: every loop, every way."""
    played = play(tmp_path_factory.mktemp("identity"), "scenes_identity", request.param, also=["every_loop_every_way"])
    assert played.output.count("to watch this run") <= len(LOOPS) * (len(WAYS) - 1)
    return played.folder


@pytest.mark.parametrize("way", [way for way in WAYS if way != "without"])
@pytest.mark.parametrize("loop", LOOPS)
def test_losses_and_parameters_are_bit_identical(folder: Path, loop: str, way: str) -> None:
    without, watched = read_dump(folder / f"{loop}-without.json"), read_dump(folder / f"{loop}-{way}.json")
    assert differ(without, watched) is None
    assert {len(losses) for losses in watched["losses"]} == {6}


def test_the_loops_themselves_differ(folder: Path) -> None:
    dumps = [read_dump(folder / f"{loop}-without.json") for loop in LOOPS]
    assert len({dump["parameters"] for dump in dumps}) == len(LOOPS)
