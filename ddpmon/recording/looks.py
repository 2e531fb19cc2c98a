"""What one tick of a watcher took in, as it lies in a recording: packed, and unpacked into what the `Run` takes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.codec import encode
from ddpmon.figures import FIGURES, PLACE
from ddpmon.parts import Text
from ddpmon.run.host_rows import HostRows
from ddpmon.run.model import SILENT_S, Run
from ddpmon.run.series import seeds
from ddpmon.schema import (
    HOST_COLUMNS,
    STEP_COLUMNS,
    HistoryFrame,
    NodeFrame,
    RankFrame,
    StepColumns,
    StepRows,
)
from ddpmon.snapshot import Finding, LinkState, RunState

MOST_BYTES = 1 << 28  # that a look or a key is unpacked to; the histories of 4,096 ranks take 63 MB
_LEVEL = 1  # of zlib: the fastest, because the watcher waits for it
_DICTIONARY_BYTES, _RANKS = 32 << 10, 32  # that zlib looks back; ranks whose frames may have a place in them
Ages = dict[int, float]


class DamageError(ValueError):
    """A part of a recording that cannot be read; the message is a sentence."""


class Rows(Struct, frozen=True, array_like=True, tag="rows", gc=False):
    """The figures of n ranks, as host frames brought them.

    Attributes:
        ranks: n little-endian int32, each rank once. first: n bytes, 1 where the host frame was its writer's first.
        phase: n little-endian uint16, places in `phases`.
        figures: n rows of float64, each exclusive-or the row of the same rank before, as planes of bytes.
        steps: those that were not on record; their values as planes of bytes.
    """

    ranks: bytes
    first: bytes
    phase: bytes
    phases: list[Text]
    figures: bytes
    steps: list[StepRows]


class Whole(Struct, frozen=True, array_like=True, tag="whole", gc=False):
    """Rank frames as they cross the store, without steps on record; `ages` are those of old ones in s, by rank."""

    frames: list[bytes]
    ages: Ages


class Nodes(Struct, frozen=True, array_like=True, tag="nodes", gc=False):
    """Frames of hosts as they cross the store; `ages` are those of old ones in s, by host."""

    frames: list[bytes]
    ages: Ages


class Histories(Struct, frozen=True, array_like=True, tag="histories", gc=False):
    """What ranks remembered when the watcher came; `are_last`: no further ones come."""

    frames: list[bytes]
    are_last: bool = True


Part = Rows | Whole | Nodes | Histories


class Look(Struct, frozen=True, array_like=True):
    """One tick of a watcher.

    Attributes:
        read_at, wall: when, in seconds on the watcher's monotonic clock and as Unix time.
        parts: what came in, in its order.
        is_settled, is_judged: as `watcher.tap.Tick` has them.
        link, reason, ended, source: how the watcher stood with the store.
        refused, rejected: frames that were not believed, and why others could not be accepted, up to now.
        findings: what the watcher said then; None where it said nothing new.
    """

    read_at: float
    wall: float
    parts: list[Part]
    is_settled: bool
    is_judged: bool
    link: LinkState
    reason: str
    ended: RunState | None
    source: str
    refused: int
    rejected: dict[str, int]
    findings: Annotated[list[Finding], Meta(max_length=10_000)] | None


_look = msgspec.msgpack.Decoder(Look)
_key = msgspec.msgpack.Decoder(list[Part])
_encoder = msgspec.msgpack.Encoder()


def squeezed(content: Any, dictionary: bytes) -> bytes:
    """A look, or the parts of a key, compressed; `dictionary` holds what it repeats, such as the key of its chunk."""
    data = _encoder.encode(content)
    if not dictionary:
        return zlib.compress(data, _LEVEL)
    packer = zlib.compressobj(_LEVEL, zdict=dictionary)
    return packer.compress(data) + packer.flush()


def dictionary_of(key: Sequence[Part]) -> bytes:
    """What the looks of a chunk repeat: the frames of its key, those of hosts last because they repeat most."""
    ranks = [frame for part in key if isinstance(part, Whole) for frame in part.frames[:_RANKS]]
    hosts = [frame for part in key if isinstance(part, Nodes) for frame in part.frames]
    return b"".join([*ranks, *hosts])[-_DICTIONARY_BYTES:]


def unsqueezed(data: bytes, dictionary: bytes) -> bytes:
    """The reverse.

    Raises:
        DamageError: it cannot be read, or is larger than a look can be.
    """
    try:
        opener = zlib.decompressobj(zdict=dictionary) if dictionary else zlib.decompressobj()
        content = opener.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise DamageError(f"what it holds cannot be unpacked ({error})") from None
    if not opener.eof:
        raise DamageError("what it holds is cut off, or larger than 256 MiB")
    return content


def look_of(content: bytes) -> Look:
    """A look from its bytes.

    Raises:
        DamageError: they are no look.
    """
    try:
        return _look.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"what it holds is no look ({error})") from None


def key_of(content: bytes) -> list[Part]:
    """The parts of a key from their bytes.

    Raises:
        DamageError: they are none.
    """
    try:
        return _key.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(f"what it holds is no key ({error})") from None


def planes(values: NDArray[Any]) -> bytes:
    """Values as planes of bytes: first all first bytes, then all second ones. Alike bytes stand together then."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T.tobytes()


class Packer:
    """Packs what a watcher is about to take in.

    Args:
        world_size: of the run.
    """

    def __init__(self, world_size: int) -> None:
        self._before = np.zeros((world_size, len(FIGURES)), np.uint64)

    def begin(self) -> None:
        """Begin a chunk: what follows can be unpacked without what came before."""
        self._before[:] = 0

    def rows(self, run: Run, rows: HostRows) -> Rows:
        """Figures; steps that `run` has on record are left out."""
        ranks = rows.ranks
        figures = np.ascontiguousarray(rows.figures, np.float64).view(np.uint64)
        apart = figures ^ self._before[ranks]
        self._before[ranks] = figures
        phases = [*dict.fromkeys(rows.phase.tolist())]
        place = {phase: at for at, phase in enumerate(phases)}
        return Rows(
            ranks=ranks.astype("<i4").tobytes(),
            first=rows.first.astype(np.uint8).tobytes(),
            phase=np.array([place[phase] for phase in rows.phase.tolist()], "<u2").tobytes(),
            phases=phases,
            figures=planes(apart.T),
            steps=[*_new_steps(run, rows)],
        )

    def ranks(self, run: Run, frames: Sequence[RankFrame], ages: Mapping[int, float]) -> Whole:
        """Whole frames; steps that `run` has on record are left out."""
        return Whole([encode(_without_known(run, frame)) for frame in frames], dict(ages))

    def nodes(self, frames: Sequence[NodeFrame], ages: Mapping[int, float]) -> Nodes:
        """Frames of hosts."""
        return Nodes([encode(frame) for frame in frames], dict(ages))

    def histories(self, frames: Sequence[HistoryFrame], *, are_last: bool) -> Histories:
        """Histories, of whose older part only what is drawn is kept."""
        return Histories([encode(replace(frame, older=seeds(frame.older))) for frame in frames], are_last)


def _new_steps(run: Run, rows: HostRows) -> list[StepRows]:
    found = []
    place = np.full(run.info.world_size, -1)
    place[rows.ranks] = np.arange(len(rows.ranks))
    for who, steps, tables in rows.steps_of(np.ones(len(rows.ranks), np.bool_)):
        new = run.rings.new(who, steps)
        if new.size:
            (wide, values), (narrow, halves) = tables
            found.append(
                StepRows(
                    columns=sum(1 << STEP_COLUMNS.index(name) for name in (*wide, *narrow)),
                    place=place[who[new]].astype("<u2").tobytes(),
                    step=planes(steps[new].astype("<i8")),
                    values=planes(values[new].T.astype("<f4")),
                    halves=planes(halves[new].T.astype("<f2")),
                )
            )
    return found


def _without_known(run: Run, frame: RankFrame) -> RankFrame:
    """A rank's frame without the steps on record; those of another process, or of a first frame, are all new."""
    rank, latest = frame.rank, run.latest
    known = run.ranks[rank] is not None and (frame.pid, frame.host) == (latest.pid[rank], latest.host[rank])
    seq, sent_at = latest.figures[rank, PLACE["seq"]], latest.figures[rank, PLACE["sent_at"]]
    again = frame.seq < seq and frame.sent_at - sent_at > SILENT_S  # as `Run` tells a number that is used again
    if not known or again or not len(frame.steps):
        return frame
    steps = np.frombuffer(frame.steps.step, "<i8").astype(np.int64)
    new = run.rings.new(np.full(len(steps), rank), steps)
    if len(new) == len(steps):
        return frame
    values = {
        name: np.frombuffer(column, "<f2" if name in HOST_COLUMNS else "<f4")[new].tobytes()
        for name, column in frame.steps.values.items()
    }
    return replace(frame, steps=StepColumns(steps[new].astype("<i8").tobytes(), values, frame.steps.stride))
