"""Prints what `ddpmon run` adds to the start of a Python process that trains nothing.

    python bench/boot.py [--starts 30]

Pairs of starts of `python -c pass`, without and with the environment of `ddpmon run`, in turn; the median of each, and
of the differences within a pair, with their quartiles. The same for a process that imports a hundred modules.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from time import perf_counter

from ddpmon.commands.run import environment_of

CASES = {
    "python -c pass": "pass",
    "a hundred modules": "import asyncio, http.client, email.mime.text, unittest, xml.dom.minidom, logging.config",
}


def start(code: str, environment: Mapping[str, str]) -> float:
    """The milliseconds of one start to its end."""
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], env=dict(environment), cwd="/", check=True)
    return (perf_counter() - began) * 1e3


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=30)
    starts = parser.parse_args().starts
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    watched = environment_of(bare, None)
    for name, code in CASES.items():
        for environment in (bare, watched):
            start(code, environment)
        pairs = [(start(code, bare), start(code, watched)) for _ in range(starts)]
        without, with_it = (statistics.median(column) for column in zip(*pairs, strict=True))
        low, middle, high = statistics.quantiles([after - before for before, after in pairs], n=4)
        print(f"{name}: {without:.2f} ms without, {with_it:.2f} ms with; pairs {low:+.2f} {middle:+.2f} {high:+.2f} ms")


if __name__ == "__main__":
    main()
