"""What the cgroups above a process allow it: CPU quota and throttling, memory, and who was killed for it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ddpmon.lru import LruDefaultDict
from ddpmon.sensors.disks import Mount, mounts
from ddpmon.sensors.reading import NotYet, Rate, Since, read_file, read_table

_MOST = 16
_NO_LIMIT = 1 << 60  # v1 says so by a number near 2^63


class Hierarchies:
    """The cgroups of a process.

    Args:
        root: what stands before /proc and every mount point.
    """

    def __init__(self, pid: int, root: str = "") -> None:
        self._pid, self._root = pid, root
        self._mounts: list[Mount] | None = None
        self._known: dict[str, tuple[str, tuple[bool, list[str]]]] = {}  # controller -> membership, what it led to

    def folders(self, controller: str) -> tuple[bool, list[str]]:
        """Whether v2 has the controller, and the folders from the process's own group up to the topmost visible.

        Raises:
            OSError: /proc cannot be read.
            NotYet: no such cgroup is visible here.
        """
        membership = read_file(f"{self._root}/proc/{self._pid}/cgroup")
        known = self._known.get(controller)
        if known is None or known[0] != membership:
            known = self._known[controller] = (membership, self._find(controller, membership))
        return known[1]

    def _find(self, controller: str, membership: str) -> tuple[bool, list[str]]:
        if self._mounts is None:
            self._mounts = mounts(f"{self._root}/proc/{self._pid}/mountinfo")
        member = [line.split(":", 2)[1:] for line in membership.splitlines()]
        mine = [path for names, path in member if controller in names.split(",")]
        for mount in self._mounts if mine else []:
            if mount.kind == "cgroup" and controller in mount.options.split(","):
                return False, self._up(mount, mine[0])
        mine = [path for names, path in member if not names]
        for mount in self._mounts if mine else []:
            if mount.kind == "cgroup2":
                return True, self._up(mount, mine[0])
        raise NotYet(f"no cgroup with the {controller} controller is visible here")

    def _up(self, mount: Mount, path: str) -> list[str]:
        """The group's folder and those above it; what lies outside the mount is not to be seen, what it is under is."""
        if "/.." in mount.root or "/.." in path:
            raise NotYet("its cgroup lies outside of what is visible here")
        top = Path(self._root + mount.point)
        inside = mount.root == "/" or path == mount.root or path.startswith(f"{mount.root}/")
        group = top / path[len(mount.root.rstrip("/")) :].lstrip("/") if inside else top
        while group != top and not group.is_dir():
            group = group.parent
        return [str(folder) for folder in (group, *group.parents) if folder == top or top in folder.parents]


class Cgroups:
    """Reads the limits of a process's own cgroup and of those above it.

    Args:
        root: what stands before /proc and every mount point.
    """

    def __init__(self, pid: int, root: str = "") -> None:
        self._hierarchies = Hierarchies(pid, root)
        self._limited: dict[str, tuple[bool, float, float]] = {}  # folder -> v2, CPUs, seconds of a period
        self._throttling = LruDefaultDict(lambda: (Rate(), Rate()), 2 * _MOST)
        self._tightest: tuple[bool, str] | None = None
        self._kills = LruDefaultDict(Since, _MOST)

    def quota_cpus(self) -> float | None:
        """The CPUs' worth of time that the tightest allows; None without a limit.

        Raises:
            OSError, NotYet: there is no such cgroup to be seen.
        """
        v2, folders = self._hierarchies.folders("cpu")
        found = {folder: quota for folder in folders if (quota := _quota(v2, folder))}
        self._limited = {folder: (v2, cpus, period) for folder, (cpus, period) in found.items()}
        return min((cpus for cpus, _ in found.values()), default=None)

    def quotas(self) -> dict[str, float]:
        """Each of those found limited, by what tells it from the host's others in whatever container, and its CPUs.

        Raises:
            OSError: one has been removed.
        """
        nearest = list(self._limited.items())[:_MOST]
        return {_identity(folder): cpus for folder, (_, cpus, _) in nearest}

    def throttled_pct(self) -> float | None:
        """Percent of the wall time since the last call that one of those found limited was throttled.

        The kernel adds up the time over the CPUs; it was no more than the periods in which there was any.

        Raises:
            OSError, NotYet: it cannot be read; or this is the first call.
        """
        shares = []
        for folder, (v2, _, period) in self._limited.items():
            stat = read_table(f"{folder}/cpu.stat")
            seconds = stat["throttled_usec"] / 1e6 if v2 else stat["throttled_time"] / 1e9
            time, times = self._throttling.of(folder)
            shares += _gained(time, seconds, times, stat["nr_throttled"] * period)
        if self._limited and not shares:
            raise NotYet("read once so far")
        return max(shares, default=None)

    def memory(self) -> tuple[int | None, int | None]:
        """Limit and use in bytes of the cgroup that is nearest to its limit; use is without reclaimable page cache.

        Raises:
            OSError, NotYet: there is no such cgroup to be seen.
        """
        v2, folders = self._hierarchies.folders("memory")
        found = [(limit - used, limit, used, folder) for folder in folders for limit, used in _memory(v2, folder)]
        _, limit, used, folder = min(found, default=(0, None, None, folders[0]))
        self._tightest = (v2, folder)
        return limit, used

    def oom_kills(self) -> int | None:
        """How many processes were killed for memory in that cgroup since it was first looked at.

        Raises:
            OSError, KeyError: the kernel does not count them there.
        """
        if self._tightest is None:
            return None
        v2, folder = self._tightest
        counts = read_table(f"{folder}/{'memory.events' if v2 else 'memory.oom_control'}")
        return self._kills.of(folder)(counts["oom_kill"])


def _identity(folder: str) -> str:
    found = os.stat(folder)  # noqa: PTH116 (every second: kept plain)
    return f"{found.st_dev}:{found.st_ino}"


def _quota(v2: bool, folder: str) -> tuple[float, float] | None:
    """CPUs' worth of time that a group allows, and the seconds of a period; None without a limit."""
    with suppress(FileNotFoundError):  # the topmost group has none
        if v2:
            quota, period = read_file(f"{folder}/cpu.max").split()
        else:
            quota = read_file(f"{folder}/cpu.cfs_quota_us").strip()
            period = read_file(f"{folder}/cpu.cfs_period_us").strip()
        if quota not in ("max", "-1"):
            return int(quota) / int(period), int(period) / 1e6
    return None


def _memory(v2: bool, folder: str) -> list[tuple[int, int]]:
    """A group's limit and use, if it has a limit."""
    with suppress(FileNotFoundError):
        limit = read_file(f"{folder}/{'memory.max' if v2 else 'memory.limit_in_bytes'}").strip()
        if limit != "max" and int(limit) < _NO_LIMIT:
            used = int(read_file(f"{folder}/{'memory.current' if v2 else 'memory.usage_in_bytes'}"))
            cache = read_table(f"{folder}/memory.stat")["inactive_file" if v2 else "total_inactive_file"]
            return [(int(limit), max(0, used - cache))]
    return []


def _gained(time: Rate, seconds: float, times: Rate, periods_s: float) -> list[float]:
    shares = []
    for rate, value in ((time, seconds), (times, periods_s)):
        with suppress(NotYet):
            shares.append(rate(value))
    return [100 * min(1.0, *shares)] if len(shares) == 2 else []
