"""The host's side of a step on a device's clock, as the publisher makes it of the marks; the marks are made up."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from msgspec.structs import asdict

pytest.importorskip("torch")
from ddpmon.codec import decode, encode
from ddpmon.machine import ProcessFigures
from ddpmon.parts import Loader
from ddpmon.probe import frames
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.loss import LossReader
from ddpmon.probe.record import Elapsed, HostTimes, StepRow, resolve
from ddpmon.probe.step_assembler import StepAssembler
from ddpmon.run.rings import Rings
from ddpmon.schema import HOST_COLUMNS, SCHEMA_VERSION, STEP_COLUMNS, RankFrame
from tests.made_frames import rank_frame
from tests.probe.test_device_marks import draft_of

MS = 1_000_000
MEASURED_HERE = len(STEP_COLUMNS) - len(HOST_COLUMNS)  # the columns of a clock of the host
PHASES = ("input", "forward", "backward")
approx = functools.partial(pytest.approx, abs=0.01)


class Mark:
    """Recorded at `host`, passed at `device`; both in ms."""

    def __init__(self, host: float, device: float) -> None:
        self.host_ns, self.device = int(host * MS), device


class DeviceClock(CpuClock):
    """A device's clock whose marks say when they were passed."""

    name = "cuda events"

    def ms(self, start: Mark, end: Mark) -> float:  # type: ignore[override]
        return end.device - start.device

    def recycle(self, marks: Sequence[Mark]) -> None:  # type: ignore[override]
        """Nobody looks again."""


def fail(error: Exception) -> None:
    raise error


class Rank:
    """A rank whose step takes its host 6 ms: 1 in the loader, 2 in forward, 3 in backward."""

    def __init__(self) -> None:
        self.clock = DeviceClock()
        self.recorder = EventLog(self.clock, LossReader(), fail)
        self.replay, self.times = StepAssembler(self.recorder), HostTimes()
        self.step = 0

    def take(self, host: float, device: float, wait: float, stands_for: int = 0) -> None:
        """A step whose loader begins at `host`; its forward is passed at `device`, and its device waits `wait`.

        With `stands_for` there are so many collectives in forward, of which one has marks.
        """
        put = self.recorder.put
        put("load", int(host * MS), Mark(host, device - 1) if self.step == 0 else None)
        put("loaded", int((host + 1) * MS), MS, None)
        put("forward", Mark(host + 1, device))
        if stands_for:
            put("barrier", Mark(host + 2, device + 1))
            put("barriered", Mark(host + 2.1, device + 1.5), stands_for)
        put("forwarded", Mark(host + 3, device + 2))
        put("ready", Mark(host + 6, device + 5))
        put("synced", Mark(host + 6, device + 5 + wait), self.step)
        put("seal")
        self.step += 1

    def rows(self) -> list[dict[str, float]]:
        self.replay.drain()
        found = []
        while self.replay.finished:
            record = self.replay.finished.popleft()
            elapsed = Elapsed(record, self.clock)
            row: StepRow = resolve(record, elapsed.ms, 0.0, self.times.of(record, elapsed))
            found.append(dict(zip(STEP_COLUMNS, row.values, strict=True)))
        return found


def test_host_times_leads_and_what_waits_held_up() -> None:
    rank = Rank()
    rank.take(host=0, device=101, wait=4)  # passed as it is launched, then waits for others until 110
    rank.take(host=6, device=111, wait=1)  # it waits while the host is at it, until 10
    first, second = rank.rows()
    assert [first[f"host_{name}"] for name in PHASES] == approx([1, 2, 3])
    assert (first["lead"], second["lead"]) == approx((0, 4))
    assert [first[f"held_{name}"] for name in PHASES] == [0, 0, 0]
    assert [second[f"held_{name}"] for name in PHASES] == approx([1, 2, 1])


@pytest.mark.parametrize(("stands_for", "held"), [(1, [1, 2, 1]), (3, [1, 2, 3])])
def test_collectives_without_marks_may_have_held_the_host_up_at_any_time(stands_for: int, held: list[float]) -> None:
    rank = Rank()
    rank.take(host=0, device=101, wait=4)  # its device waits while the host is at 6 to 10
    rank.take(host=6, device=111, wait=1, stands_for=stands_for)  # this step begins on the device as the host is at 10
    _, second = rank.rows()
    assert [second[f"held_{name}"] for name in PHASES] == approx(held)
    assert [second[f"host_{name}"] for name in PHASES] == approx([1, 2, 3])


def test_a_lead_no_launch_queue_can_hold_is_unknown_and_then_counts_anew() -> None:
    rank = Rank()
    rank.take(host=0, device=101, wait=1)
    hour = 3_600_000.0
    rank.take(host=7, device=108 + hour, wait=1)  # the machine slept, and its device's clock went on
    rank.take(host=14, device=115 + hour, wait=1)
    _, during, after = rank.rows()
    assert math.isnan(during["lead"])
    assert 0 <= after["lead"] < 1
    assert after["host_backward"] == 3


def test_a_device_clock_that_runs_fast_makes_no_lead() -> None:
    rank, fast = Rank(), 1 + 1e-4
    for step in range(2000):
        rank.take(host=100 * step, device=(100 * step + 1) * fast, wait=0)
    assert max(row["lead"] for row in rank.rows()) < 0.1


def test_no_time_is_negative_where_device_and_host_disagree() -> None:
    rank = Rank()
    for step in range(5):
        rank.take(host=10 * step, device=1e6 - 7 * step, wait=1)  # its clock goes back
    for row in rank.rows():
        known = [value for name, value in row.items() if name.startswith(("host_", "held_", "lead")) and value == value]
        assert min(known) >= 0


def test_a_wait_holds_the_host_up_although_an_earlier_one_lies_ahead_since_the_clock_went_back() -> None:
    rank = Rank()
    rank.take(host=0, device=1000, wait=5)
    rank.take(host=6, device=900, wait=5)
    rank.take(host=12, device=911, wait=1)
    third = rank.rows()[2]
    assert sum(third[f"held_{name}"] for name in PHASES) > 1


def test_a_host_clock_has_no_columns_of_the_host() -> None:
    recorder = EventLog(CpuClock(), LossReader(), fail)
    draft = draft_of(recorder)
    for kind, at in (("forward", 1), ("forwarded", 3), ("ready", 6)):
        recorder.put(kind, at * MS)
    recorder.put("synced", 7 * MS, 0)
    recorder.put("seal")
    draft.collect()
    steps = draft.word("running", 0).whole.steps
    assert (len(steps), steps.values.keys() & {*HOST_COLUMNS}) == (1, set())


IN_A_POD = ProcessFigures(
    cpu_pct=97.3,
    rss_bytes=6 << 30,
    threads=141,
    runqueue_pct=0.2,
    runqueue_all_pct=0.9,
    switches_per_s=3.1,
    cpus="0-31,64-95",
    compute_threads=8,
    workers=4,
    workers_cpu_pct=88.2,
    workers_rss_bytes=3 << 30,
    quota_cpus=15.5,
    quotas={"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0c9.slice": 15.5},
    throttled_pct=0.1,
    memory_limit=64 << 30,
    memory_used=40 << 30,
    oom_kills=0,
    read_bytes_s=12.1e6,
    write_bytes_s=0.5,
    gpu_memory=61 << 30,
    gpu_allocated=44 << 30,
    gpu_peak=58 << 30,
    alloc_retries=0,
    gpu_growth=0,
    nccl_groups=2,
    cpu_mhz=3400.1,
)


def test_a_frame_of_half_second_steps_stays_small_and_arrives_whole() -> None:
    """2.5 kB is the budget, with all columns and every figure that a rank with a GPU has in a container."""
    window = frames.Window()
    for step in range(60):
        window.add(StepRow(step, 0.5 * step, [500.0 + 0.1 * step for _ in STEP_COLUMNS]))
    rows, thinned = window.select(0.5 * 59)
    assert not thinned
    frame = rank_frame(
        0,
        70_000,
        frames.columns(rows),
        run_id="trainer-20260123-141644-ab12",
        host="node0005",
        node=3,
        pid=4_000_000,
        local_rank=7,
        gpu_uuid="GPU-5c2ad71c-5b4c-4b8e-8c5b-0a9a8a8a8a8a",
        sent_at=1.7e9 + 0.1,
        step_s=0.2,
        bucket_count=12,
        gradient_bytes=1 << 30,
        process=IN_A_POD,
        cost_us=12.3,
        job_step=100_000,
        job_total=600_000,
        eta_s=3.2e4,
        loader=Loader(4, 1000, ended=False),
        writer=0,
    )
    assert all(value is not None for value in asdict(IN_A_POD).values())
    assert len(encode(frame)) < 2500
    assert decode("rank", encode(frame), RankFrame) == frame
    rings = Rings(1)
    rings.add([(0, decode("rank", encode(frame), RankFrame).steps)])
    assert rings.of_device
    steps = np.arange(rows[0].step, 60)
    assert rings.take("lead", steps)[0].tolist() == pytest.approx([500 + 0.1 * step for step in steps], 1e-3)


def test_what_is_unknown_does_not_cross_the_store() -> None:
    bare = rank_frame(0, 1, frames.columns([]), process=ProcessFigures(rss_bytes=1))
    sent = msgspec.msgpack.decode(encode(bare))
    assert sent["schema_version"] == SCHEMA_VERSION
    assert sent["process"] == {"rss_bytes": 1}
    assert not {"buckets", "stall", "failure", "notes", "eta_s"} & sent.keys()
    assert decode("rank", encode(bare), RankFrame) == bare


def test_frames_of_a_host_clock_are_as_they_were() -> None:
    rows = [StepRow(step, 0.0, [float(step)] * MEASURED_HERE) for step in range(16)]
    packed = frames.columns(rows)
    assert set(packed.values) == set(STEP_COLUMNS) - set(HOST_COLUMNS)
    rings = Rings(1)
    rings.add([(0, packed)])
    assert not rings.of_device


@pytest.mark.parametrize("wrong", [-1.0, -math.inf])
def test_host_times_that_cannot_be_are_unknown(wrong: float) -> None:
    rows = [StepRow(0, 0.0, [5.0] * MEASURED_HERE + [wrong] * len(HOST_COLUMNS))]
    rings = Rings(1)
    rings.add([(0, frames.columns(rows))])
    assert all(math.isnan(rings.take(name, np.arange(1))[0, 0]) for name in HOST_COLUMNS)
