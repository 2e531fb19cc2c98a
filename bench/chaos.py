"""Whether anything that happens to a watched job harms it, or leaves the watchers wrong, or something behind.

    python bench/chaos.py --faults 100 --seed 1               a course of faults in random order
    python bench/chaos.py --faults 100 --seed 1 --only 37     one of them again, alone
    python bench/chaos.py --cycles 1000                       attach and detach, lose the store and have it back

Four ranks on two hosts that are network namespaces train under an elastic torchrun; rank 3 is slow all the time. A
watcher on another host has the address, one on host 0 finds runs by itself. Every 25 faults the job starts again, every
other time publishing to a redis-server. After each fault both watchers must be right within 10 seconds of the first
step that all ranks make again (of the last step of the warm-up, where they were started again): the run's processes,
hosts and coverage, the slow rank named, nothing else claimed. At the end every loss of every rank is compared with that
of a run without the monitor. Needs root. The exit code is 1 if anything was not as it should be.
"""

from __future__ import annotations

import argparse

from chaos_course import course, plan
from chaos_cycles import cycles
from chaos_faults import FAULTS
from network import why_not


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=0, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one fault")
    parser.add_argument("--kinds", default=",".join(FAULTS), help="of these kinds")
    parser.add_argument("--stores", default="tcp,redis", help="where the job publishes, in turn")
    parser.add_argument("--cycles", type=int, default=0, help="how many")
    parser.add_argument("--busy", action="store_true", help="others use these cores: be patient, allow for transfers")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if not {*kinds} <= FAULTS.keys():
        parser.error(f"--kinds are of: {', '.join(FAULTS)}")
    good = True
    if options.faults:
        if why_not():
            raise SystemExit(why_not())
        planned = plan(options.faults, options.seed, kinds, options.stores.split(","))
        good = course(
            [fault for fault in planned if options.only in (None, fault.index)], options.seed, busy=options.busy
        )
    if options.cycles:
        good = cycles(options.cycles) and good
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
