"""What only a real GPU can show: every claim about GPUs, measured, as one command.

    python bench/gpu/course.py --minutes 35 --out build/gpu              all rows, the most valuable first
    python bench/gpu/course.py --minutes 9 --out build/gpu               as many as fit; again, and it goes on
    python bench/gpu/course.py --out build/gpu --rows 1,3 --limit 3=200  these, again, with another limit for row 3
    python bench/gpu/course.py --out build/gpu --rehearse                what CPUs can do of it, in about 6 minutes

One NVIDIA GPU will do. Each row is a process of its own that is stopped, with all it has started, at its limit; it
leaves its figures as NN-name.json and its output as NN-name.log in the folder. A row starts only if its whole limit is
left of the minutes. Rows whose result the folder holds already are not run again unless --rows names them, so that
several calls add up. At the end the table of all rows is printed and written to table.md: what was measured, the
figures, what they prove, what would refute it, and the verdict. A row that cannot run says what is missing.

It needs torch with CUDA and what ddpmon needs. Where a machine has no network, unpack what it lacks elsewhere, and name
that folder in PYTHONPATH:

    pip install -t parts --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 msgspec

Exit codes: 0 the course has come to its end, whatever its verdicts; 2 usage; 3 there is no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from course_rows import ROWS, Row
from course_table import Result, table, verdict, why_it_ended

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_NO_GPU = 3
_NAME_BYTES = 96
_FOREIGN = ("DDPMON", "TORCHELASTIC_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_")


def gpu_name() -> str | None:
    """The name of the first GPU that CUDA shows to this process; None without one."""
    with suppress(OSError):
        cuda, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value:
            cuda.cuDeviceGetName(name, _NAME_BYTES, 0)
            return name.value.decode(errors="replace")
    return None


def describe(gpu: str | None) -> str:
    """The machine in a line."""
    versions = []
    for package in ("torch", "ddpmon"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    where = gpu or f"CPUs ({os.cpu_count()}), no GPU"
    return ", ".join([where, *versions, f"Python {platform.python_version()}"])


def read_results(out: Path, *, rehearsed: bool) -> dict[int, Result]:
    """What earlier calls left in the folder: those of rehearsals, or those of real rows."""
    found: dict[int, Result] = {}
    for row in ROWS:
        path = _path(out, row, "json")
        if path.exists():
            result = json.loads(path.read_text())
            if result["rehearsed"] == rehearsed:
                found[row.number] = result
    return found


def run(row: Row, out: Path, limit_s: float, machine: str, *, rehearse: bool) -> Result:
    """Run one row, and keep what it left."""
    figures, began = _path(out, row, "figures"), time.monotonic()
    figures.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as private:
        ended = _run_script(row, figures, _path(out, row, "log"), limit_s, private, rehearse=rehearse)
    kept: Result = {"figures": {}, "said": [], "skipped": [], "supported": None, "why": ""}
    if figures.exists():
        kept = json.loads(figures.read_text())
        figures.unlink()
    about = {"row": row.number, "name": row.name, "machine": machine, "rehearsed": rehearse, "limit_s": limit_s}
    result = {**about, "seconds": round(time.monotonic() - began, 1), "ended": ended, **kept}
    _path(out, row, "json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def _path(out: Path, row: Row, kind: str) -> Path:
    return out / f"{row.number:02}-{row.name}.{kind}"


def _run_script(row: Row, figures: Path, log: Path, limit_s: float, private: str, *, rehearse: bool) -> str:
    """Run a row's script until its end or its limit; returns why it gave no verdict, or nothing."""
    command = [sys.executable, str(_HERE / f"row_{row.name}.py"), "--figures", str(figures.resolve())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *(["--rehearse"] if rehearse else [])],
            cwd=_ROOT, env=_environment(private, rehearse=rehearse), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            return why_it_ended(process.wait(limit_s), log)
        except subprocess.TimeoutExpired:
            return f"stopped at its limit of {limit_s:g} s"
        finally:
            _end(process)


def _environment(private: str, *, rehearse: bool) -> dict[str, str]:
    """Variables of a row: no launcher's, a private place for announcements; a rehearsal sees no GPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    paths = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    rehearsing = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} if rehearse else {}
    return {**kept, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "XDG_RUNTIME_DIR": private, **rehearsing}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a row, its process group, and descendants that lead groups of their own, as a launcher's ranks do."""
    family = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def course(rows: Sequence[Row], options: argparse.Namespace, machine: str) -> str:
    """Run the rows; returns the table of all."""
    until = time.monotonic() + 60 * options.minutes
    results = read_results(options.out, rehearsed=options.rehearse)
    waiting: dict[int, str] = {}
    for row in rows:
        limit_s = options.limit.get(row.number, row.limit_s)
        if row.number in results and not options.rows:
            continue
        if limit_s > until - time.monotonic():
            waiting[row.number] = f"no time was left for its limit of {limit_s:g} s"
            continue
        print(f"row {row.number}, for {limit_s:g} s at most: {row.measured}", flush=True)
        result = results[row.number] = run(row, options.out, limit_s, machine, rehearse=options.rehearse)
        print(f"    {result['seconds']:.0f} s, {verdict(row, result, '')}", flush=True)
        (options.out / "table.md").write_text(table(results, waiting), encoding="utf-8")
    return table(results, waiting)


def _rows(text: str) -> list[Row]:
    """The rows of a list of numbers."""
    numbers = [int(part) for part in text.split(",")]
    chosen = [row for row in ROWS if row.number in numbers]
    if len(chosen) != len(set(numbers)):
        raise ValueError
    return chosen


def _limit(text: str) -> tuple[int, float]:
    """A row's number and its limit in seconds."""
    number, _, seconds = text.partition("=")
    return int(number), float(seconds)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--minutes", type=float, default=35.0, help="for the rows of this call together")
    parser.add_argument("--rows", type=_rows, help="run these, such as 1,3, even if they have been run")
    parser.add_argument("--limit", type=_limit, action="append", default=[], metavar="ROW=SECONDS")
    parser.add_argument("--rehearse", action="store_true", help="run on CPUs what they can do of it")
    options = parser.parse_args()
    options.limit = dict(options.limit)
    gpu = None if options.rehearse else gpu_name()
    if gpu is None and not options.rehearse:
        print("no GPU: --rehearse runs on CPUs what they can do of it")
        raise SystemExit(_NO_GPU)
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the row under way, too
    found = course(options.rows or ROWS, options, describe(gpu))
    (options.out / "table.md").write_text(found, encoding="utf-8")
    print(f"\n{found}", flush=True)


if __name__ == "__main__":
    main()
