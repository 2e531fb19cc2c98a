"""One frozen picture of a run: everything that a face (screen, JSON, report) draws, and nothing else.

Arrays are owned by the snapshot and never written again. Per-rank arrays have one entry a rank, in rank order
(index == rank). Durations are milliseconds; NaN (or None, or -1 for a step) is "unknown".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Severity
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.pending import Pending
from ddpmon.machine import GpuFigures, HostFigures, ProcessFigures
from ddpmon.parts import Attempt, Failure, Stall
from ddpmon.schema import RunInfo
from ddpmon.shell_command import Advice

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RunState = Literal["running", "stalled", "finished", "failed", "killed", "cancelled", "restarting", "lost"]
LinkState = Literal["waiting", "live", "silent", "gone"]


def is_over(state: RunState | str) -> bool:
    """Whether the run has ended for good, so that nothing more is to be expected of it."""
    return state in ("finished", "failed", "killed", "cancelled")


@dataclass(frozen=True, slots=True)
class Link:
    """How the watcher stands with the store.

    Attributes:
        state: "waiting" (no run found yet), "live", "silent" (the store does not answer), "gone" (it has ended or died;
            the last picture is kept).
        message: a sentence for a person; empty while live, except for a minute after another run has taken its place.
    """

    state: LinkState
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """Which run this is. `nodes` are host names in node order; `source` is the URL it is read from.

    `restart`, `max_restarts` and `launch` are the launcher's, and `attempts` how those before this one ended.
    `step_age_s` is how long ago any rank finished a step, as the ranks tell; None where they do not.
    """

    id: str
    name: str
    state: RunState
    world_size: int
    nodes: tuple[str, ...]
    backend: str
    step: int | None
    elapsed_s: float | None
    source: str
    step_age_s: float | None = None
    restart: int = 0
    max_restarts: int | None = None
    launch: str = ""
    attempts: tuple[Attempt, ...] = ()
    parallel: str = "ddp"  # ddp, dp, fsdp2, fsdp1, replicate
    loss_from: str = ""  # where `ddpmon run` reads losses and samples; empty where the script logs them
    samples_from: str = ""
    jobs: tuple[tuple[str, str], ...] = ()  # who names its job, and how
    info: RunInfo | None = None  # what rank 0 says of it
    buckets: int | None = None  # of a reduction, as DDP tells
    bucket_sizes: tuple[int, ...] = ()  # bytes, in the order of the reductions; empty where DDP does not tell
    buckets_rebuilt: bool | None = None  # whether DDP has put them in the order in which gradients become ready


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the run is seen: ranks that exist, ranks heard from lately, age of the oldest word.

    `unread_histories` is of how many ranks the past is still to be read; nothing is judged until then.
    """

    expected: int
    reporting: int
    oldest_age_s: float | None
    unread_histories: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    """Figures of the whole job, medians over the last 20 steps (docs/design.md "Formulas")."""

    step_ms: float | None = None
    throughput: float | None = None
    throughput_unit: str = "steps/s"
    throughput_ranks: int | None = None  # that it is of, where others are at other steps, None where it is of all
    loss: float | None = None
    sync_efficiency: float | None = None  # 0..1
    lost_to_waiting_pct: float | None = None
    waiting_for: tuple[int, ...] = ()  # the ranks that the others wait for most, worst first
    allreduce_ms: float | None = None
    exposed_ms: float | None = None
    busbw_gb_s: float | None = None
    monitor_us: float | None = None  # the probe's own time on the training thread, per step
    dropped: int = 0
    tokens_per_s: float | None = None
    job_step: int | None = None  # the steps that the job has finished by its own count
    job_total: int | None = None
    eta_s: float | None = None  # until the last of them


@dataclass(frozen=True, slots=True)
class Ranks:
    """Per-rank columns; durations are medians of the rank's last 20 steps."""

    host: tuple[str, ...]
    state: tuple[str, ...]  # running, stalled, finished, failed, lost, or unknown
    phase: tuple[str, ...]
    gpu: tuple[GpuFigures | None, ...]
    process: Sequence[ProcessFigures | None]
    stall: tuple[Stall | None, ...]  # of ranks without progress
    failure: tuple[Failure | None, ...]
    node: Ints
    local_rank: Ints
    pid: Ints
    step: Ints
    out_of_step: NDArray[np.bool_]  # at other steps than the rest, as after a restart alone
    age_s: Floats
    loss: Floats
    step_ms: Floats
    work_ms: Floats
    exposed_ms: Floats
    barrier_ms: Floats
    wait_ms: Floats  # exposed + barrier
    allreduce_ms: Floats
    lateness_ms: Floats  # as `report.build.lateness_as_found` has it
    input_ms: Floats
    forward_ms: Floats
    backward_ms: Floats
    optimizer_ms: Floats
    other_ms: Floats
    figures: Mapping[str, Floats]  # those of `ddpmon.figures` by name

    def __len__(self) -> int:
        return len(self.host)

    def column(self, name: str) -> Floats:
        """[world] a column by its name here or among the figures."""
        found: Floats = self.figures[name] if name in self.figures else getattr(self, name)
        return found


Metric = Literal[
    "lateness", "work", "wait", "input", "allreduce", "gpu", "power", "clock", "memory", "resident", "loss"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heat:
    """One metric by rank and step.

    Attributes:
        step: [W] the step numbers, ascending and contiguous.
        values: [world size, W] of the metric in its unit: ms; of "gpu" %, of "power" W, of "clock" MHz, of "memory" and
            "resident" GiB, of "loss" none.
        base_ms: [W] what each step takes if no rank is late: the median work and the shortest wait.
        metric: which.
        typical: where this is a part of a larger one, the median of all values there; NaN otherwise.
    """

    step: Ints
    values: NDArray[np.float32]
    base_ms: NDArray[np.float32]
    metric: Metric = "lateness"
    typical: float = math.nan


@dataclass(frozen=True, slots=True)
class Series:
    """The run over all its steps, decimated where it is old: N points of median and band over ranks.

    At the Unix times `ended_at` [k] the steps `ended_step` [k] were seen to end.
    """

    step: Floats
    loss: Floats
    loss_low: Floats
    loss_high: Floats
    throughput: Floats
    step_ms: Floats
    ended_step: Floats = field(default_factory=lambda: np.empty(0))
    ended_at: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class MarkView:
    """A phase that the user named, such as an evaluation: the step that it fell into, and its longest time in ms."""

    step: int
    name: str
    ms: float


@dataclass(frozen=True, slots=True)
class BucketView:
    """The buckets of a reduction, medians over the newest steps of the least that any rank took.

    Attributes:
        sizes: bytes of each bucket.
        ms: [k] what each takes to transfer. exposed_ms: [k] the part of that which backward does not hide; NaN where
            unknown.
        first_step, last_step: the steps that these are medians over.
    """

    sizes: tuple[int, ...]
    ms: Floats
    exposed_ms: Floats
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The run over its newest W steps.

    Attributes:
        step: [W] ascending.
        late_pct: [W] lateness of the latest rank in percent of the base step (`Heat.base_ms`), NaN where unknown.
        late_rank: [W] which rank that is, -1 for none.
        step_ms, loss: [W] medians over ranks. allreduce_ms: [W] the same of the newest sample of each rank.
        busbw_gb_s: [W] bus bandwidth, only with bucket detail.
        marks: phases that the user named. buckets: with bucket detail.
        restarts: (step that the run was at, how many ranks restarted on their own then, the first of them).
    """

    step: Ints
    late_pct: Floats
    late_rank: Ints
    step_ms: Floats
    allreduce_ms: Floats
    busbw_gb_s: Floats
    loss: Floats
    marks: tuple[MarkView, ...] = ()
    buckets: BucketView | None = None
    restarts: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """One quantity of one rank over N moments, beside the same of other ranks.

    Attributes:
        step: [N] the step that the rank was at, ascending.
        own: [N] the rank's.
        others: [3, N] below which 5 %, 50 % and 95 % of the other ranks are; no rows where there are no others.
    """

    step: Ints
    own: Floats
    others: Floats


@dataclass(frozen=True, slots=True)
class RankDetail:
    """One rank over its last steps.

    Attributes:
        rank: which.
        courses: quantity -> its course. Of every step: the phases, work, wait, lateness (ms) and loss. Of every reading
            of its process and GPU: the figures of `ddpmon.run.resources.RESOURCES`.
        notes: what the rank says of its measuring.
        stall: where it is stuck, while it is. failure: what ended it.
    """

    rank: int
    courses: Mapping[str, Course]
    notes: tuple[str, ...] = ()
    stall: Stall | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One host as its node frame tells; None is what could not be read."""

    node: int
    host: str
    ranks: tuple[int, ...]
    age_s: float | None = None
    figures: HostFigures = field(default_factory=HostFigures)
    gpus: tuple[GpuFigures, ...] = ()
    cost_pct: float | None = None  # of a core, what the sampling takes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict in words: what, who, in which phase, since when, at what cost, and what to do.

    Attributes:
        kind: which of the table of kinds, such as "straggler" or "rank_lost".
        severity: "info", "warning" or "critical".
        summary: one sentence a tired person understands.
        ranks: the ranks it names, worst first; empty when nobody in particular.
        nodes: the hosts it names.
        phase: input, forward, backward, optimizer, other, work, or None.
        cause: what on that rank's machine explains it, or None.
        since_step: the first step of the trouble, None when steps do not apply.
        since_is_bound: the trouble began at or before `since_step`; nothing on record shows when.
        cost_pct: percent of the job's time that it costs, None when unknown.
        evidence: the numbers that it rests on, by the names of docs/json.md.
        advice: what to do or look at next; a face makes text of it, for the host that its reader is on.
        cleared_at_step: about the first step without it, None while it lasts.
        id: the number of its alert's life, by which its end is told from that of another; 0 where a rule keeps none.
        brief: the summary with lines of code as `train.py:88`; empty where it names none.
        tells_moment: the summary says itself at which past moment it happened, and is true ever since.
    """

    kind: KindName
    severity: Severity
    summary: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    phase: str | None = None
    cause: str | None = None
    since_step: int | None = None
    since_is_bound: bool = False
    cost_pct: float | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    advice: Advice = ""
    cleared_at_step: int | None = None
    id: int = 0
    brief: str = ""
    tells_moment: bool = False


@dataclass(frozen=True, slots=True)
class ReplayView:
    """Where a face stands in what was recorded.

    Attributes:
        t, length, wall: seconds since the recording began, how many there are, and the moment as Unix time.
        playing, speed: whether it goes on by itself, and how many times as fast as it was.
        is_live: whether a live run goes on behind it.
        is_exact: whether the findings have been judged again from the first frame on; else they are as they were said.
        notes: what of the recording is damaged.
    """

    t: float
    length: float
    wall: float
    playing: bool
    speed: float
    is_live: bool
    is_exact: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a face draws. `run` and what follows are None or empty until a run has been read.

    `taken_at` is Unix time, `taken_monotonic` the same moment on the monotonic clock, so that a face can age it.
    """

    link: Link
    taken_at: float
    taken_monotonic: float
    run: RunView | None = None
    coverage: Coverage | None = None
    job: JobView = JobView()
    ranks: Ranks | None = None
    heat: Heat | None = None  # lateness
    chosen_heat: Heat | None = None  # of another metric that the reader asks for
    series: Series | None = None
    timeline: Timeline | None = None
    nodes: Sequence[NodeView] = ()
    findings: tuple[Finding, ...] = ()  # the worst first; cleared ones last
    pending: tuple[Pending, ...] = ()  # what is seen and not confirmed, what is confirmed soonest first
    notices: tuple[str, ...] = ()  # what was set aside and why
    detail: RankDetail | None = None  # of the rank that the reader has in focus
    replay: ReplayView | None = None  # of a moment of the past
    findings_now: tuple[Finding, ...] = ()  # of a live run, while a moment of its past is shown
    own_host: str = ""  # the run's name for the host that its reader is on; empty where it is read elsewhere
    reached: Finding | None = None  # what begins at the moment of the past that the keys `n` and `N` went to
    told: str = ""  # a sentence for the reader of the screen, such as where a report was written
