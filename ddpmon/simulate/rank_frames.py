"""The frames that simulated ranks and hosts would send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.figures import State
from ddpmon.host_frames import RankRow
from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Nic, Pressure, Process, ProcessFigures
from ddpmon.parts import Flight, Stack, StackFrame, Stall
from ddpmon.schema import HANDED_S, BucketColumns, HistoryFrame, NodeFrame, RankFrame, StepColumns
from ddpmon.simulate.buckets import SIZES, bucket_columns
from ddpmon.simulate.plan import BLOCK, GRADIENT_BYTES, LEAK_WINDOW_S, RECENT, SHARES, Plan, host_name
from ddpmon.simulate.scenarios import F32, I64, Scenario
from ddpmon.simulate.timeline import WINDOW_S, Timeline

STALLED_S = 10.0
_NO_STEPS = StepColumns()
_SENT = ("duration", "input", "forward", "backward", "optimizer", "exposed", "barrier", "marked", "allreduce", "gc")
COLUMNS = (*_SENT, "loss", "samples")
_MOST_ROWS = 256
_GIB = 1 << 30
_LEAK = 2 << 20  # bytes a second
_LEAKS_FOR_S = int(LEAK_WINDOW_S)  # when the run begins
_JUST_S = 1.5  # more than the second between two words of a host
_FIRST_PID, _LIFE = 20_000, 100_000


class Frames:
    """Writes the frames of some ranks and of their hosts.

    Args:
        plan: the run.
        scenario: what befalls it.
        run_id: its id in the store.
        own: the ranks, ascending.
    """

    def __init__(self, plan: Plan, scenario: Scenario, run_id: str, own: I64) -> None:
        self._plan, self._scenario, self._run = plan, scenario, run_id
        self._own = own
        self._timeline = Timeline(plan, scenario, own)
        self._done = 0
        self._births: dict[float, int] = {}  # when ranks have come back -> the run's step that is their first

    def reach(self, seconds: float) -> None:
        """Let the run go on until `seconds` after it began."""
        self._done = self._timeline.trim(self._timeline.reach(seconds))

    def ranks(self, places: I64, seconds: float, state: State = "running") -> Iterator[RankFrame]:
        """The whole frames of the ranks at these places of `own`; of those that are away none."""
        line, done = self._timeline, self._done
        first = self._first(seconds, WINDOW_S)
        blobs = _Blobs(line.columns, places, first, done)
        for i, skip, born, frame in self._said(places, seconds, state):
            steps = line.step[max(first, skip) : done] - born
            yield replace(frame, steps=blobs.columns(i, steps, max(first, skip) - first))

    def rows(self, places: I64, seconds: float) -> Iterator[tuple[RankFrame, RankRow]]:
        """The frames of these ranks without steps, and what each hands to the writer of its host."""
        line, done = self._timeline, self._done
        first = self._first(seconds, HANDED_S)
        table = np.stack([line.columns[name][places, first:done] for name in COLUMNS], axis=2).astype("<f4")
        values, size = table.tobytes(), 4 * len(COLUMNS)
        for i, skip, born, frame in self._said(places, seconds, "running"):
            late = max(first, skip)
            numbers = line.step[late:done] - born
            start, end = i * (done - first) + late - first, (i + 1) * (done - first)
            yield (
                frame,
                RankRow(
                    run_id=self._run,
                    rank=frame.rank,
                    pid=frame.pid,
                    seq=frame.seq,
                    figures=b"",
                    phase=frame.phase,
                    columns=(1 << len(COLUMNS)) - 1,
                    step=numbers.tobytes(),
                    values=values[size * start : size * end],
                    halves=b"",
                ),
            )

    def _first(self, seconds: float, span_s: float) -> int:
        """The place of the first step of the last `span_s` seconds."""
        ends = self._timeline.ends[: self._done]
        return max(0, self._done - _MOST_ROWS, int(np.searchsorted(ends, seconds - span_s)))

    def _said(self, places: I64, seconds: float, state: State) -> Iterator[tuple[int, int, int, RankFrame]]:
        """Of each rank its place here, the place of its first step, the number of that, and its frame without steps."""
        line, done = self._timeline, self._done
        lives, since, away = self._scenario.lives(self._plan, seconds)
        phases, phase_s, standing_s = self._phases(places, seconds)
        now, per_host = time.time(), self._plan.per_host
        first = self._first(seconds, WINDOW_S)
        for i, (place, rank) in enumerate(zip(places.tolist(), self._own[places].tolist(), strict=True)):
            if away[rank]:
                continue
            began = float(since[rank])
            skip, born = self._life(began)
            stall = self._stall(rank, standing_s) if standing_s >= STALLED_S else None
            node, local_rank = divmod(rank, per_host)
            frame = RankFrame(
                run_id=self._run,
                rank=rank,
                seq=int(seconds - began) + 1,
                sent_at=now,
                host=host_name(node),
                node=node,
                pid=int(_pid(rank, lives[rank])),
                local_rank=local_rank,
                gpu_uuid=f"GPU-simulated-{rank}",
                state="stalled" if stall is not None and state == "running" else state,
                phase=phases[i],
                step=int(line.step[done - 1]) - born if done else -1,
                phase_s=phase_s[i],
                step_s=max(0.0, seconds - float(line.ends[done - 1])) if done else None,
                steps=_NO_STEPS,
                buckets=self._buckets(place, max(first, skip), born),
                bucket_count=len(SIZES),
                gradient_bytes=GRADIENT_BYTES,
                process=_process(self._scenario, rank, node, int(seconds)),
                cost_us=38.0 + rank % 7,
                stall=stall,
            )
            yield i, skip, born, frame

    def _buckets(self, place: int, first: int, born: int) -> BucketColumns | None:
        """The bucket detail of the rank at a place of `own` from a step on; None in a run without."""
        line, done = self._timeline, self._done
        if "buckets" not in line.columns or done <= first:
            return None
        return bucket_columns(line.step[first:done] - born, line.columns["buckets"][place, first:done])

    def just_back(self, places: I64, seconds: float) -> NDArray[np.bool_]:
        """[n] which of these ranks have come back since their host spoke last, or a little earlier."""
        _, since, away = self._scenario.lives(self._plan, seconds)
        own = self._own[places]
        found: NDArray[np.bool_] = (since[own] > max(0.0, seconds - _JUST_S)) & ~away[own]
        return found

    def _life(self, began: float) -> tuple[int, int]:
        """The place and the number of the first step of a rank that has come back at `began`; 0, 0 if it never did."""
        if not began or not self._done:
            return 0, 0
        born = self._births.get(began)
        if born is None:  # later, the step may not be on record any more
            skip = int(np.searchsorted(self._timeline.ends[: self._done], began))
            born = self._births[began] = int(self._timeline.step[skip])
        return int(np.searchsorted(self._timeline.step[: self._done], born)), born

    def histories(self, places: I64, seconds: float) -> Iterator[HistoryFrame]:
        """What the ranks at these places remember; of those that have come back only the recent steps.

        The recent steps reach back to the decimated past, which grows by whole blocks, unless steps are very short.
        """
        line, done, older = self._timeline, self._done, self._timeline.older
        first = max(0, done - RECENT - 2 * BLOCK)
        recent, past = _Blobs(line.columns, places, first, done), _Blobs(older.columns, places, 0, len(older.step))
        lives, since, away = self._scenario.lives(self._plan, seconds)
        for i, rank in enumerate(self._own[places].tolist()):
            if away[rank]:
                continue
            skip, born = self._life(float(since[rank]))
            begin = max(first, skip)
            own = recent.columns(i, line.step[begin:done] - born, begin - first)
            own_past = StepColumns() if lives[rank] else past.columns(i, older.step, 0, older.stride)
            yield HistoryFrame(run_id=self._run, rank=rank, recent=own, older=own_past)

    def nodes(self, places: I64, seconds: float) -> Iterator[NodeFrame]:
        """The frames of the hosts whose first rank is at one of these places."""
        lives, _, away = self._scenario.lives(self._plan, seconds)
        pids = np.where(away, 0, _pid(np.arange(self._plan.ranks), lives))
        for rank in self._own[places].tolist():
            node = self._plan.host_of(rank)
            if rank % self._plan.per_host == 0 and not away[rank]:
                yield _node(self._plan, self._scenario, self._run, node, seconds, pids)

    def _phases(self, places: I64, seconds: float) -> tuple[list[str], list[float], float]:
        """Which phase each rank is in and for how long; and how long the job stands still (0: it does not)."""
        line, done = self._timeline, self._done
        began = float(line.ends[done - 1]) if done else 0.0
        into_ms = max(0.0, seconds - began) * 1e3
        hung = self._scenario.hung
        if hung is not None and done < len(line.step) and line.ends[done] == np.inf:
            phases = ["input" if rank == hung else "exposed" for rank in self._own[places].tolist()]
            return phases, [into_ms / 1e3] * len(phases), into_ms / 1e3
        work = line.columns["work"][places, min(done, line.columns["work"].shape[1] - 1)]
        bounds = np.cumsum(list(SHARES.values())).astype(np.float32)
        names = (*SHARES, "exposed")
        share = into_ms / np.maximum(work, 1e-3)
        index = np.searchsorted(bounds, share, side="right")
        starts = np.concatenate([[0.0], bounds])[index]
        return [names[i] for i in index.tolist()], (np.maximum(0, share - starts) * work / 1e3).tolist(), 0.0

    def _stall(self, rank: int, seconds: float) -> Stall:
        culprit = rank == self._scenario.hung
        at = (88, "__getitem__", "sample = read(index)") if culprit else (112, "train", "loss.backward()")
        own = StackFrame("train.py", *at, True)
        stack = Stack("MainThread", [StackFrame("train.py", 40, "main", "train(model)", True), own])
        entered = 3 * int(self._timeline.step[self._done - 1]) if self._done else 0
        flight = Flight("default", entered + (not culprit), entered, "simulated:all_reduce")
        return Stall(seconds, [stack], [flight])


class _Blobs:
    """Some ranks' columns as bytes, from which each rank's rows are cut."""

    def __init__(self, columns: dict[str, F32], places: I64, first: int, end: int) -> None:
        self._rows = end - first
        self._bytes = {name: np.ascontiguousarray(columns[name][places, first:end]).tobytes() for name in COLUMNS}

    def columns(self, place: int, steps: I64, skip: int, stride: int = 1) -> StepColumns:
        """One rank's rows but for the first few."""
        rows = self._rows
        start, stop = 4 * (place * rows + min(skip, rows)), 4 * (place + 1) * rows
        values = {name: data[start:stop] for name, data in self._bytes.items()} if rows else {}
        return StepColumns(step=steps.astype("<i8").tobytes(), values=values, stride=stride)


def _pid(rank: int | I64, lives: int | I64) -> int | I64:
    """The process of a rank in its current life."""
    return _FIRST_PID + rank + _LIFE * lives


@lru_cache(maxsize=512)
def _figures_of(kind: int, hogged: bool) -> ProcessFigures:
    return ProcessFigures(
        cpu_pct=104.0 + kind % 13,
        rss_bytes=6 * _GIB + (kind << 20),
        threads=41,
        runqueue_pct=22.0 + kind % 5 if hogged else 0.2,
        runqueue_all_pct=40.0 if hogged else 0.9,
        switches_per_s=180.0 if hogged else 3.0,
        cpus="0-127",
        compute_threads=8,
        workers=4,
        workers_cpu_pct=88.0,
        workers_rss_bytes=3 * _GIB,
        memory_used=40 * _GIB,
        read_bytes_s=12e6,
        write_bytes_s=0.0,
        gpu_memory=61 * _GIB,
        gpu_allocated=44 * _GIB,
        gpu_peak=58 * _GIB,
        alloc_retries=0,
        gpu_growth=0,
    )


def _process(scenario: Scenario, rank: int, node: int, second: int) -> ProcessFigures:
    figures = _figures_of((rank * 7 + second) % 200, scenario.hogged == node)
    if rank == scenario.leaking:
        leaked = min(44 * _GIB + (_LEAKS_FOR_S + second) * _LEAK, 72 * _GIB)
        held, peak = max(leaked + 3 * _GIB, 61 * _GIB), max(leaked, 58 * _GIB)
        growth = _LEAKS_FOR_S * _LEAK if leaked < 72 * _GIB else 0
        return replace(figures, gpu_memory=held, gpu_allocated=leaked, gpu_peak=peak, gpu_growth=growth)
    if rank == scenario.swollen:
        return replace(
            figures, gpu_memory=75 * _GIB, gpu_allocated=70 * _GIB, gpu_peak=74 * _GIB, alloc_retries=second // 20
        )
    return figures


def _node(plan: Plan, scenario: Scenario, run: str, node: int, seconds: float, pids: I64) -> NodeFrame:
    """The frame of a host; `pids` are those of all ranks, 0 of one that is away."""
    ranks = range(node * plan.per_host, min((node + 1) * plan.per_host, plan.ranks))
    return NodeFrame(
        run_id=run,
        node=node,
        seq=int(seconds) + 1,
        sent_at=time.time(),
        host=host_name(node),
        figures=_host(plan, scenario, node, seconds),
        gpus=[_gpu(plan, scenario, rank, seconds, int(pids[rank])) for rank in ranks[:64]],
        cost_pct=0.3,
    )


def _host(plan: Plan, scenario: Scenario, node: int, seconds: float) -> HostFigures:
    wave = (node * 13 + int(seconds)) % 10
    hog = Process(7777, [1], "other", "stress-ng --cpu 120")
    hogged = scenario.hogged == node and seconds >= (plan.fault_step - plan.first_step) * plan.step_ms / 1e3
    return HostFigures(
        cpu_pct=97.0 if hogged else 11.0 + wave,
        cpu_count=128,
        load_1m=140.0 if hogged else 12.0 + wave,
        steal_pct=0.0,
        memory_used=310 * _GIB,
        memory_total=1024 * _GIB,
        swap_used=0,
        pressure=Pressure(cpu=62.0 if hogged else 0.4, memory=0.0, memory_full=0.0, io=0.1, io_full=0.0),
        processes=[HostProcess(hog, cpu_pct=11_800.0, cpus="0-127", rss_bytes=_GIB, nice=0)] if hogged else [],
        nics=[Nic("eth0", 200_000.0, 2e8 + 1e6 * wave, 2e8, 0, 0)],
        retransmits_per_1000=0.1,
        numa=["0-63", "64-127"],
    )


def _gpu(plan: Plan, scenario: Scenario, rank: int, seconds: float, pid: int) -> GpuFigures:
    """The GPU of a rank: its memory and its SMs' time are those of its processes, and 1 GiB is the driver's."""
    wave = (rank * 11 + int(seconds)) % 8
    processes: list[GpuProcess] = []
    if scenario.shared_gpu == rank and seconds >= (plan.fault_step - plan.first_step) * plan.step_ms / 1e3:
        processes.append(GpuProcess(Process(4242, [1], "somebody", "python notebook.py"), 9 * _GIB, 38.0))
    if pid:
        held = _process(scenario, rank, rank // plan.per_host, int(seconds)).gpu_memory
        share = 90.0 + wave - sum(each.sm_pct or 0.0 for each in processes)
        processes.insert(0, GpuProcess(Process(pid, [1], "trainer", "python train.py"), held, share))
    return GpuFigures(
        index=rank % plan.per_host,
        uuid=f"GPU-simulated-{rank}",
        name="simulated",
        utilization_pct=sum(each.sm_pct or 0.0 for each in processes),
        memory_used=sum(each.memory or 0 for each in processes) + _GIB,
        memory_total=80 * _GIB,
        temperature_c=58.0 + wave,
        power_w=610.0 + 5 * wave,
        power_limit_w=700.0,
        sm_clock_mhz=1900.0 - 5 * wave,
        sm_clock_max_mhz=1980.0,
        clock_reasons=[],
        pcie_width=16,
        pcie_width_max=16,
        ecc_uncorrected=0,
        xids=[],
        processes=processes,
        process_count=len(processes),
    )
