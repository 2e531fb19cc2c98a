"""Runs by itself, as `python -I unpickle.py`: turns a dump of torch's flight recorder on standard input into JSON.

A pickle can name anything to be called. This reader refuses every name, so that only numbers, texts, lists, tuples and
dicts can come out. It loads the standard library alone, and its memory, CPU time and output are limited.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import sys
from typing import Any, NoReturn

MEMORY_BYTES = 2 << 30  # a dump of 20,000 entries with stacks took 0.2 GiB; more is no dump
CPU_S = 60
MOST_ENTRIES, MOST_FRAMES, MOST_GROUPS, MOST_SIZES, MOST_TEXT = 20_000, 16, 4096, 8, 300
UNREADABLE = 3


class _NothingNamed(pickle.Unpickler):
    """An unpickler that makes no object by its name, and so calls nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no dump of the flight recorder does")


def read(data: bytes) -> dict[str, Any]:
    """What ddpmon uses of a dump.

    Raises:
        ValueError: it is none.
    """
    dump = json.loads(data) if data.lstrip()[:1] == b"{" else _NothingNamed(io.BytesIO(data)).load()
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise ValueError("it holds no entries of collectives")
    entries = [entry for entry in dump["entries"] if isinstance(entry, dict)]
    return {
        "version": _text(dump.get("version")),
        "groups": _groups(dump.get("pg_config")),
        "status": _status(dump.get("pg_status")),
        "entries": [_entry(entry) for entry in entries[-MOST_ENTRIES:]],
    }


def _entry(entry: dict[Any, Any]) -> dict[str, Any]:
    group = entry.get("process_group")
    named = [*group] if isinstance(group, list | tuple) else []
    frames = entry.get("frames")
    return {
        "pg_id": _text(entry.get("pg_id")),
        "group": _text(named[0]) if named else "",
        "purpose": _text(named[1]) if len(named) > 1 else "",
        "number": _number(entry.get("collective_seq_id")),
        "is_p2p": bool(entry.get("is_p2p")) if isinstance(entry.get("is_p2p"), bool) else False,
        "operation": _text(entry.get("profiling_name")),
        "sizes": _sizes(entry.get("input_sizes")),
        "state": _text(entry.get("state")),
        "retired": entry.get("retired") is True,
        "frames": [_frame(frame) for frame in frames[:MOST_FRAMES]] if isinstance(frames, list) else [],
    }


def _frame(frame: Any) -> list[Any]:
    frame = frame if isinstance(frame, dict) else {}
    return [_text(frame.get("filename")), _number(frame.get("line")), _text(frame.get("name"))]


def _groups(config: Any) -> list[dict[str, Any]]:
    """Who belongs to each group, as far as the dump says: Gloo's does not."""
    found = []
    for name, group in list(config.items())[:MOST_GROUPS] if isinstance(config, dict) else []:
        said = group.get("ranks") if isinstance(group, dict) else None
        try:
            ranks = json.loads(said) if isinstance(said, str) else said
        except (ValueError, RecursionError):
            ranks = None
        if isinstance(ranks, list) and ranks and all(_number(rank) >= 0 for rank in ranks):
            found.append({"group": _text(name), "purpose": _text(group.get("desc")), "ranks": ranks[: 1 << 17]})
    return found


def _status(status: Any) -> dict[str, int]:
    """The number of the last collective that this rank has entered, by the group's number in this process."""
    found = {}
    for number, group in list(status.items())[:MOST_GROUPS] if isinstance(status, dict) else []:
        found[_text(number)] = _number(group.get("last_enqueued_collective")) if isinstance(group, dict) else -1
    return found


def _sizes(sizes: Any) -> list[list[int]]:
    shapes = [shape for shape in sizes[:MOST_SIZES] if isinstance(shape, list)] if isinstance(sizes, list) else []
    return [[_number(length) for length in shape[:MOST_SIZES]] for shape in shapes]


def _text(value: Any) -> str:
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 63 else ""
    return value[:MOST_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48 else -1


def main() -> int:
    """Read standard input, write JSON or a sentence; returns the exit code."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no file
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        found = json.dumps(read(sys.stdin.buffer.read()))
    except MemoryError:
        found, code = "it needs more memory than a dump does", UNREADABLE
    except Exception as error:  # whatever a hostile file brings about
        found, code = f"{type(error).__name__}: {error}"[:MOST_TEXT], UNREADABLE
    else:
        code = 0
    sys.stdout.buffer.write(found.encode("utf-8", "replace"))
    return code


if __name__ == "__main__":
    sys.exit(main())
