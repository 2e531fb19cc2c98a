"""The parts of frames: bounds of what may cross the store, and what a rank says of itself when something is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

MAX_RANKS = 1 << 17
NO_HOST = "host unknown"  # of ranks that nobody has said the host of
NO_ANSWER = "no answer"  # of a device whose driver has not come back from a query

Number = Annotated[float, Meta(ge=-1e15, le=1e15)]  # neither NaN nor infinite
Text = Annotated[str, Meta(max_length=256)]
Line = Annotated[str, Meta(max_length=1024)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
StepNumber = Annotated[int, Meta(ge=-1, le=1 << 48)]
RankNumber = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]


JobIds = Annotated[dict[Text, Text], Meta(max_length=16)]  # who names the job of a run -> its name there


def wire_text(text: Any, most: int = 256) -> str:
    """Foreign text as it may cross the store: valid UTF-8 of at most `most` characters.

    Whatever cannot be turned into text is named by its type, so that this never raises.
    """
    try:
        return str(text)[:most].encode("utf-8", "replace").decode()
    except Exception:
        return type(text).__name__[:most]


class StackFrame(Struct, frozen=True, gc=False):
    """One line of a Python stack; `own` tells the user's code from the standard library's and installed packages'."""

    file: Line
    line: Count
    function: Text
    source: Line = ""
    own: bool = True


class Stack(Struct, frozen=True, gc=False):
    """One thread's Python stack, most recent call last."""

    thread: Text
    frames: Annotated[list[StackFrame], Meta(max_length=64)]


class Flight(Struct, frozen=True, gc=False):
    """The flight recorder's summary of one process group: collectives counted by the backend's sequence number.

    Attributes:
        last_enqueued: the newest collective that this rank has entered, -1 for none.
        last_completed: the newest that has completed here, -1 for none or unknown.
        operation: what `last_enqueued` is, such as "gloo:all_reduce", with its sizes.
    """

    group: Text
    last_enqueued: Annotated[int, Meta(ge=-1, le=1 << 48)]
    last_completed: Annotated[int, Meta(ge=-1, le=1 << 48)]
    operation: Text = ""


class Stall(Struct, frozen=True, gc=False):
    """What a rank without progress is in: captured by its watchdog, the training thread's stack first.

    Attributes:
        seconds: without a finished step.
        moves: whether that thread got on in the last seconds: it computes, and in no loop of its own, or it sleeps in
            many places.
        write_bytes_s: what the process has written to disks a second in the last ten.
        device_phase: the last phase of the pending step that the device has reached, in the words of `RankFrame.phase`;
            the host may be further on. Empty where the clock is the host's, and where it is unknown.
        device_error: why the device cannot go on ("700 (illegal memory access)"), or `NO_ANSWER`; empty if neither.
        graph_replay_s: seconds since the last replay of a CUDA graph that holds whole steps; None without one.
    """

    seconds: Number
    stacks: Annotated[list[Stack], Meta(max_length=8)] = []
    flights: Annotated[list[Flight], Meta(max_length=8)] = []
    moves: bool = False
    write_bytes_s: Number = 0.0
    device_phase: Text = ""
    device_error: Text = ""
    graph_replay_s: Number | None = None


class Failure(Struct, frozen=True, gc=False):
    """The exception that ended a rank.

    `step` is the last one that it had finished, `traceback` holds the last lines, most recent call last.
    """

    kind: Text
    message: Line
    step: StepNumber
    traceback: Annotated[list[Line], Meta(max_length=32)] = []


MOST_ATTEMPTS, MOST_ENDS = 16, 8  # attempts of a run, and ranks of each that are named


class FailedRank(Struct, frozen=True):
    """A rank that ended with an error, and which."""

    rank: RankNumber
    reason: Text = ""


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt of an elastic run that is over, as its ranks told last.

    Attributes:
        run_id: the run that it was.
        restart: how often the launcher had restarted the ranks before it.
        ended_at: when a rank spoke last, in Unix seconds; None where none did.
        step: the newest that was finished, -1 for none.
        failed: ranks that ended with an error, the first of `failed_count`: those that caused it before those that
            followed.
        vanished: ranks that said nothing of their end, the first of `vanished_count`.
    """

    run_id: Text
    restart: Count = 0
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)] = 1
    ended_at: Annotated[float, Meta(gt=0, lt=1 << 32)] | None = None
    step: StepNumber = -1
    failed: Annotated[list[FailedRank], Meta(max_length=MOST_ENDS)] = []
    failed_count: Count = 0
    vanished: Annotated[list[RankNumber], Meta(max_length=MOST_ENDS)] = []
    vanished_count: Count = 0


class BadLoss(Struct, frozen=True, gc=False):
    """Losses of this rank that were not finite: how many, the first step and the last, and what the first one was."""

    first_step: StepNumber
    last_step: StepNumber
    count: Count
    value: Literal["nan", "inf", "-inf"]


class Loader(Struct, frozen=True, gc=False):
    """The DataLoader read last on the training thread: its workers, batches of this pass, whether it has ended."""

    workers: Count
    batches: Count
    ended: bool


class Settings(Struct, frozen=True, gc=False):
    """How DDP was set up: what tuning advice rests on. None is unknown."""

    gradient_as_bucket_view: bool | None = None
    find_unused_parameters: bool | None = None
    static_graph: bool | None = None
    gradient_dtype: Text | None = None
    comm_hook: Text | None = None
    bucket_cap_bytes: Count | None = None
