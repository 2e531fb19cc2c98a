"""Checks of the network before a run that spans hosts, and of what differs between them."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence

from ddpmon.checkup.facts import Check, Facts, Level

_BREAKS = ("torch", "NCCL")  # ranks of different releases may not talk to each other
_VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tailscale")


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
