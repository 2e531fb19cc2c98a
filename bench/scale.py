"""What watching thousands of ranks costs: a simulated run in a real store, and a real dashboard on a terminal (160x50).

    python bench/scale.py [64 512 4096] [--step-ms 500] [--seconds 30] [--scenario mixed] [--redis] [--writer-life 10]
        [--views]

One line a size. First the dashboard: CPU time a tick (whole process, with the tick's parts), percent of a core,
resident memory, bytes written to the terminal, seconds to the first data. Then the other side: CPU of the store's
process (or with --redis of a redis-server of our own) and of the publishing processes, what was published, frames that
could not be sent in time. With --writer-life the rank that writes for a host dies as its writer every so many seconds,
and another takes over two seconds later; the oldest frame that any tick saw, and every finding, are printed as well.
With --views every view is opened in turn, for as long, and what the whole process takes in it is printed as well: its
memory as the median and the most of looks three times a second.
CPU times are the median and the lower quartile over ticks; others may use this machine too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import resource
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from scale_redis import redis_of_our_own
from screen import VIEWS

ROOT = Path(__file__).resolve().parent.parent
SIZE = (160, 50)
PARTS = ("read", "decode", "take", "judge", "freeze", "rest")
_SETTLED_S, _OPENED_S = 12.0, 3.0
_SAMPLED_S = 0.3  # between two looks at the memory of a view: a turn takes 0.1 to 0.2 s, so that some fall into one
_FIRST_DATA_S = 180.0


class Parts:
    """CPU time of each tick by part, in ms: the parts of the reader's thread, the rest is drawing and waiting."""

    def __init__(self) -> None:
        self.now = dict.fromkeys(PARTS, 0.0)
        self.ticks: list[dict[str, float]] = []
        self._last = time.process_time()

    def timed(self, owner: Any, name: str, part: str, inner: str = "") -> None:
        """Count what `owner.name` takes as `part`, but for what counts as `inner` within it."""
        function: Callable[..., Any] = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            began, within = time.process_time(), self.now.get(inner, 0.0)
            try:
                return function(*arguments, **options)
            finally:
                self.now[part] += (time.process_time() - began) * 1e3 - (self.now.get(inner, 0.0) - within)

        setattr(owner, name, wrapped)

    def tick(self) -> None:
        """A tick begins: what was counted before is the one before it."""
        now = time.process_time()
        total, self._last = (now - self._last) * 1e3, now
        self.now["rest"] = total - sum(self.now[part] for part in PARTS if part != "rest")
        self.ticks.append(self.now | {"all": total})
        self.now = dict.fromkeys(PARTS, 0.0)


def watch(url: str) -> None:
    """Run the dashboard until it is quit, then report on stdout."""
    sys.path.insert(0, str(ROOT))
    from ddpmon.commands.watch import show_source
    from ddpmon.diagnose.judge import Judge
    from ddpmon.run.model import Run
    from ddpmon.store.signed import CheckedStore
    from ddpmon.watcher.feed import Feed
    from ddpmon.watcher.observer import Observer

    parts = Parts()
    parts.timed(CheckedStore, "get_many", "read")
    parts.timed(Feed, "_new", "decode", inner="read")
    parts.timed(Run, "add_ranks", "take")
    parts.timed(Run, "add_rows", "take")
    parts.timed(Run, "add_node", "take")
    parts.timed(Run, "settle", "take")
    parts.timed(Judge, "__call__", "judge")
    parts.timed(Observer, "rebuild", "freeze")

    oldest, kinds = 0.0, Counter[str]()

    class Counting(Observer):
        def tick(self) -> Any:
            nonlocal oldest
            parts.tick()
            seen = super().tick()
            if seen.ranks is not None and len(parts.ticks) > _SETTLED_S:
                here = np.array([state not in ("lost", "unknown") for state in seen.ranks.state])
                oldest = max(oldest, float(np.nanmax(seen.ranks.age_s[here], initial=0.0)))
                kinds.update({f"{each.kind} {each.severity} {each.ranks[:2]}" for each in seen.findings})
            return seen

    show_source(Counting(url), {"interval": 1.0})
    steady = parts.ticks[int(_SETTLED_S) :]
    names = (*PARTS, "all")
    report = {
        "parts": {name: float(np.median([tick[name] for tick in steady])) for name in names},
        "low": float(np.percentile([tick["all"] for tick in steady], 25)),
        "ticks": len(steady),
        "oldest": oldest,
        "findings": kinds.most_common(),
        "rss": psutil.Process().memory_info().rss,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report), flush=True)


def publish(ranks: int, options: argparse.Namespace) -> None:
    """Publish a run whose writers die, as `ddpmon simulate` publishes others, until it is interrupted."""
    sys.path.insert(0, str(ROOT))
    from ddpmon.simulate.plan import Plan
    from ddpmon.simulate.simulated_host import simulate

    hosts = -(-ranks // 8)
    plan = Plan(ranks, hosts, options.scenario, options.step_ms, options.hours, writer_life_s=options.writer_life)
    with simulate(plan) as simulation:
        print(f"ddpmon watch {simulation.url}", flush=True)
        with suppress(KeyboardInterrupt):
            simulation.wait(None)
        print(simulation.end(), flush=True)


def measure(ranks: int, options: argparse.Namespace) -> None:
    """One size: publish, watch, print the lines."""
    with redis_of_our_own() if options.redis else nullcontext() as redis:
        _measure(ranks, options, redis)


def _measure(ranks: int, options: argparse.Namespace, redis: tuple[str, psutil.Process] | None) -> None:
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", f"--ranks={ranks}", f"--scenario={options.scenario}"]
    command += [f"--step-ms={options.step_ms}", f"--history-hours={options.hours}"]
    command += [f"--store={redis[0]}"] if redis else []
    if options.writer_life:
        command = [sys.executable, __file__, str(ranks), "--publish", f"--writer-life={options.writer_life}"]
        command += [f"--scenario={options.scenario}", f"--step-ms={options.step_ms}", f"--hours={options.hours}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        try:
            url = shlex.split(run.stdout.readline())[-1]
            time.sleep(3.0)
            host = redis[1] if redis else _listener(int(url.rpartition(":")[2]))
            publishers = psutil.Process(run.pid).children(recursive=True)
            alone = _share(host, publishers, 5.0)
            said = _watched(url, options.seconds, host, views=options.views)
        finally:
            run.send_signal(signal.SIGINT)
        account = run.stdout.read().strip().splitlines()[-1]
    _print(ranks, said, alone, account, more=bool(options.writer_life))
    for view, (share, kb_s, mb) in said["views"].items():
        memory = f"{median(mb):4.0f} MiB, at most {max(mb):.0f}"
        print(f"       {view:<10}{share:5.1f} % of a core, {kb_s:5.1f} kB/s, {memory}", flush=True)


def _listener(port: int) -> psutil.Process:
    """The process that listens on loopback at this port."""
    found = (
        c.pid
        for c in psutil.net_connections("tcp4")
        if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
    )
    return psutil.Process(next(found))


def _share(host: psutil.Process, publishers: list[psutil.Process], seconds: float) -> tuple[float, float]:
    """Percent of a core that the store's host and the publishers take over the next seconds."""
    before = _cpu([host]), _cpu(publishers)
    time.sleep(seconds)
    return (_cpu([host]) - before[0]) / seconds * 100, (_cpu(publishers) - before[1]) / seconds * 100


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def _watched(url: str, seconds: float, host: psutil.Process, *, views: bool) -> dict[str, Any]:
    """Start a dashboard on a pty, read what it writes for a while, quit it; its report, and ours."""
    screen, far = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    with tempfile.TemporaryFile() as report:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", url], stdin=far, stdout=report, stderr=far,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )  # fmt: skip
        first = _until_data(screen, process, began)
        _reading(screen, _SETTLED_S)
        watched = _cpu([psutil.Process(process.pid)]), _cpu([host])
        written = _reading(screen, seconds)
        spent = _cpu([psutil.Process(process.pid)]) - watched[0], _cpu([host]) - watched[1]
        opened = _views(screen, psutil.Process(process.pid), seconds) if views else {}
        os.write(screen, b"q")
        while process.poll() is None:
            _reading(screen, 0.2)
        report.seek(0)
        said: dict[str, Any] = json.loads(report.read().splitlines()[-1])
    os.close(screen)
    os.close(far)
    said |= {"first": first, "kb_s": written / seconds / 1e3, "cpu": spent[0] / seconds * 100, "views": opened}
    return said | {"host_cpu": spent[1] / seconds * 100, "host_rss": host.memory_info().rss}


def _views(screen: int, process: psutil.Process, seconds: float) -> dict[str, tuple[float, float, list[float]]]:
    """The whole process in each view: percent of a core, kB a second to the terminal, and resident MiB over time."""
    found = {}
    for view, (keys, _) in VIEWS.items():
        os.write(screen, keys.encode())
        _reading(screen, _OPENED_S)
        before, written, resident = _cpu([process]), 0, []
        for _ in range(round(seconds / _SAMPLED_S)):
            written += _reading(screen, _SAMPLED_S)
            resident.append(process.memory_info().rss / (1 << 20))
        share = (_cpu([process]) - before) / seconds * 100
        found[view] = share, written / seconds / 1e3, resident
    return found


def _until_data(screen: int, process: subprocess.Popen[bytes], began: float) -> float:
    """Seconds until the first figures of the run are on the screen.

    Raises:
        SystemExit: the dashboard has ended, or shows no figures in three minutes.
    """
    seen = b""
    while not re.search(rb"step \S*\d", seen):
        if process.poll() is not None:
            raise SystemExit(f"the dashboard has ended: {seen[-1000:].decode(errors='replace')}")
        if time.perf_counter() - began > _FIRST_DATA_S:
            process.kill()
            raise SystemExit("the dashboard showed no data")
        if select.select([screen], [], [], _SAMPLED_S)[0]:
            seen = (seen + os.read(screen, 1 << 16))[-200_000:]
    return time.perf_counter() - began


def _reading(screen: int, seconds: float) -> int:
    """How many bytes are written in the next seconds."""
    end, total = time.perf_counter() + seconds, 0
    while (left := end - time.perf_counter()) > 0:
        if select.select([screen], [], [], left)[0]:
            total += len(os.read(screen, 1 << 16))
    return total


def _print(ranks: int, said: dict[str, Any], alone: tuple[float, float], account: str, *, more: bool) -> None:
    mb = 1 << 20
    columns = [f"{said['parts']['all']:7.1f}", f"{said['low']:6.1f}"]
    columns += [f"{said['parts'][name]:6.1f}" for name in PARTS]
    columns += [f"{said['cpu']:6.1f}", f"{said['rss'] / mb:5.0f}"]
    columns += [f"{said['kb_s']:6.1f}", f"{said['first']:6.1f}", f"{alone[0]:6.1f}", f"{said['host_cpu']:6.1f}"]
    columns += [f"{said['host_rss'] / mb:6.0f}", f"{alone[1]:6.1f}"]
    print(f"{ranks:>6,} {' '.join(columns)}\n       {account}", flush=True)
    if more:
        print(f"       oldest frame {said['oldest']:.1f} s; ticks with each finding: {said['findings']}", flush=True)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--publish", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--step-ms", type=float, default=500.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--scenario", default="mixed")
    parser.add_argument("--writer-life", type=float, help="seconds after which the writers of all hosts change")
    parser.add_argument("--views", action="store_true", help="open every view in turn")
    parser.add_argument("--redis", action="store_true", help="publish into a redis-server instead of a TCPStore")
    parser.add_argument("ranks", type=int, nargs="*", default=[64, 512, 4096])
    options = parser.parse_args()
    if options.publish:
        publish(options.ranks[0], options)
        return
    if options.child:
        watch(options.child)
        return
    print(
        " ranks   ms/tick       of it                                     %    MB   kB/s  first   "
        "store: %, watched, MB; publishers %"
    )
    print("        median    q25 " + " ".join(f"{name:>6}" for name in PARTS) + "   core                s")
    for ranks in options.ranks:
        measure(ranks, options)


if __name__ == "__main__":
    main()
