"""A rank's figures and its last whole frame make its newest frame; what they cannot tell goes out whole."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.codec import decode, encode
from ddpmon.figures import FIGURES, PLACE, PROCESS, STATES
from ddpmon.host_frames import RankRow, figures_of, host_frame, is_told, process_of, with_figures
from ddpmon.machine import ProcessFigures
from ddpmon.parts import BadLoss, Failure, Loader, Stall
from ddpmon.schema import MAX_FRAME_BYTES, Mark, RankFrame, StepColumns
from tests.made_frames import columns, rank_frame

NO_STEPS = StepColumns()
PROCESS_READ = ProcessFigures(cpu_pct=99.5, rss_bytes=(1 << 40) + 1, threads=7, cpus="0-3", quotas={"job": 2.0})
STRINGS = {"cpus", "quotas", "unread"}  # of a process: they are no figures


def frame(seq: int = 1, **changes: Any) -> RankFrame:
    return rank_frame(3, seq, NO_STEPS, **{"process": PROCESS_READ, "loader": Loader(2, 5, False), **changes})


def test_every_figure_of_a_process_is_declared() -> None:
    assert {*ProcessFigures.__struct_fields__} - STRINGS == {*PROCESS}
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)


def test_a_frame_is_made_again_of_its_figures() -> None:
    dice, whole = random.Random(3), frame()
    for seq in range(2, 200):
        figures = {name: dice.choice((None, dice.randrange(1 << 50))) for name in PROCESS}
        newest = replace(
            whole,
            seq=seq,
            sent_at=dice.random() * 1e9,
            state=dice.choice(STATES),
            phase=dice.choice(("input", "exposed", "rollout")),
            step=dice.randrange(-1, 1 << 48),
            phase_s=dice.random(),
            step_s=dice.choice((None, dice.random())),
            cost_us=dice.choice((None, 11.5)),
            thinned=dice.randrange(9),
            process=replace(PROCESS_READ, **figures),
            loader=dice.choice((None, Loader(dice.randrange(9), dice.randrange(1 << 40), dice.random() < 0.5))),
        )
        assert is_told(newest, whole)
        assert with_figures(whole, [*map(float, figures_of(newest, 1))], newest.phase) == newest


@pytest.mark.parametrize(
    "news",
    [
        {"stall": Stall(12.0)},
        {"failure": Failure("ValueError", "no", 3)},
        {"bad_loss": BadLoss(3, 4, 2, "nan")},
        {"notes": ["a note"]},
        {"gpu_uuid": "GPU-2"},
        {"host": "elsewhere"},
        {"pid": 77},
        {"writer": 5},
        {"marks": [Mark(9, "eval", 4.0)]},
        {"gradient_bytes": 8},
        {"process": ProcessFigures(cpus="0-1")},
        {"process": None},
        {"dropped_steps": (1 << 62) - 1},
    ],
    ids=lambda news: next(iter(news)),
)
def test_what_figures_do_not_say_is_news(news: dict[str, Any]) -> None:
    assert not is_told(frame(2, **news), frame())


def test_a_stall_that_goes_on_and_marks_that_are_known_are_no_news() -> None:
    known = frame(stall=Stall(12.0, write_bytes_s=3.0), marks=[Mark(1, "eval", 2.0), Mark(2, "eval", 2.0)])
    later = frame(2, stall=Stall(13.0, write_bytes_s=3.0), marks=[Mark(2, "eval", 2.0)])
    assert is_told(later, known)
    assert with_figures(known, [*map(float, figures_of(later, 1))], later.phase).stall == later.stall
    assert not is_told(frame(3, stall=Stall(14.0, write_bytes_s=9.0)), known)
    assert not is_told(frame(3), known), "it has got on"


def test_of_a_process_that_nobody_could_read_nothing_is_made_up() -> None:
    row = [*map(float, figures_of(frame(process=None), 1))]
    assert process_of(None, row) is None
    assert process_of(ProcessFigures(1.0), row) == ProcessFigures()


@pytest.mark.parametrize("field", ["loader_workers", "loader_batches", "loader_ended"])
def test_a_loader_of_which_a_figure_is_unknown_is_none(field: str) -> None:
    row = [*map(float, figures_of(frame(), 1))]
    row[PLACE[field]] = math.nan
    assert with_figures(frame(), row, "exposed").loader is None


def test_a_full_host_frame_comes_back_as_it_was_put() -> None:
    rows = []
    for rank in range(64):
        one = rank_frame(rank, 9, NO_STEPS, phase=f"phase {rank % 3}")
        steps = columns(range(100), {"duration": [1.0] * 100, "loss": [2.0] * 100})
        figures = struct.pack(f"<{len(FIGURES)}d", *figures_of(one, 9))
        values = steps.values["duration"] + (steps.values["loss"] if rank % 2 else b"")
        mask = 1 | (1 << 10 if rank % 2 else 0)
        rows.append(RankRow("made-run", rank, 1, 9, figures, one.phase, mask, steps.step, values, b""))
    put = host_frame(5, 1, 2.0, rows)
    data = encode(put)
    assert len(data) < MAX_FRAME_BYTES
    assert decode("k", data, type(put)) == put
    assert put.phases == ["phase 0", "phase 1", "phase 2"]
    assert {(part.columns, len(part.place)) for part in put.steps} == {(1, 6400), (1025, 6400)}
