"""Row 1: what waiting does to the work of a rank, and whether own pace names the right one all the same.

One rank trains a model of many tiny kernels, for which the host is slower than the device, and one of a few large
ones, with and without `.item()` in every step (without it there is an evaluation of 50 ms every 50 steps). Each is run
as it is, with 20 ms of waiting behind the reduction, and as the rank that is late: its host 2 % slower, its host or its
device 20 ms longer. The marks of a late run go to a watcher together with those of a run that waits as long as a peer
of the late one would. On a GPU 2 minutes.

    python bench/gpu/row_host_bound.py [--rehearse]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from course_device import Device
from course_figures import Figures, run_row
from course_job import Delayed, Delays, Published, end, judge, make_late
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddpmon
from ddpmon.diagnose.alert import at_or_above
from ddpmon.diagnose.kinds import KINDS
from ddpmon.snapshot import Finding

_SAME = (0.9, 1.1)  # work of a waiting rank over its own work: within it waiting changes nothing
_NEAR_POINTS = 6.0  # of the gain, as docs/measured/gpu.md has it
_SLOWER = 0.02
_EVAL_EVERY, _EVAL_S = 50, 0.05


@dataclass(frozen=True)
class Load:
    """One kind of job.

    Attributes:
        late_ms: by how much a rank is late in it.
        forward_ms: what every forward takes besides its kernels, which are few in a rehearsal.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[torch.device], Tensor]
    steps: int
    late_ms: float
    forward_ms: float


def _tiny(layers: int) -> nn.Module:
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(64, 64), nn.ReLU())))


def _wide(layers: int, width: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(layers)))


def loads(rehearse: bool) -> tuple[Load, Load]:
    """Many tiny kernels, and a few large ones; small both in a rehearsal."""
    steps, late_ms, forward_ms = (50, 10.0, 10.0) if rehearse else (130, 20.0, 0.0)
    layers, width = (40, 64) if rehearse else (200, 8192)
    square = (width, width)
    return (
        Load(
            "host-bound", lambda: _tiny(layers), lambda at: torch.randn(32, 64, device=at), steps, late_ms, forward_ms
        ),
        Load(
            "device-bound",
            lambda: _wide(4, width),
            lambda at: torch.randn(square, device=at, dtype=torch.bfloat16),
            steps // 2 + 20,
            late_ms,
            forward_ms,
        ),
    )


def train(device: Device, load: Load, delays: Delays, *, item: bool) -> Published:
    """Train with these delays."""
    torch.manual_seed(0)
    delays = replace(delays, forward=load.forward_ms)
    net = Delayed(load.model(), device, delays).to(device.at)
    ddp = DistributedDataParallel(net, device_ids=device.ids, bucket_cap_mb=4096)
    make_late(ddp, device, delays)
    optimizer, x = torch.optim.SGD(ddp.parameters(), lr=1e-4, foreach=True), load.batch(device.at)

    def step() -> Tensor:
        loss: Tensor = ddp(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(5):
        step()
    device.finish()
    monitor = ddpmon.attach(ddp, name="host-bound", optimizer=optimizer)
    for number in range(load.steps):
        loss = step()
        if item:
            loss.item()
        elif number % _EVAL_EVERY == _EVAL_EVERY - 1:
            device.finish()
            with monitor.phase("eval"):
                time.sleep(_EVAL_S)
    return end(monitor, device)


class Case:
    """One load, with or without `.item()`: its runs so far, and what is wrong with them."""

    def __init__(self, figures: Figures, device: Device, load: Load, *, item: bool) -> None:
        self._figures, self._device, self._load, self._item = figures, device, load, item
        self.name = f"{load.name}, {'.item() every step' if item else 'never synchronises'}"
        self.base = self._run(Delays())
        self._bare = self._run(Delays(wait=load.late_ms)).median("work")
        self.ratio = self._bare / self.base.median("work")
        self.wrong: list[str] = []
        self.drift = 0.0  # of a step between two equal runs, percent: a gain is not known to less

    def _run(self, delays: Delays) -> Published:
        return train(self._device, self._load, delays, item=self._item)

    def compare(self) -> None:
        """Judge pairs of runs in which nobody, and in which the second, is late."""
        late = self._load.late_ms
        self._judge("nobody late", None)
        if self._load.name == "host-bound":
            self._judge("host 2 % slower", Delays(host=_SLOWER * self.base.median("duration")))
            self._judge(f"host {late:.0f} ms late", Delays(host=late))
        self._judge(f"device {late:.0f} ms late", Delays(backward=late))

    def _judge(self, what: str, delays: Delays | None) -> None:
        """Let a watcher judge a run that waits and one that is late (or another without delays)."""
        late = self._run(delays or Delays())
        usual, now = self.base.median("duration"), late.median("duration")
        self.drift = 100 * abs(now / usual - 1) if delays is None else self.drift
        waits = 0.0 if delays is None else max(0.0, now - self._bare)
        peer = self.base if delays is None else self._run(replace(Delays(), wait=waits))
        gain = 0.0 if delays is None else 100 * (1 - usual / now)
        said = [finding for finding in judge([peer, late], self._device) if KINDS[finding.kind].late]
        warned = [finding for finding in said if at_or_above(finding.severity, "warning")]
        words = "; ".join(f"{finding.severity}: {finding.summary}" for finding in said) or "nobody named"
        self._figures.put({f"{self.name}, {what}: gain if mended %": gain, f"{self.name}, {what}: said": words})
        by_work, apart = 100 * (1 - peer.median("work") / now), peer.median("duration") / now
        self._figures.put({f"{self.name}, {what}: gain by work alone %": by_work})
        self._figures.put({f"{self.name}, {what}: step of the peer / of the late one": apart})
        if problem := self._problem(warned, gain):
            self.wrong.append(f"{self.name}, {what}: {problem}")

    def _problem(self, warned: list[Finding], gain: float) -> str:
        """What is wrong with the warnings, given the true gain in percent; empty if nothing is."""
        if any(finding.ranks != (1,) for finding in warned):
            return "the wrong rank is named"
        if gain < _NEAR_POINTS:
            return "a rank is named that is not late" if warned else ""
        if not warned:
            return "" if not self._item else "the late rank is not named"  # its gain may be hidden where nothing waits
        least = warned[0].cost_pct or 0.0
        most = max(least, float(warned[0].evidence.get("cost_most_pct", least)))
        near = least - _NEAR_POINTS <= gain <= most + _NEAR_POINTS
        return "" if near else f"the gain is {gain:.0f} %, and {least:.0f} to {most:.0f} % is said"


def measure(figures: Figures, rehearse: bool) -> None:
    """Run all cases and give the verdict.

    Raises:
        SystemExit: equal runs differ by more than a gain may, so that a wrong verdict tells nothing.
    """
    device = Device(rehearse)
    device.join()
    ratios: dict[str, float] = {}
    wrong: list[str] = []
    drift = 0.0
    for load in loads(rehearse):
        for item in (False, True):
            case = Case(figures, device, load, item=item)
            ratios[case.name] = case.ratio
            figures.put({f"{case.name}: work of a waiting rank / its own": case.ratio})
            case.compare()
            wrong, drift = wrong + case.wrong, max(drift, case.drift)
    shown = "; ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    figures.say(f"work while waiting / without: {shown}")
    figures.say(f"wrong verdicts: {'; '.join(wrong) or 'none'}; steps of equal runs differ by {drift:.0f} %")
    if wrong and drift > _NEAR_POINTS and not rehearse:
        raise SystemExit(f"no verdict, since the steps of equal runs differ by {drift:.0f} %: {wrong[0]}")
    changes = any(not _SAME[0] <= ratio <= _SAME[1] for ratio in ratios.values())
    why = wrong[0] if wrong else "own pace is right" if changes else "waiting changes nobody's work"
    figures.conclude(changes and not wrong, why)


if __name__ == "__main__":
    run_row(measure, __doc__)
