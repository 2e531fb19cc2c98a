"""Prints what `ddpmon run` adds to the start of a Python process that trains nothing.

    python bench/boot.py [--starts 30]

Pairs of starts of `python -c pass`, without and with the environment of `ddpmon run`, in turn: the median of each, and
the quartiles of the differences within a pair, in milliseconds from start to end and of CPU time. The same for a
process that imports a hundred modules.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping
from time import perf_counter

from ddpmon.commands.run import compile_boot, environment_of

CASES = {
    "python -c pass": "pass",
    "a hundred modules": "import asyncio, http.client, email.mime.text, unittest, xml.dom.minidom, logging.config",
}


def start(code: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """The milliseconds of one start to its end, and the CPU time of the process in milliseconds."""
    began = perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], dict(environment))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"python -c {code!r} ended with status {status}")
    return (perf_counter() - began) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def main() -> None:
    """Print two lines a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=30)
    starts = parser.parse_args().starts
    compile_boot()
    os.chdir("/")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    watched = environment_of(bare, None)
    for name, code in CASES.items():
        for environment in (bare, watched):
            start(code, environment)
        pairs = [(start(code, bare), start(code, watched)) for _ in range(starts)]
        for place, kind in enumerate(("wall", "CPU")):
            without, with_it = ([each[place] for each in column] for column in zip(*pairs, strict=True))
            low, middle, high = statistics.quantiles([b - a for a, b in zip(without, with_it, strict=True)], n=4)
            medians = f"{statistics.median(without):.2f} ms without, {statistics.median(with_it):.2f} ms with"
            print(f"{name}, {kind}: {medians}; differences {low:+.2f} {middle:+.2f} {high:+.2f} ms")


if __name__ == "__main__":
    main()
