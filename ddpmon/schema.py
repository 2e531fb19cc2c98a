"""What crosses the store: frames and their bounds; `codec` encodes and decodes them.

Durations are milliseconds, sizes bytes, wall-clock times Unix seconds (for display only: no clocks are compared).
Step records travel as columns: one int64 column of step numbers and one little-endian float32 column a quantity
(float16 for the host's side of a device's steps), with NaN where a value is missing.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from ddpmon.figures import State
from ddpmon.machine import GpuFigures, HostFigures, ProcessFigures
from ddpmon.parts import (
    MAX_RANKS,
    MOST_ATTEMPTS,
    Attempt,
    BadLoss,
    Count,
    Failure,
    JobIds,
    Loader,
    Number,
    RankNumber,
    Settings,
    Stall,
    StepNumber,
    Text,
)

SCHEMA_VERSION = 4
OLDEST_READ = 1  # of frames other than host frames, whose columns have changed since

PHASES = ("input", "forward", "backward", "optimizer", "other")
# Where the clock is a device's: the host time of each phase, how long the device waited for other ranks meanwhile, the
# host time from the last gradient to the sync point, and the host's lead over the device as it launches the forward.
HOST_COLUMNS = (*(f"host_{name}" for name in PHASES), *(f"held_{name}" for name in PHASES), "host_exposed", "lead")
STEP_COLUMNS = (
    "duration",
    "input",
    "forward",
    "backward",
    "optimizer",
    "exposed",
    "barrier",
    "marked",  # time inside `with monitor.phase(name)`: evaluation, checkpoint
    "allreduce",
    "gc",  # time inside Python's garbage collector, whatever phase it fell into
    "loss",
    "samples",
    "tokens",
    *HOST_COLUMNS,
)
_WIDE = (1 << len(STEP_COLUMNS) - len(HOST_COLUMNS)) - 1  # the columns of float32: the first of them
MAX_ROWS = 1024
MAX_BUCKETS = 1024
MAX_FRAME_BYTES = 1 << 20
MAX_HOST_RANKS = 1024
MAX_LAYOUTS = 64  # sets of columns in one host frame
HANDED_S = 6.5  # a frame has the steps of these seconds: it outlasts the pause between two histories and whole frames


class FrameError(ValueError):
    """A frame that cannot be accepted; the message names the key and the reason."""


class SchemaMismatchError(FrameError):
    """A frame of another schema version."""


class StepColumns(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Step records as columns of equal length n.

    Attributes:
        step: n little-endian int64, ascending: synchronising steps counted from 0.
        values: column name (of `STEP_COLUMNS`) -> n little-endian float32; those of `HOST_COLUMNS` are float16.
        stride: steps that one row stands for (its values are then means over them).
    """

    step: bytes = b""
    values: dict[Text, bytes] = {}
    stride: Annotated[int, Meta(ge=1, le=1 << 40)] = 1

    def __len__(self) -> int:
        return len(self.step) // 8


class BucketColumns(Struct, frozen=True, forbid_unknown_fields=True):
    """Bucket detail: per step and bucket `done_b - max(launch_b, done_{b-1})` in ms.

    Attributes:
        step: n little-endian int64.
        sizes: bytes of each of the k buckets.
        ms: n*k little-endian float32, row-major.
    """

    step: bytes = b""
    sizes: Annotated[list[Count], Meta(max_length=MAX_BUCKETS)] = []
    ms: bytes = b""


class RunInfo(Struct, frozen=True, kw_only=True):
    """What rank 0 says of the run, once.

    `restart`, `max_restarts` and `launch` are torchrun's; `attempts` are those before this one, the oldest first. What
    `jobs` holds is said in `probe/job_ids.py`.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: Text
    name: Text
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    node_keys: Annotated[list[RankNumber], Meta(max_length=MAX_RANKS)]
    backend: Text
    device: Text
    parameters: Count
    gradient_bytes: Count
    bucket_detail: bool
    settings: Settings = Settings()
    started_at: Number
    host: Text
    pid: Count
    versions: dict[Text, Text]
    command: Text = ""  # that started rank 0
    restart: Count = 0
    max_restarts: Count | None = None
    launch: Text = ""
    attempts: Annotated[list[Attempt], Meta(max_length=MOST_ATTEMPTS)] = []
    parallel: Text = "ddp"  # ddp, dp, fsdp2, fsdp1, replicate, horovod, deepspeed
    loss_from: Text = ""  # where `ddpmon run` reads the losses; empty where the script logs them
    samples_from: Text = ""
    jobs: JobIds = {}


class Mark(Struct, frozen=True):
    """A phase that the user named (`with monitor.phase("eval")`) and the step that its time fell into."""

    step: Count
    name: Text
    ms: Number


class RankFrame(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one rank says: once a second, or every five where a host frame carries its figures.

    `writer` is the rank whose host frames do, -1 for none. A field that has its default does not cross the store, but
    for the version.
    """

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)  # a value would be left out
    run_id: Text
    rank: RankNumber
    seq: Count
    sent_at: Number
    host: Text
    node: Annotated[int, Meta(ge=-1, lt=MAX_RANKS)]  # -1: unknown, the host name tells
    pid: Count
    local_rank: RankNumber
    gpu_uuid: Text | None
    state: State
    phase: Text
    step: StepNumber  # the last finished synchronising step, -1 before the first
    phase_s: Number
    step_s: Number | None = None  # seconds since that step finished
    steps: StepColumns
    thinned: Count = 0  # steps of the frame's time span left out to keep it bounded
    buckets: BucketColumns | None = None
    bucket_count: Count = 0
    bucket_sizes: Annotated[list[Count], Meta(max_length=MAX_BUCKETS)] = []  # bytes, as DDP's log has them; of rank 0
    buckets_rebuilt: bool | None = None
    gradient_bytes: Count = 0
    marks: Annotated[list[Mark], Meta(max_length=64)] = []
    process: ProcessFigures | None = None
    dropped_steps: Count = 0
    dropped_frames: Count = 0
    cost_us: Number | None = None  # the probe's own time on the training thread, per step
    job_step: Count | None = None  # the last step that the job itself has finished, by its own count
    job_total: Count | None = None  # how many steps it will make
    eta_s: Number | None = None  # seconds until then, at the pace of the last ten minutes
    stall: Stall | None = None
    failure: Failure | None = None
    bad_loss: BadLoss | None = None
    loader: Loader | None = None
    notes: Annotated[list[Text], Meta(max_length=16)] = []
    writer: Annotated[int, Meta(ge=-1, lt=MAX_RANKS)] = -1


class StepRows(Struct, frozen=True, array_like=True, gc=False):
    """Step records of several ranks of a host, which have the same columns: n rows.

    Attributes:
        columns: bit i is set for column i of `STEP_COLUMNS`.
        place: n little-endian uint16: whose row it is, as the place in the host frame's ranks.
        step: n little-endian int64: synchronising steps counted from 0, those of a rank ascending.
        values: n*k little-endian float32, row-major: the columns, but for those of `HOST_COLUMNS`.
        halves: n*h little-endian float16: those of `HOST_COLUMNS`.
    """

    columns: Annotated[int, Meta(ge=0, lt=1 << len(STEP_COLUMNS))]
    place: bytes
    step: bytes
    values: bytes
    halves: bytes = b""


class HostFrame(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The newest figures of several ranks of a host, once a second, by one of them: `rank`.

    Attributes:
        ranks: n little-endian int32, each rank once.
        figures: n rows of little-endian float64, one value for each of `ddpmon.figures.FIGURES`.
        phases: the phases that the ranks are in, each once; their figures have the place.
        steps: the steps of the last seconds.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: Text
    rank: RankNumber
    seq: Count
    sent_at: Number
    ranks: bytes
    figures: bytes
    phases: Annotated[list[Text], Meta(max_length=MAX_HOST_RANKS)]
    steps: Annotated[list[StepRows], Meta(max_length=MAX_LAYOUTS)] = []


class HistoryFrame(Struct, frozen=True, kw_only=True, gc=False):
    """One rank's past, every five seconds or 129 steps: the last 256 steps whole, everything older decimated."""

    schema_version: int = SCHEMA_VERSION
    run_id: Text
    rank: RankNumber
    recent: StepColumns
    older: StepColumns


class NodeFrame(Struct, frozen=True, kw_only=True, gc=False):
    """One host, once a second, by one of its ranks; `cost_pct` is what its sampling takes, in percent of a core."""

    schema_version: int = SCHEMA_VERSION
    run_id: Text
    node: RankNumber
    seq: Count
    sent_at: Number
    host: Text
    figures: HostFigures = HostFigures()
    gpus: Annotated[list[GpuFigures], Meta(max_length=64)] = []
    cost_pct: Number | None = None
    notes: Annotated[list[Text], Meta(max_length=16)] = []


Frame = RunInfo | RankFrame | HistoryFrame | HostFrame | NodeFrame
F = TypeVar("F", RunInfo, RankFrame, HistoryFrame, HostFrame, NodeFrame)


def names_of(columns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the columns that `StepRows.columns` stands for: those of float32, and those of float16."""
    names = [name for place, name in enumerate(STEP_COLUMNS) if columns >> place & 1]
    return tuple(name for name in names if name not in HOST_COLUMNS), tuple(n for n in names if n in HOST_COLUMNS)


def widths(columns: int) -> tuple[int, int]:
    """How many columns of float32 and of float16 `StepRows.columns` stands for."""
    return (columns & _WIDE).bit_count(), (columns & ~_WIDE).bit_count()
