"""Where a process's cgroups lie as folders: v1, v2 and both side by side, also as seen from inside a container."""

from __future__ import annotations

from pathlib import Path

from ddpmon.sensors.mounts import Mount, mounts
from ddpmon.sensors.reading import NotYet, read_file


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
