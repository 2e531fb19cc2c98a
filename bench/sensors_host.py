"""What sampling a host costs: CPU time of every sensor's thread in percent of a core, among many sleeping processes.

    python bench/sensors_host.py [--processes N] [--seconds S]

The sampler runs as it does in a rank, beside that rank's own process sensor. Counting begins once all have started.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from ddpmon.sensors.process import ProcessSensor
from ddpmon.sensors.sampler import Guarded, Sampler

SETTLE_S = 5.0


@contextmanager
def sleepers(count: int) -> Iterator[None]:
    """So many processes that sleep."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += (subprocess.Popen(["sleep", "3600"]) for _ in range(count))
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def host_here(processes: int, seconds: float) -> None:
    """Print what each sensor takes, and all together."""
    with sleepers(processes):
        sampler = Sampler({}, {29480: "this run's store"})
        guards = [Guarded("own process", ProcessSensor().read), *sampler.guards]
        for guard in guards:
            guard.start()
        time.sleep(SETTLE_S)
        before, began = {guard.name: guard.cost_ns for guard in guards}, time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        shares = {guard.name: 1e-7 * (guard.cost_ns - before[guard.name]) / passed for guard in guards}
        print(f"a host with {len(psutil.pids())} processes, {seconds:g} s, percent of a core:")
        for name, share in shares.items():
            print(f"  {name:<24}{share:8.3f}")
        print(f"  {'all':<24}{sum(shares.values()):8.3f}")
        for guard in guards:
            guard.stop()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    host_here(options.processes, options.seconds)


if __name__ == "__main__":
    main()
