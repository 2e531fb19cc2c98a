"""Lets clients of the store meet a hostile server: `python bench/fuzz_client.py [--cases 100000] [--seed N]`.

A case is a client with one to four operations; the server answers truly, in part, too much, with impossible lengths,
slowly, with noise, or hangs up. Prints how the operations ended, the longest, and the resident memory. A crash ends it
with a traceback; the exit code is 1 if an operation took a second longer than its limit.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.store.hostile import TIMEOUT_S, besiege_client

_PARTS = 10


def main() -> None:
    """Parse, attack, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, me, told, hung, slowest = time.monotonic(), psutil.Process(), Counter[str](), 0, 0.0
    for part in range(_PARTS):
        outcomes, late, longest = besiege_client(options.cases // _PARTS, options.seed * 1000 + part)
        told, hung, slowest = told + outcomes, hung + late, max(slowest, longest)
        resident = me.memory_info().rss >> 20
        print(f"{part + 1}/{_PARTS}: resident {resident} MB, {me.num_fds()} descriptors, {me.num_threads()} threads")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{options.cases:,} cases in {time.monotonic() - began:.0f} s: {told.total():,} operations {dict(told)}; "
        f"0 crashes, {hung:,} took a second longer than {TIMEOUT_S} s, the longest {slowest:.2f} s; "
        f"{peak} MB resident at most, the server's thread included"
    )
    raise SystemExit(1 if hung else 0)


if __name__ == "__main__":
    main()
