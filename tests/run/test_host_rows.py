"""What the watcher's model takes of host frames: only what belongs to whole frames that it knows, and is new."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from ddpmon.figures import FIGURES, PLACE
from ddpmon.host_frames import RankRow, figures_of, host_frame
from ddpmon.machine import ProcessFigures
from ddpmon.run.host_rows import HostRows, gather
from ddpmon.run.model import Run
from ddpmon.schema import HOST_COLUMNS, STEP_COLUMNS, HostFrame, RankFrame
from tests.made_frames import columns, rank_frame, run_info

MASK = 1 | 1 << STEP_COLUMNS.index("exposed")
RANKS = 4


def told(rank: int, seq: int, **changes: object) -> RankFrame:
    """A whole frame with one step a second."""
    steps = columns([seq], {"duration": [100.0], "exposed": [5.0 + rank]})
    return rank_frame(rank, seq, steps, **changes)


def row(frame: RankFrame, whole: int) -> RankRow:
    figures = struct.pack(f"<{len(FIGURES)}d", *figures_of(frame, whole))
    values = b"".join(
        a + b
        for a, b in zip(*(
            [column[4 * at : 4 * at + 4] for at in range(len(frame.steps))] for column in frame.steps.values.values()
        ), strict=True)
    )  # fmt: skip
    return RankRow(
        frame.run_id, frame.rank, frame.pid, frame.seq, figures, frame.phase, MASK, frame.steps.step, values, b""
    )


def rows_of(frames: Sequence[RankFrame], whole: int, *, first: bool = False, writer: int = 0) -> HostRows:
    """A host frame of these ranks, as it is read."""
    put = host_frame(writer, 1, 1.0, [row(frame, whole) for frame in frames])
    rows, bad = gather([put], lambda _: first, RANKS)
    assert not bad
    return rows


@pytest.fixture
def run() -> Run:
    """Four ranks whose whole frames of second 1 are known."""
    run = Run(run_info(RANKS))
    run.add_ranks([told(rank, 1) for rank in range(RANKS)], 1.0, {})
    return run


def test_rows_that_belong_to_known_whole_frames_are_the_newest_frames(run: Run) -> None:
    process = ProcessFigures(cpu_pct=50.0, oom_kills=2)
    news = [told(rank, 3, phase="input", process=process) for rank in range(RANKS)]
    assert run.add_rows(rows_of(news, 1), 3.0).all()
    assert run.latest.step.tolist() == [3] * RANKS
    assert [*run.latest.phase] == ["input"] * RANKS
    assert run.latest.heard_at.tolist() == [3.0] * RANKS
    np.testing.assert_array_equal(run.rings.take("exposed", np.array([1, 3])), [[5 + r, 5 + r] for r in range(RANKS)])
    assert run.states[2].frame == replace(news[2], steps=type(news[2].steps)())
    assert run.states[2].process == process
    assert run.resources.of(2)[:, 1].tolist()[-1] == 50.0


def test_an_overtaken_row_changes_nothing(run: Run) -> None:
    assert run.add_rows(rows_of([told(0, 5)], 1), 5.0).all()
    assert not run.add_rows(rows_of([told(0, 4)], 1), 6.0).any()
    assert (int(run.latest.seq[0]), float(run.latest.heard_at[0])) == (5, 5.0)


@pytest.mark.parametrize(
    ("frame", "whole"),
    [(told(1, 3), 2), (told(1, 3, pid=999), 1), (told(1, 0, sent_at=100.0), 0)],
    ids=["whole frame not read yet", "another process", "begun again"],
)
def test_a_row_of_an_unknown_whole_frame_waits_for_it(run: Run, frame: RankFrame, whole: int) -> None:
    rows = rows_of([frame, told(2, 3)], whole if whole != 1 else 1)
    assert run.missing_whole(rows).tolist()[0]
    assert not run.add_rows(rows, 3.0)[0]
    assert int(run.latest.seq[1]) == 1
    run.add_ranks([replace(frame, seq=max(frame.seq, whole))], 3.0, {})
    assert not run.missing_whole(rows)[0]


def test_of_a_rank_that_was_never_heard_of_no_row_is_taken() -> None:
    run = Run(run_info(RANKS))
    rows = rows_of([told(rank, 3) for rank in range(RANKS)], 1)
    assert run.missing_whole(rows).all()
    assert not run.add_rows(rows, 3.0).any()
    assert not run.latest.known.any()


def test_what_a_watcher_sees_first_of_a_writer_is_as_old_as_it_says(run: Run) -> None:
    """The run may have ended an hour ago, in a store that outlives it."""
    run = Run(run_info(RANKS))
    run.add_ranks([told(rank, 1) for rank in range(RANKS)], 5000.0, dict.fromkeys(range(RANKS), 3600.0))
    run.add_rows(rows_of([told(rank, 4) for rank in range(RANKS)], 1, first=True), 5000.0)
    assert run.latest.heard_at.tolist() == [1403.0] * RANKS
    run.add_rows(rows_of([told(rank, 5) for rank in range(RANKS)], 1), 5001.0)
    assert run.latest.heard_at.tolist() == [5001.0] * RANKS


def test_of_two_writers_that_tell_of_a_rank_the_newest_row_counts(run: Run) -> None:
    old, new = ([row(told(1, seq), 1), row(told(rank, 7), 1)] for seq, rank in ((3, 2), (6, 3)))
    frames = [host_frame(2, 9, 1.0, old), host_frame(3, 1, 1.0, new)]
    rows, bad = gather(frames, lambda _: False, RANKS)
    assert not bad
    assert sorted(rows.ranks.tolist()) == [1, 2, 3]
    run.add_rows(rows, 7.0)
    assert run.latest.seq.tolist() == [1, 6, 7, 7]
    assert int(run.rings.last[1]) == 6


def test_steps_of_a_device_come_as_they_were_put(run: Run) -> None:
    frame = told(3, 2)
    lead = len(STEP_COLUMNS) - 1
    assert STEP_COLUMNS[lead] in HOST_COLUMNS
    one = row(frame, 1)
    one = replace(one, columns=one.columns | 1 << lead, halves=struct.pack("<e", 1.5))
    rows, _ = gather([host_frame(3, 1, 1.0, [row(told(2, 2), 1), one])], lambda _: False, RANKS)
    run.add_rows(rows, 2.0)
    assert run.rings.take("lead", np.array([2]))[3].tolist() == [1.5]
    assert np.isnan(run.rings.take("lead", np.array([2]))[2]).all()


def good() -> HostFrame:
    return host_frame(0, 1, 1.0, [row(told(rank, 2), 1) for rank in range(3)])


def with_figure(name: str, value: float) -> HostFrame:
    frame = good()
    table = np.frombuffer(frame.figures, "<f8").reshape(3, -1).copy()
    table[1, PLACE[name]] = value
    return replace(frame, figures=table.tobytes())


@pytest.mark.parametrize(
    ("frame", "left"),
    [
        (replace(good(), ranks=struct.pack("<3i", 0, 1, 1)), {0}),
        (replace(good(), ranks=struct.pack("<3i", 0, 1, RANKS)), {0, 1}),
        (replace(good(), ranks=struct.pack("<3i", 0, 1, -1)), {0, 1}),
        (replace(good(), phases=[]), set()),
        *[
            (with_figure(name, value), {0, 2})
            for name, value in [
                ("seq", float("nan")),
                ("seq", -1.5),
                ("seq", 2.0**60),
                ("sent_at", float("nan")),
                ("step", -2.0),
                ("state", 4.0),
                ("state", 0.5),
                ("phase", 1.0),
                ("phase_s", float("inf")),
                ("phase_s", float("nan")),
                ("cpu_pct", 1e16),
                ("rss_bytes", -1.0),
                ("loader_ended", 2.0),
            ]
        ],
    ],
)
def test_rows_that_cannot_be_true_are_left_out_alone(run: Run, frame: HostFrame, left: set[int]) -> None:
    other = host_frame(3, 1, 1.0, [row(told(3, 2), 1)])
    rows, bad = gather([frame, other], lambda _: False, RANKS)
    assert bad == [0]
    assert {*rows.ranks.tolist()} == left | {3}
    run.add_rows(rows, 2.0)
    assert run.latest.seq.tolist() == [2 if rank in left | {3} else 1 for rank in range(RANKS)]
    assert {rank for rank in range(RANKS) if run.rings.last[rank] == 2} == left | {3}
    assert gather([with_figure("cpu_pct", float("nan")), other], lambda _: False, RANKS)[1] == []


def test_a_step_of_no_rank_of_its_frame_is_left_out(run: Run) -> None:
    frame = good()
    (steps,) = frame.steps
    strange = replace(steps, place=struct.pack("<3H", 0, 3, 65535))
    rows, bad = gather([replace(frame, steps=[strange]), host_frame(3, 1, 1.0, [row(told(3, 2), 1)])], bool, RANKS)
    assert not bad
    run.add_rows(rows, 2.0)
    assert run.rings.last.tolist() == [2, 1, 1, 2]
