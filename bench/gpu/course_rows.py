"""The rows of the GPU course, the most valuable first: what each measures, and what would refute it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row of the course.

    Attributes:
        name: its script is `row_<name>.py`.
        limit_s: seconds after which it is stopped; about twice what it should take on a GPU.
        proves: what is claimed.
        refuted_if: figures under which the claim is wrong.
        rehearsed: what a rehearsal on CPUs runs of it.
    """

    number: int
    name: str
    limit_s: float
    measured: str
    proves: str
    refuted_if: str
    rehearsed: str


ROWS = (
    Row(
        1,
        "host_bound",
        300.0,
        "work and verdicts while a communication hook makes the device wait 0 or 20 ms",
        "a host-bound rank's work shrinks while it waits; own pace names the late rank, and nobody where none is late",
        "waiting changes work by less than 10 % in all four jobs, or a verdict names the wrong rank or gain",
        "all runs and verdicts, on the host's clock, where waiting changes no work",
    ),
    Row(
        2,
        "interpreter",
        120.0,
        "how long a second thread stands still beside launches, records and queries on a busy device",
        "torch's event calls keep the interpreter while the driver blocks them; calls through ctypes do not",
        "less than 20 ms everywhere, or 20 ms by ctypes",
        "the second thread and its queries, beside a sleeping host",
    ),
    Row(
        3,
        "stuck_device",
        120.0,
        "a device that is stuck for 28 s, and one that waits for it",
        "marks tell the culprit's phase from the victim's, and the verdict names the culprit",
        "marks do not tell the phase, or the verdict names another rank or nobody",
        "both processes, their frames and the verdict, with a sleeping host",
    ),
    Row(
        4,
        "matrix",
        420.0,
        "known spins in 21 settings (streams, no_sync, checkpointing, AMP, compile, graphs, buckets, ...)",
        "spins land in their phase, and ddpmon synchronises nothing",
        "a phase is off by more than 15 %, a step is lost, or a step synchronises once more than without ddpmon",
        "16 settings with sleeps; no streams, no CUDA graphs, no synchronisation check",
    ),
    Row(
        5,
        "gpu_tests",
        300.0,
        "tests/probe/test_probe_gpu.py",
        "phases, losses and buckets on NCCL are right, and nothing synchronises",
        "a test fails or is skipped",
        "the tests are collected, and skipped",
    ),
    Row(
        6,
        "spinning",
        120.0,
        "a backward beside a kernel that holds 0 to 32 SMs, as NCCL's does that waits",
        "a waiting rank's backward is slower, so that comparing work hides part of a straggler",
        "less than 5 % beside 24 SMs",
        "the backwards, with nothing held beside them",
    ),
    Row(
        7,
        "cost",
        240.0,
        "µs of a mark and its parts; a step with and without ddpmon, in turns",
        "a step takes at most 30 µs more",
        "more, as the median of all pairs, at either size",
        "all of it, with the host's marks",
    ),
    Row(
        8,
        "graphs",
        150.0,
        "a CUDA graph captured beside the publisher, and a whole step replayed for 14 s",
        "captures hold, and replays are not taken for a hang",
        "the capture breaks, measuring stops, or a critical finding",
        "the four processes, without graphs",
    ),
    Row(
        9,
        "nvml",
        120.0,
        "cost of each NVML call, UUID, processes, Xid events, memory outside torch; small kernels beside readings",
        "a reading is cheap and right, and disturbs nothing",
        "a reading takes 50 ms, kernels are 5 % slower in three of four turns, UUIDs differ, or no Xid events",
        "a simulated board's readings",
    ),
    Row(
        10,
        "bits",
        300.0,
        "losses and parameters of the trainer: off, off again, on, with bucket detail",
        "ddpmon changes no bit",
        "on or buckets differ from off, where off again does not",
        "all of it, with Gloo",
    ),
    Row(
        11,
        "two_ranks",
        240.0,
        "two ranks on one GPU through Gloo: three faults, to `ddpmon status --json`",
        "the command names the late rank and its phase",
        "another rank, another phase, or nobody",
        "all of it, with sleeps on CPU tensors",
    ),
    Row(
        12,
        "lasting",
        180.0,
        "forked DataLoader workers and children; a minute of short steps",
        "no child dies, and events, memory and threads do not grow",
        "a child is aborted, or growth",
        "all of it but the events, for 12 s",
    ),
    Row(
        13,
        "any_run",
        400.0,
        "jobs under `ddpmon run`: torch.compile around and inside DDP, GradScaler, FSDP2, Lightning",
        "they are watched without a line of code, and no bit changes",
        "losses or parameters differ, a phase is missing, or another loss is said than the job's",
        "all of it, with Gloo",
    ),
)
