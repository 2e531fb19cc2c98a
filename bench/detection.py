"""How right the verdicts are: precision, recall, rank, phase, onset, latency, false alarms and cost error.

    python bench/detection.py synthetic [--seeds N] [--cells PATTERN,PATTERN]    made-up jobs, thousands of them
    python bench/detection.py replay CELL SEED                                   one of them, word by word
    python bench/detection.py real [--cases A,B] [--ranks 2,4,8] [--seeds N]     the trainer under injected faults

A cell is world size, scatter of a rank's work from step to step, and case: n8-cv5-forward-1.15. `--cells all` is every
cell; the default is a short form. Full figures: --seeds 1000. Real cases stand in bench/detection_cases.toml; full
figures: --cases all --ranks 2,4,8 --seeds 3 (some hours).
"""

from __future__ import annotations

import argparse

from detection_real import SHORT as SHORT_REAL
from detection_real import run_cases
from detection_synthetic import SHORT, replay, run_cells


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    synthetic = commands.add_parser("synthetic")
    synthetic.add_argument("--seeds", type=int, default=20, help="runs of a cell")
    synthetic.add_argument("--cells", default=",".join(SHORT), help="patterns of names, or all")
    again = commands.add_parser("replay")
    again.add_argument("cell")
    again.add_argument("seed", type=int)
    real = commands.add_parser("real")
    real.add_argument("--cases", default=",".join(SHORT_REAL), help="names, or all")
    real.add_argument("--ranks", default="4", help="world sizes")
    real.add_argument("--seeds", type=int, default=1, help="runs of a case and world")
    real.add_argument("--say", action="store_true", help="print what was said in each run")
    options = parser.parse_args()
    if options.command == "synthetic":
        run_cells(["*"] if options.cells == "all" else options.cells.split(","), options.seeds)
    elif options.command == "real":
        worlds = [int(ranks) for ranks in options.ranks.split(",")]
        run_cases(options.cases.split(","), worlds, options.seeds, options.say)
    else:
        replay(options.cell, options.seed)


if __name__ == "__main__":
    main()
