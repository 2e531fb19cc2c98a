"""From a rank's frame to its row in a host frame, and back.

A row and the rank's last whole frame make the rank's newest frame, but for its steps. What a row cannot tell, such as
where a rank is stuck, makes the rank publish a whole frame (`is_told`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ddpmon.figures import FIGURES, NAN, PLACE, PROCESS, STATES
from ddpmon.machine import ProcessFigures
from ddpmon.parts import Count, Loader, RankNumber, Text
from ddpmon.schema import HostFrame, Mark, RankFrame, StepColumns, StepRows, widths

_FIRST_OF_PROCESS, _FIRST_OF_LOADER = PLACE[PROCESS[0]], PLACE["loader_workers"]
_TOLD = tuple(field for field in ProcessFigures.__struct_fields__ if field not in PROCESS)  # what is no figure
_told_of = attrgetter(*_TOLD)
_in_order = itemgetter(*[(*PROCESS, *_TOLD).index(field) for field in ProcessFigures.__struct_fields__])
_COUNTS = tuple(FIGURES[PLACE[name]].counts for name in PROCESS)
_values_of = attrgetter(*PROCESS)
_NOTHING_KNOWN: list[Any] = [None] * len(PROCESS)
_WITHOUT: dict[str, Any] = dict.fromkeys(PROCESS)
_NO_STEPS, _NO_PROCESS = StepColumns(), ProcessFigures()
_UNKNOWN_PROCESS, _UNKNOWN_LOADER = (NAN,) * len(PROCESS), (NAN,) * 3


class RankRow(Struct, frozen=True, array_like=True, gc=False):
    """One rank's row of a host frame, and its steps of the last seconds as `schema.StepRows` has them.

    `columns`, `step`, `values` and `halves` are those of `StepRows`.
    """

    run_id: Text
    rank: RankNumber
    pid: Count
    seq: Count
    figures: bytes
    phase: Text
    columns: Count
    step: bytes
    values: bytes
    halves: bytes

    @property
    def is_whole(self) -> bool:
        """Whether its parts have the lengths that belong together."""
        count, wide, narrow = len(self.step) // 8, *widths(self.columns)
        lengths = (8 * len(FIGURES), 8 * count, 4 * count * wide, 2 * count * narrow)
        return lengths == (len(self.figures), len(self.step), len(self.values), len(self.halves))

    @property
    def is_possible(self) -> bool:
        """Whether its figures can be true; their length has been checked."""
        return are_possible(struct.unpack(f"<{len(FIGURES)}d", self.figures))


def are_possible(figures: Sequence[float]) -> bool:
    """Whether every figure of a row is within its bounds, or unknown where it may be."""
    return all(
        each.optional if value != value else each.least <= value <= each.most and not (each.counts and value % 1)
        for each, value in zip(FIGURES, figures, strict=True)
    )


def figures_of(frame: RankFrame, whole: int, phase: int = 0) -> list[float]:
    """The figures of a frame, one row in the order of `FIGURES`.

    Args:
        frame: the rank's.
        whole: the number of the whole frame that they belong to.
        phase: the place of its phase in the host frame's list.
    """
    row: list[float | None] = [
        frame.seq, frame.sent_at, whole, frame.pid, STATES.index(frame.state), phase, frame.step, frame.phase_s,
        frame.step_s, frame.thinned, frame.dropped_steps, frame.dropped_frames, frame.cost_us,
        frame.job_step, frame.job_total, frame.eta_s, None if frame.stall is None else frame.stall.seconds,
    ]  # fmt: skip
    process, loader = frame.process, frame.loader
    row += _UNKNOWN_PROCESS if process is None else _values_of(process)
    row += _UNKNOWN_LOADER if loader is None else (loader.workers, loader.batches, loader.ended)
    return [NAN if value is None else value for value in row]


def with_figures(whole: RankFrame, row: Sequence[float], phase: str) -> RankFrame:
    """The newest frame of a rank, without its steps.

    Args:
        whole: its last whole frame.
        row: its newest figures, in the order of `FIGURES`; they belong to `whole`.
        phase: where its training thread is.
    """
    (
        seq, sent_at, _, _, state, _, step, phase_s, step_s, thinned, steps, frames, cost_us, job_step, job_total,
        eta_s, stall_s,
    ) = row[:_FIRST_OF_PROCESS]  # fmt: skip
    return replace(
        whole,
        seq=int(seq),
        sent_at=sent_at,
        state=STATES[int(state)],
        phase=phase,
        step=int(step),
        phase_s=phase_s,
        step_s=_known(step_s),
        thinned=int(thinned),
        dropped_steps=int(steps),
        dropped_frames=int(frames),
        cost_us=_known(cost_us),
        job_step=_whole(job_step),
        job_total=_whole(job_total),
        eta_s=_known(eta_s),
        process=process_of(whole.process, row),
        loader=_loader_of(row[_FIRST_OF_LOADER:]),
        stall=whole.stall if whole.stall is None or stall_s != stall_s else replace(whole.stall, seconds=stall_s),
        steps=_NO_STEPS,
    )


def process_of(known: ProcessFigures | None, row: Sequence[float]) -> ProcessFigures | None:
    """A rank's process by its newest figures; what is no figure, such as where it may run, is that of `known`."""
    figures = zip(row[_FIRST_OF_PROCESS:_FIRST_OF_LOADER], _COUNTS, strict=True)
    values: list[Any] = [None if value != value else int(value) if counts else value for value, counts in figures]
    if known is None and values == _NOTHING_KNOWN:
        return None
    return ProcessFigures(*_in_order((*values, *_told_of(known or _NO_PROCESS))))


def without_figures(process: ProcessFigures | None) -> ProcessFigures | None:
    """What a process has that is no figure, such as where it may run: what `process_of` needs to know of it."""
    return None if process is None else replace(process, **_WITHOUT)


def is_told(frame: RankFrame, whole: RankFrame) -> bool:
    """Whether a frame's figures and its rank's last whole frame say all that the frame says, but for its steps.

    Named phases that `whole` holds already are told; those that have left the frame since are no loss.
    """
    if frame.marks and not {*map(_key, frame.marks)} <= {*map(_key, whole.marks)}:
        return False
    as_told = with_figures(whole, [*map(float, figures_of(frame, whole.seq))], frame.phase)
    return as_told == replace(frame, steps=_NO_STEPS, marks=whole.marks)


def _key(mark: Mark) -> tuple[int, str, float]:
    return mark.step, mark.name, mark.ms


def _loader_of(row: Sequence[float]) -> Loader | None:
    """The DataLoader's figures; None unless all of them are known, which a hostile frame may deny for some."""
    workers, batches, ended = row
    return None if math.isnan(workers + batches + ended) else Loader(int(workers), int(batches), bool(ended))


def _known(value: float) -> float | None:
    """None for a figure that is not known."""
    return value if value == value else None


def _whole(value: float) -> int | None:
    return int(value) if value == value else None


def host_frame(writer: int, seq: int, now: float, rows: Sequence[RankRow]) -> HostFrame:
    """The host frame of these rows, of different ranks, at `now` (Unix time)."""
    phases = [*dict.fromkeys(row.phase for row in rows)]
    figures = bytearray(b"".join([row.figures for row in rows]))
    for place, row in enumerate(rows):
        struct.pack_into("<d", figures, 8 * (place * len(FIGURES) + PLACE["phase"]), phases.index(row.phase))
    alike: dict[int, list[tuple[int, RankRow]]] = {}
    for place, row in enumerate(rows):
        if row.step:
            alike.setdefault(row.columns, []).append((place, row))
    return HostFrame(
        run_id=rows[0].run_id,
        rank=writer,
        seq=seq,
        sent_at=now,
        ranks=_packed("i", [row.rank for row in rows]),
        figures=bytes(figures),
        phases=phases,
        steps=[_joined(mask, parts) for mask, parts in alike.items()],
    )


def _joined(mask: int, parts: Sequence[tuple[int, RankRow]]) -> StepRows:
    return StepRows(
        columns=mask,
        place=_packed("H", [place for place, row in parts for _ in range(len(row.step) // 8)]),
        step=b"".join([row.step for _, row in parts]),
        values=b"".join([row.values for _, row in parts]),
        halves=b"".join([row.halves for _, row in parts]),
    )


def _packed(code: str, numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)
