"""The host's network interfaces, and TCP segments that had to be sent again."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

from ddpmon.lately import Lately
from ddpmon.machine import Nic
from ddpmon.sensors.reading import NotYet, Rate, Readings, Since, clean, read_file

_LOOK_EVERY_S = 10.0  # for interfaces that come up; asking each for its speed has its price
_MOST = 32
_FEW_SEGMENTS = 100


class NicSensor:
    """Reads the interfaces that are up, other than loopback; of very many those that are devices, then the busiest."""

    def __init__(self) -> None:
        self._speeds: dict[str, float | None] = {}
        self._next = 0.0
        self._rates, self._since = Lately(Rate, 4 * _MOST), Lately(Since, 4 * _MOST)

    def read(self) -> list[Nic]:
        """Their figures now.

        Raises:
            Exception: the kernel lists none.
        """
        import psutil

        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        if monotonic() >= self._next:
            self._next = monotonic() + _LOOK_EVERY_S
            self._speeds = _speeds(counters)
        return [self._nic(name, counters[name]) for name in self._speeds if name in counters]

    def _nic(self, name: str, counted: Any) -> Nic:
        take = Readings().take
        return Nic(
            name=clean(name),
            speed_mbit=self._speeds[name],
            received_bytes_s=take("", self._rates.of((name, "received")), counted.bytes_recv),
            sent_bytes_s=take("", self._rates.of((name, "sent")), counted.bytes_sent),
            errors=self._since.of(("errors", name))(counted.errin + counted.errout),
            drops=self._since.of(("drops", name))(counted.dropin + counted.dropout),
        )


class Retransmits:
    """Reads how many TCP segments were sent again."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def read(self) -> float:
        """Of a thousand sent since the reading before.

        Raises:
            OSError: the kernel does not say.
            NotYet: hardly any were sent, or this is the first reading.
        """
        names, values = (line.split() for line in read_file("/proc/net/snmp").splitlines() if line.startswith("Tcp:"))
        table = dict(zip(names, values, strict=True))
        now = int(table["OutSegs"]), int(table["RetransSegs"])
        before, self._before = self._before, now
        if before is None:
            raise NotYet("read once so far")
        sent = now[0] - before[0]
        if sent < _FEW_SEGMENTS:
            raise NotYet("hardly any segments were sent")
        return 1000 * max(0, now[1] - before[1]) / sent


def _speeds(counters: dict[str, Any]) -> dict[str, float | None]:
    """The interfaces to tell of, in order, with their Mbit/s."""
    import psutil

    up = {name: link for name, link in psutil.net_if_stats().items() if link.isup and "loopback" not in link.flags}
    order = sorted((name for name in up if name in counters), key=lambda name: _rank(name, counters[name]))
    return {name: float(up[name].speed) or None for name in order[:_MOST]}


def _rank(name: str, counted: Any) -> tuple[bool, int]:
    return not Path(f"/sys/class/net/{name}/device").exists(), -counted.bytes_recv - counted.bytes_sent
