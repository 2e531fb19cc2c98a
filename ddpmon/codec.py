"""Encodes what crosses the store as msgpack, and decodes and validates what comes from there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from sys import getsizeof

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from ddpmon.figures import FIGURES
from ddpmon.parts import Stack, Text
from ddpmon.schema import (
    HOST_COLUMNS,
    MAX_FRAME_BYTES,
    MAX_HOST_RANKS,
    MAX_ROWS,
    OLDEST_READ,
    SCHEMA_VERSION,
    STEP_COLUMNS,
    BucketColumns,
    F,
    Frame,
    FrameError,
    HistoryFrame,
    HostFrame,
    NodeFrame,
    RankFrame,
    RunInfo,
    SchemaMismatchError,
    StepColumns,
    widths,
)

# Of the stacks that one rank sends, in memory: a line takes about 400 bytes, so these are 80 lines. Without this bound
# a rank could make a watcher keep 2 MB; frames of 85 kB of 256 ranks made one of 74 MB grow to 230 MB.
_MOST_STACKS_BYTES = 32 << 10


class _Header(Struct):
    schema_version: int


class _RunHeader(Struct):
    """What is read of the description of a run of any release."""

    versions: dict[Text, Text] = {}


class _ListHeader(Struct, array_like=True):
    """A host frame's: it has its fields as a list."""

    schema_version: int


_MOST_LAYOUTS = 64
_layouts: set[tuple[str, ...]] = set()  # columns, in an order in which they have come before
_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(_Header)
_run_header = msgspec.msgpack.Decoder(_RunHeader)
_list_header = msgspec.msgpack.Decoder(_ListHeader)
_decoders = {kind: msgspec.msgpack.Decoder(kind) for kind in (RunInfo, RankFrame, HistoryFrame, HostFrame, NodeFrame)}


def encode(frame: Frame) -> bytes:
    """Encode one frame as msgpack."""
    return _encoder.encode(frame)


def decode(key: str, data: bytes, kind: type[F]) -> F:
    """Decode and validate the frame found under `key`.

    Raises:
        SchemaMismatchError: the frame is of another schema version.
        FrameError: it is too large, malformed, its columns disagree in length, or a run has more hosts than ranks.
    """
    if len(data) > MAX_FRAME_BYTES:
        raise FrameError(f"{key}: {len(data)} bytes, more than the {MAX_FRAME_BYTES} allowed")
    try:
        frame = _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _check_version(key, data, kind)
        raise FrameError(f"{key}: not a {kind.__name__}: {error}") from None
    if not _oldest(kind) <= frame.schema_version <= SCHEMA_VERSION:  # type: ignore[attr-defined]  # all have one
        _check_version(key, data, kind)
    _check_columns(key, frame)
    return frame  # type: ignore[return-value]  # the table above maps each kind to its own decoder


def _bounded(stacks: Sequence[Stack]) -> list[Stack]:
    """The first of these stacks, the training thread's among them, as far as they take `_MOST_STACKS_BYTES`."""
    kept, left = list[Stack](), _MOST_STACKS_BYTES
    for stack in stacks:
        left -= sum(map(getsizeof, chain.from_iterable((f, f.file, f.function, f.source) for f in stack.frames)))
        if left < 0:
            break
        kept.append(stack)
    return kept


def _oldest(kind: type[Frame]) -> int:
    """The oldest schema version of such a frame that can be read."""
    return SCHEMA_VERSION if kind is HostFrame else OLDEST_READ


def _check_version(key: str, data: bytes, kind: type[Frame]) -> None:
    """Say so where a frame cannot be read because it is of another schema version."""
    try:
        version = (_list_header if kind is HostFrame else _header).decode(data).schema_version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if not _oldest(kind) <= version <= SCHEMA_VERSION:
        raise SchemaMismatchError(
            f"{key}: schema version {version}, {'newer' if version > SCHEMA_VERSION else 'older'} than the "
            f"{SCHEMA_VERSION} that this ddpmon reads: {_what_to_install(data) if kind is RunInfo else _SAME_RELEASE}"
        )


_SAME_RELEASE = "use the same ddpmon release in the training and here"


def _what_to_install(data: bytes) -> str:
    """The release of the training, as far as the description of a run tells it."""
    try:
        release = _run_header.decode(data).versions.get("ddpmon", "")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        release = ""
    if not release or not release.isprintable():
        return _SAME_RELEASE
    return f"the training has ddpmon {release[:40]}, so install that release here"


def _check_columns(key: str, frame: object) -> None:
    if isinstance(frame, RankFrame):
        _check_steps(key, frame.steps)
        _check_buckets(key, frame.buckets)
        if frame.stall is not None:
            force_setattr(frame.stall, "stacks", _bounded(frame.stall.stacks))
    elif isinstance(frame, HostFrame):
        _check_host(key, frame)
    elif isinstance(frame, HistoryFrame):
        _check_steps(key, frame.recent)
        _check_steps(key, frame.older)
    elif isinstance(frame, RunInfo) and not len(set(frame.node_keys)) == len(frame.node_keys) <= frame.world_size:
        raise FrameError(f"{key}: {len(frame.node_keys)} hosts for {frame.world_size} ranks, or one of them twice")


def _check_host(key: str, frame: HostFrame) -> None:
    """The lengths of a host frame's columns; the watcher checks the values, those of all hosts at once."""
    ranks, odd = divmod(len(frame.ranks), 4)
    if odd or not 0 < ranks <= MAX_HOST_RANKS or len(frame.figures) != 8 * len(FIGURES) * ranks:
        raise FrameError(f"{key}: {len(frame.ranks)} bytes of ranks and {len(frame.figures)} of figures")
    steps = 0
    for rows in frame.steps:
        count, (wide, narrow) = len(rows.step) // 8, widths(rows.columns)
        steps += count
        lengths = (8 * count, 2 * count, 4 * count * wide, 2 * count * narrow)
        if lengths != (len(rows.step), len(rows.place), len(rows.values), len(rows.halves)):
            raise FrameError(f"{key}: {len(rows.values)} and {len(rows.halves)} bytes for {count} steps")
    if steps > MAX_ROWS * ranks:
        raise FrameError(f"{key}: {steps} steps of {ranks} ranks, more than {MAX_ROWS} of each")


def _check_steps(key: str, columns: StepColumns) -> None:
    rows = len(columns)
    if rows > MAX_ROWS or len(columns.step) != 8 * rows:
        raise FrameError(f"{key}: {len(columns.step)} bytes of step numbers")
    values = columns.values
    if (*values,) in _layouts and {*map(len, values.values())} <= {4 * rows}:
        return  # the usual case, which is looked at thousands of times a second
    for name, column in values.items():
        if name not in STEP_COLUMNS:
            raise FrameError(f"{key}: unknown step column {name!r}")
        if len(column) != (2 if name in HOST_COLUMNS else 4) * rows:
            raise FrameError(f"{key}: column {name} has {len(column)} bytes for {rows} steps")
    if len(_layouts) < _MOST_LAYOUTS and HOST_COLUMNS[0] not in values:
        _layouts.add((*values,))


def _check_buckets(key: str, columns: BucketColumns | None) -> None:
    if columns is None:
        return
    rows = len(columns.step) // 8
    if len(columns.step) != 8 * rows or rows > MAX_ROWS or len(columns.ms) != 4 * rows * len(columns.sizes):
        raise FrameError(f"{key}: bucket columns of {len(columns.step)} and {len(columns.ms)} bytes")
