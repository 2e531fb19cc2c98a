"""Checks of the host before a run: CPUs, memory, shared memory, disks, ports, limits, and the network between hosts."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence

from ddpmon.checkup.facts import Check, Facts, Level
from ddpmon.diagnose.contention.cpu import count, is_apart, mask_of
from ddpmon.report.wording import cores, named
from ddpmon.run.limits import CPU_STALL_PCT, SHM, is_low

_GIB = 1 << 30
_SMALL_SHM, _TIGHT_SHM_PART = 1 << 28, 0.1
_TIGHT_MEMORY_PART = 0.1
_HOG_PCT = 50.0
_ROOM = 0.9  # of a CPU, that a rank needs to itself
_BUSY = 0.5  # of the CPUs: with less in use, nobody is crowded where the kernel cannot say so
_FEW_FILES = 1024
_BREAKS = ("torch", "NCCL")  # ranks of different releases may not talk to each other
_VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tailscale")


def check_host(facts: Facts) -> Iterator[Check]:
    """Everything about one host apart from its GPUs and its network."""
    yield from _cpus(facts)
    yield from _load(facts)
    yield from _hogs(facts)
    yield from _numa(facts)
    yield from _memory(facts)
    yield from _disks(facts)
    yield from _ports(facts)
    if facts.open_files is not None and facts.open_files < _FEW_FILES:
        text = f"a process may open only {facts.open_files} files"
        yield Check(
            "open files", "warning", text, "run ulimit -n 65536 (DataLoader workers share tensors through files)"
        )


def usable_cpus(facts: Facts) -> float | None:
    """How many CPUs' worth of time a run started here would have: its affinity and its quota tell."""
    process, all_of_them = facts.process, facts.figures.cpu_count
    own = count(mask_of(process.cpus)) if process.cpus else all_of_them
    limits = [float(limit) for limit in (own, process.quota_cpus) if limit]
    return min(limits) if limits else None


def _cpus(facts: Facts) -> Iterator[Check]:
    usable = usable_cpus(facts)
    if usable is None:
        return
    limited = facts.process.quota_cpus is not None and facts.process.quota_cpus <= usable
    whence = " (quota of the cgroup)" if limited else ""
    has = f"{usable:g} CPU{' is' if usable == 1 else 's are'} usable here{whence}"
    if facts.ranks is None:
        yield Check("cpus", "ok", f"{has}; add --nproc N to compare them with the ranks that you plan")
        return
    wanted = facts.ranks * (facts.threads or 1)
    threads = facts.threads or 1
    plan = f"{facts.ranks} rank{'' if facts.ranks == 1 else 's'} of {threads} thread{'' if threads == 1 else 's'}"
    if wanted <= usable:
        yield Check("cpus", "ok", f"{has} for {plan}")
    elif facts.ranks > usable:
        yield Check(
            "cpus", "warning", f"{has} for {plan}: the ranks would wait for a CPU", "start fewer ranks on this host"
        )
    else:
        threads = max(1, int(usable // facts.ranks))
        yield Check(
            "cpus", "warning", f"{has} for {plan}: the threads would wait for a CPU", f"set OMP_NUM_THREADS={threads}"
        )


def _load(facts: Facts) -> Iterator[Check]:
    """CPUs that are in use already, so that too few are left for the ranks."""
    figures, wanted = facts.figures, facts.ranks or 1
    stalled = figures.pressure.cpu if figures.pressure is not None else None
    if figures.cpu_pct is None or not figures.cpu_count or (stalled is not None and stalled < CPU_STALL_PCT):
        return
    taken = figures.cpu_count * min(figures.cpu_pct, 100.0) / 100
    if figures.cpu_count - taken >= _ROOM * min(wanted, figures.cpu_count):
        return
    if stalled is None and taken < _BUSY * figures.cpu_count and (figures.load_1m or 0.0) < figures.cpu_count:
        return
    waits = "" if stalled is None else f", and tasks wait for a CPU {stalled:.0f} % of the time"
    ranks = f"{wanted} ranks" if wanted > 1 else "a rank"
    text = f"{taken:.1f} of {figures.cpu_count} CPUs are in use{waits}: {ranks} would have to share"
    yield Check("cpu load", "warning", text, "see with top what runs here; end it, or wait until it has ended")


def _hogs(facts: Facts) -> Iterator[Check]:
    for found in facts.figures.processes:
        if found.cpu_pct is not None and found.cpu_pct >= _HOG_PCT:
            text = f"{named(found.process)} takes {cores(found.cpu_pct, facts.figures.cpu_count)}"
            yield Check("cpu hog", "warning", text, "end it, or keep the ranks off its CPUs (taskset, --cpu-bind)")


def _numa(facts: Facts) -> Iterator[Check]:
    """An affinity that keeps ranks away from the node that their GPU is on."""
    nodes = facts.figures.numa
    for gpu in facts.gpus:
        node = gpu.numa_node
        if node is not None and 0 <= node < len(nodes) and is_apart(facts.process.cpus, nodes[node]):
            text = f"GPU {gpu.index} is on NUMA node {node}, but this shell may only run on CPUs {facts.process.cpus}"
            yield Check(
                "numa", "warning", text, "bind each rank to the NUMA node of its GPU (torchrun --numa-binding, numactl)"
            )


def _memory(facts: Facts) -> Iterator[Check]:
    used, total = facts.figures.memory_used, facts.figures.memory_total
    limit, held = facts.process.memory_limit, facts.process.memory_used
    if limit is not None and held is not None and (total is None or limit < total):
        used, total = held, limit
    if used is None or not total:
        return
    free = total - used
    text = f"{free / _GIB:.1f} of {total / _GIB:.0f} GiB of memory are free"
    if free < _TIGHT_MEMORY_PART * total:
        yield Check("memory", "warning", text, "end what uses it before you start")
    else:
        yield Check("memory", "ok", text)


def _disks(facts: Facts) -> Iterator[Check]:
    for disk in facts.figures.disks:
        if disk.total is None or disk.free is None:
            continue
        if disk.path == SHM:
            yield from _shm(disk.total, disk.free)
        elif is_low(disk):
            text = (
                f"{disk.path}: {disk.free / _GIB:.1f} of {disk.total / _GIB:.0f} GiB are free ({', '.join(disk.uses)})"
            )
            yield Check("disk", "warning", text, "free some space: a checkpoint that does not fit ends the run")


def _shm(total: int, free: int) -> Iterator[Check]:
    text = f"/dev/shm has {free / 2**20:,.0f} of {total / 2**20:,.0f} MiB free"
    if total < _SMALL_SHM:
        advice = "DataLoader workers die with a bus error when it is full: use docker run --shm-size=16g, or --ipc=host"
        yield Check("shared memory", "warning", text, advice)
    elif free < _TIGHT_SHM_PART * total:
        yield Check("shared memory", "warning", text, "remove the files of earlier runs from /dev/shm")
    else:
        yield Check("shared memory", "ok", text)


def _ports(facts: Facts) -> Iterator[Check]:
    for taken in facts.figures.ports:
        by = "" if taken.process is None else f" by {named(taken.process)}"
        text = f"port {taken.port}, wanted for {taken.wanted_for}, is held{by}"
        if taken.wanted_for == RENDEZVOUS:
            yield Check(
                "port", "failure", text, "end its holder, or choose another port: --master-port, --rdzv-endpoint"
            )
        else:
            yield Check("port", "ok", f"{text}: the next free port will be used")


RENDEZVOUS, STORE = "the rendezvous", "ddpmon's own store"


def check_network(facts: Facts) -> Iterator[Check]:
    """The interface that the ranks of one host would talk through."""
    names = {interface.name for interface in facts.interfaces}
    for variable, value in facts.chosen.items():
        wrong = [name for name in _wanted(value) if not any(known.startswith(name) for known in names)]
        if wrong:
            text = f"{variable}={value}, but no interface {', '.join(wrong)} is up here"
            yield Check("interface", "failure", text, f"use one of {', '.join(sorted(names - {'lo'})) or 'none'}")
    if facts.hosts < 2:
        return
    if not facts.chosen and _is_loopback(facts.own_address):
        where = facts.own_address or "nothing"
        text = f"the name of this host resolves to {where}: Gloo would offer that address to the other hosts"
        yield Check("interface", "failure", text, f"set GLOO_SOCKET_IFNAME={_best(facts)}, or correct /etc/hosts")
    elif not facts.chosen and len(real := _real(facts)) > 1:
        text = f"{len(real)} interfaces are up ({', '.join(real)}) and none is selected"
        yield Check("interface", "ok", f"{text}: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME select one")
    else:
        yield Check(
            "interface", "ok", f"{', '.join(facts.chosen.values()) or facts.own_address or 'the only one'} is used"
        )


def _wanted(value: str) -> list[str]:
    """The names that must be there; NCCL's `^` means all but these, `=` means exactly."""
    if value.startswith("^"):
        return []
    return [name for name in value.lstrip("=").split(",") if name]


def _real(facts: Facts) -> list[str]:
    named = (interface.name for interface in facts.interfaces if interface.addresses)
    return sorted(name for name in named if name != "lo" and not name.startswith(_VIRTUAL))


def _best(facts: Facts) -> str:
    return next(iter(_real(facts)), "...")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return True


def check_alike(hosts: Sequence[Facts]) -> Iterator[Check]:
    """Versions that differ between the hosts."""
    differing = False
    for name in sorted({name for facts in hosts for name in facts.versions}):
        found = {facts.host: facts.versions.get(name, "none") for facts in hosts}
        usual, _ = Counter(found.values()).most_common(1)[0]
        others = [f"{host} has {version}" for host, version in found.items() if version != usual]
        if others:
            differing = True
            level: Level = "failure" if name in _BREAKS else "warning"
            text = f"{name} is {usual} on most hosts, but {', '.join(others[:8])}"
            yield Check("versions", level, text, "install the same version on every host")
    if len(hosts) > 1 and not differing:
        yield Check("versions", "ok", f"the versions are the same on {len(hosts)} hosts")
