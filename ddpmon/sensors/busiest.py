"""Which processes use much CPU: a pass over all of them that stays cheap however many there are."""

from __future__ import annotations

import os
from time import monotonic, thread_time

from ddpmon.machine import HostProcess
from ddpmon.parts import wire_text
from ddpmon.sensors.identities import Identities, has_ended
from ddpmon.sensors.reading import NotYet, read_file

_EVERY_S = 2.0
_SHARE = 0.002  # of a core, that the passes may take
_FEWEST_IDLE = 64  # that each pass looks at
_LEAST_PCT = 5.0
_MOST = 32
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class BusiestProcesses:
    """Reads the CPU time of the host's processes.

    What is new and what was busy is read in every pass; of the idle, where they are very many, a part, in turn.

    Attributes:
        passes: how many there have been.
    """

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._seen: dict[int, tuple[int, float, float]] = {}  # pid -> CPU ticks, when they were read, percent of a core
        self._waiting: list[int] = []  # the idle that have not had their turn
        self._passed_at = self._next = 0.0
        self._read_s = 20e-6  # what one reading takes
        self._found: list[HostProcess] | None = None
        self._busy: dict[int, int] = {}  # pid -> passes in a row in which it was busy
        self.passes = 0

    def read(self) -> list[HostProcess]:
        """Those that use 5 percent of a core or more, the greatest first, as of the last pass.

        Raises:
            OSError: /proc cannot be listed.
            NotYet: nothing can be compared so far.
        """
        if monotonic() >= self._next:
            began = thread_time()
            first = not self._seen
            self._pass()
            self.passes += 1
            self._found = None if first else self._describe()
            spent = thread_time() - began
            self._next = self._passed_at + (_EVERY_S if first else max(_EVERY_S, spent / _SHARE))
        if self._found is None:
            raise NotYet("read once so far")
        return self._found

    def _pass(self) -> None:
        with os.scandir("/proc") as entries:
            present = {int(entry.name) for entry in entries if entry.name.isdigit()}
        before, self._passed_at = self._passed_at, monotonic()
        self._seen = {pid: seen for pid, seen in self._seen.items() if pid in present}
        urgent = [pid for pid in present if pid not in self._seen or self._seen[pid][2] > 0]
        began = thread_time()
        turn = self._turn(urgent, present)
        self._look(urgent + turn, before)
        self._read_s = max(1e-6, (thread_time() - began) / max(1, len(urgent) + len(turn)))

    def _turn(self, urgent: list[int], present: set[int]) -> list[int]:
        """The idle ones whose turn it is."""
        idle = present - set(urgent)
        self._waiting = [pid for pid in self._waiting if pid in idle] or list(idle)
        count = max(_FEWEST_IDLE, int(_EVERY_S * _SHARE / self._read_s) - len(urgent))
        turn, self._waiting = self._waiting[:count], self._waiting[count:]
        return turn

    def _look(self, pids: list[int], before: float) -> None:
        """Read these; what is new has used its CPU time since the pass before. Thousands a second: kept plain."""
        seen = self._seen
        for pid in pids:
            try:
                ticks = _ticks(pid)
            except (OSError, ValueError, IndexError):
                seen.pop(pid, None)
                continue
            now, last = monotonic(), seen.get(pid)
            then, since = (last[0], last[1]) if last else (0 if before else ticks, before)
            seen[pid] = (ticks, now, 100 * (ticks - then) / _TICKS / (now - since) if ticks > then else 0.0)

    def _describe(self) -> list[HostProcess]:
        busy = [(pct, pid) for pid, (_, _, pct) in self._seen.items() if pct >= _LEAST_PCT]
        self._busy = {pid: self._busy.get(pid, 0) + 1 for _, pid in busy}
        found = [self._one(pid, pct) for pct, pid in sorted(busy, reverse=True)[:_MOST]]
        return [each for each in found if each is not None]

    def _one(self, pid: int, pct: float) -> HostProcess | None:
        """The process; None for one that has ended: it takes nothing more, and nobody can say whose it was."""
        process = self._identities.of(pid)
        if process.command is None and has_ended(pid):
            return None
        try:
            fields = read_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
            rss_bytes, nice = int(fields[21]) * _PAGE, int(fields[16])
            return HostProcess(process, pct, _cpus(pid), rss_bytes, nice, self._busy[pid])
        except (OSError, ValueError, IndexError):
            return HostProcess(process, pct)  # it has ended


def only_ours() -> bool:
    """Whether processes of others are hidden here: in a container, or by the way /proc is mounted."""
    try:
        return "(kthreadd)" not in read_file("/proc/2/stat")
    except OSError:
        return True


def _ticks(pid: int) -> int:
    handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(handle, 1024)
    finally:
        os.close(handle)
    fields = data[data.rindex(b")") + 2 :].split(b" ", 13)
    return int(fields[11]) + int(fields[12])


def _cpus(pid: int) -> str | None:
    lines = read_file(f"/proc/{pid}/status").splitlines()
    found = [line.partition("\t")[2] for line in lines if line.startswith("Cpus_allowed_list:")]
    return wire_text(found[0]) if found else None
