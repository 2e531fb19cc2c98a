"""What the probe costs, beside the nearest peer: a step's time, the training thread, a bucket, the threads aside.

Two jobs of two Gloo ranks on this machine train the same model in blocks of steps (`overhead_rank.py`), each block on
a fresh DDP wrapper after 1.5 s of settling. One job is launched by torchrun and plays blocks without ddpmon, with it,
and with bucket detail. The other is launched by `traceml run SCRIPT --nproc-per-node=2` (its default mode: a summary at
the end, no display) with `traceml.init(mode="auto")` and `trace_step(model)` around each step, as its quickstart says,
and plays blocks with that, and without, where its patches are taken out. All blocks of a round follow each other in
shuffled order, so that the machine's drift hits all alike; the job whose turn it is not is stopped.

Figures are rank 0's: medians over rounds, with quartiles, of what a block took above the block without of the same
round and the same job. "own account" is what ddpmon says of itself (`Monitor.cost_ns`); the peer keeps none. CPU time
aside is that of the tool's own threads in rank 0, and for the peer of its aggregator process, in percent of a core.

    python bench/overhead.py [--rounds N] [--sizes tiny,20ms,200ms]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Callable

import torch
from overhead_jobs import PEER, launched, peer_version
from overhead_rank import SIZES, Block, Size

TURNS = (("ddpmon", "without"), ("ddpmon", "with"), ("ddpmon", "buckets"), ("peer", "without"), ("peer", "with"))
COLUMNS = (("ddpmon", "with"), ("ddpmon", "buckets"), ("peer", "with"))

Turn = tuple[str, str]


def report(size: Size, found: dict[Turn, list[Block]]) -> None:
    """Print one size's rows."""
    base = found["ddpmon", "without"]
    wall = statistics.quantiles((block.wall_us / 1e3 for block in base), n=4)
    print(f"\n{size.title}: a step of {wall[1]:.3g} ms [{wall[0]:.3g} .. {wall[2]:.3g}] without either")
    buckets = base[0].buckets

    def row(title: str, figure: Callable[[Block, Block], float], columns: tuple[Turn, ...] = COLUMNS) -> None:
        cells = (spread(found, turn, figure) if turn in columns else "-" for turn in COLUMNS)
        print(f"  {title:<34}" + "".join(f"{cell:>34}" for cell in cells), flush=True)

    row("step time, with / without", lambda a, b: a.wall_us / b.wall_us)
    row("wall time more, us a step", lambda a, b: a.wall_us - b.wall_us)
    row("training thread CPU more, us a step", lambda a, b: a.cpu_us - b.cpu_us)
    row("own account, us a step", lambda a, _: a.own_us, COLUMNS[:2])
    row(f"the same, us a bucket ({buckets})", lambda a, b: (a.cpu_us - b.cpu_us) / buckets, COLUMNS[1:2])
    cells = (aside(found.get(turn)) for turn in COLUMNS)
    print(f"  {'own threads, % of a core':<34}" + "".join(f"{cell:>34}" for cell in cells), flush=True)


def spread(found: dict[Turn, list[Block]], turn: Turn, figure: Callable[[Block, Block], float]) -> str:
    """Median and quartiles of a figure over rounds, each against the same job's block without."""
    if turn not in found:
        return "not installed"
    low, middle, high = statistics.quantiles(map(figure, found[turn], found[turn[0], "without"]), n=4)
    return f"{middle:.4g} [{low:.4g} .. {high:.4g}]"


def aside(blocks: list[Block] | None) -> str:
    """CPU time of the tool's threads over all blocks."""
    if blocks is None:
        return "not installed"
    return f"{100 * sum(block.aside_ns for block in blocks) / sum(block.wall_ns for block in blocks):.2f}"


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each kind and size, 2 at least")
    parser.add_argument("--sizes", default="tiny,20ms,200ms")
    options = parser.parse_args()
    wanted = [at for at, size in enumerate(SIZES) if size.title.replace(" ", "") in options.sizes.split(",")]
    order = random.Random(1)
    load = os.getloadavg()[0]
    print(f"2 Gloo ranks, {os.cpu_count()} CPUs, load {load:.1f} at the start, torch {torch.__version__}")
    titles = ("ddpmon", "with bucket detail", f"{PEER} {peer_version() or ''}")
    print(" " * 36 + "".join(f"{title:>34}" for title in titles))
    with launched() as jobs:
        turns = [turn for turn in TURNS if turn[0] in jobs]
        for at in wanted:
            found: dict[Turn, list[Block]] = {turn: [] for turn in turns}
            for _ in range(max(2, options.rounds)):
                for job, mode in order.sample(turns, len(turns)):
                    found[job, mode].append(jobs[job].play(at, mode))
            report(SIZES[at], found)
        if (peer := jobs.get("peer")) is not None:
            print(f"\n{PEER}'s aggregator process: {100 * peer.aside_s / peer.played_s:.2f} % of a core")
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
