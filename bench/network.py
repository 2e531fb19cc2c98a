"""Hosts with a network between them: network namespaces on a bridge that has a namespace of its own (needs root)."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

INTERFACE = "data0"


def why_not() -> str:
    """Why this machine cannot have such a network, empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"needs {' and '.join(missing)} (iproute2)"
    with contextlib.suppress(subprocess.CalledProcessError), network(1):
        return ""
    return "this kernel lets nobody make network namespaces"


class Network:
    """So many hosts on one bridge."""

    def __init__(self, hosts: int) -> None:
        self._mark = secrets.token_hex(3)
        self._outside = f"ddpmon{self._mark}"
        self.hosts = hosts

    def address(self, host: int) -> str:
        """A host's address, that of its only interface beside loopback."""
        return f"10.77.32.{host + 1}"

    def enter(self, host: int) -> list[str]:
        """The command that runs another one on a host."""
        return ["ip", "netns", "exec", self._space(host)]

    def make(self) -> None:
        """Make the namespaces and what lies in them."""
        switch = self._space("sw")
        _do(f"ip netns add {switch}")
        _do(f"ip -n {switch} link add br0 type bridge")
        _do(f"ip -n {switch} link set br0 up")
        for host in range(self.hosts):
            space = self._space(host)
            _do(f"ip netns add {space}")
            _do(f"ip -n {switch} link add port{host} type veth peer name {INTERFACE} netns {space}")
            _do(f"ip -n {switch} link set port{host} master br0 up")
            _do(f"ip -n {space} addr add {self.address(host)}/24 dev {INTERFACE}")
            _do(f"ip -n {space} link set {INTERFACE} up")
            _do(f"ip -n {space} link set lo up")

    def remove(self) -> None:
        """Everything lies in the namespaces, so it goes with them; only the interface of `join` would linger."""
        subprocess.run(["ip", "link", "del", self._outside], check=False, capture_output=True)
        for name in (*range(self.hosts), "sw"):
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True)

    def join(self) -> None:
        """Give this process an interface on the bridge, too: it then reaches the hosts."""
        switch = self._space("sw")
        _do(f"ip -n {switch} link add outside type veth peer name {self._outside} netns {os.getpid()}")
        _do(f"ip -n {switch} link set outside master br0 up")
        _do(f"ip addr add 10.77.32.254/24 dev {self._outside}")
        _do(f"ip link set {self._outside} up")

    def throttle(self, host: int, mbit_s: int = 50) -> None:
        """Slow one host's link down to so many Mbit/s, in both directions."""
        limit = f"tbf rate {mbit_s}mbit burst 64kb latency 200ms"
        _do(f"tc -n {self._space('sw')} qdisc add dev port{host} root {limit}")
        _do(f"tc -n {self._space(host)} qdisc add dev {INTERFACE} root {limit}")

    def release(self, host: int) -> None:
        """Let the link run free again."""
        _do(f"tc -n {self._space('sw')} qdisc del dev port{host} root")
        _do(f"tc -n {self._space(host)} qdisc del dev {INTERFACE} root")

    def cut(self, host: int) -> None:
        """Pull one host's cable."""
        _do(f"ip -n {self._space('sw')} link set port{host} down")

    def restore(self, host: int) -> None:
        """Plug it in again."""
        _do(f"ip -n {self._space('sw')} link set port{host} up")

    def _space(self, name: int | str) -> str:
        return f"ddpmon-{self._mark}-{name}"


@contextlib.contextmanager
def network(hosts: int) -> Iterator[Network]:
    """So many hosts, gone at the end.

    Raises:
        subprocess.CalledProcessError: the kernel refused.
    """
    made = Network(hosts)
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True)
