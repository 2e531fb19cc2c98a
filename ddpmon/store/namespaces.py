"""In which namespaces this process is: what a run announces means something only within them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FIRST_PIDS = (
    "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h: the pid namespace that a kernel starts with
)


@cache
def machine() -> str:
    """The kernel and the pid namespace: a pid means something only there; "" where they cannot be read."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return f"{boot}/{_namespace('pid')}"


@cache
def network() -> str:
    """The network namespace: a loopback address means something only there; "" where it cannot be read."""
    return _namespace("net")


@cache
def in_container() -> bool:
    """Whether this process has a pid namespace, or as far as can be told a network namespace, of its own.

    Processes outside of it do not find its runs. Whose network namespace process 1 has, only root may read.
    """
    networks = network(), _namespace("net", "1")
    return _namespace("pid") not in ("", _FIRST_PIDS) or ("" not in networks and len({*networks}) > 1)


def _namespace(kind: str, pid: str = "self") -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""
