"""Row 4: known spins in 21 settings: does each land in its phase, and does ddpmon synchronise the device?

In each setting the device is busy for 20 ms in forward and 30 ms in backward, and waits 25 ms behind the reduction.
After three warm-up steps (DDP rebuilds its buckets in the second forward, and synchronises for it) a step without
ddpmon is trained with torch's synchronisation check at "warn". Where torch itself does not synchronise, the steps with
ddpmon are trained at "error", which ends the measuring if a hook of ddpmon synchronises; elsewhere warnings are counted
and compared. On a GPU 5 minutes, most of them for torch.compile.

    python bench/gpu/row_matrix.py [--rehearse] [NAME ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from course_device import Device
from course_figures import Figures, run_row
from course_job import Delayed, Delays, Published, end, make_late
from row_matrix_settings import BATCH, SETTINGS, WIDTH, Setting
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import ddpmon

_SPINS = Delays(forward=20.0, backward=30.0, wait=25.0)
_STEPS, _WARM_UP = 8, 3
_NEAR, _NEAR_MS = 0.15, 2.0  # a spin may be so far off: the model's own kernels, and clocks that change
_REHEARSED_MS = 60.0  # a sleeping host comes back late, and half precision takes a CPU that long
_SYNCHRONISES = "called a synchronizing"


class Trainer:
    """One setting's model, optimizer and streams."""

    def __init__(self, setting: Setting, device: Device) -> None:
        torch.manual_seed(0)
        self.setting, self.device = setting, device
        self._x = torch.randn(BATCH, WIDTH, device=device.at)
        net = Delayed(self._inner(), device, _SPINS).to(device.at)
        self.ddp = DistributedDataParallel(net, device_ids=device.ids, **setting.options)
        if setting.hooked:
            make_late(self.ddp, device, _SPINS)
        self.model: Any = torch.compile(self.ddp) if setting.compiled == "outside" else self.ddp
        self._optimizer = setting.optimizer(self.ddp.parameters())
        self._scaler = torch.amp.GradScaler(device.at.type, enabled=setting.scaled)
        self._own = torch.cuda.Stream() if setting.streams else None

    def _inner(self) -> Any:
        inner = self.setting.inner().to(self.device.at)
        if self.setting.graphed:
            return torch.cuda.make_graphed_callables(inner, (self._x.clone().requires_grad_(),))
        if self.setting.compiled == "inside":
            return torch.compile(inner)
        return torch.compile(inner, mode="reduce-overhead") if self.setting.compiled == "graphs" else inner

    def step(self) -> Tensor:
        """One optimizer step; returns its last loss."""
        count = self.setting.accumulate
        losses = [self._micro_batch(syncs=left == 0) for left in reversed(range(count))]
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()
        return losses[-1]

    def _micro_batch(self, *, syncs: bool) -> Tensor:
        setting, own = self.setting, self._own
        with ExitStack() as stack:
            stack.enter_context(nullcontext() if syncs else self.ddp.no_sync())
            if own is not None and setting.streams == "step":
                own.wait_stream(torch.cuda.current_stream())
                stack.enter_context(torch.cuda.stream(own))
            with torch.autocast(self.device.at.type, setting.amp, enabled=setting.amp is not None):
                loss: Tensor = self.model(self._x.clone()).float().square().mean()
            if own is not None and setting.streams == "backward":
                own.wait_stream(torch.cuda.current_stream())
                stack.enter_context(torch.cuda.stream(own))
            self._scaler.scale(loss).backward()
        if own is not None:
            torch.cuda.current_stream().wait_stream(own)
        return loss

    def synchronisations(self, steps: int, monitor: ddpmon.Monitor | None, mode: str) -> int:
        """Train under the check, and return of how many synchronisations it warned."""
        with warned() as texts:
            if self.device.is_gpu:
                torch.cuda.set_sync_debug_mode(mode)
            try:
                for _ in range(steps):
                    loss = self.step()
                    if monitor is not None:
                        monitor.log(loss=loss.detach(), samples=self._samples())
            finally:
                if self.device.is_gpu:
                    torch.cuda.set_sync_debug_mode("default")
        return sum(text.count(_SYNCHRONISES) for text in texts)

    def _samples(self) -> Any:
        if not self.setting.tensor_samples:
            return BATCH
        return torch.ones((), device=self.device.at).mul_(BATCH)


@contextmanager
def warned() -> Iterator[list[str]]:
    """Take the warnings of a block, of Python's threads and of the autograd engine's, which go to stderr unseen."""
    texts: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as written, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.dup2(written.fileno(), 2)
        try:
            yield texts
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            texts += [*(str(each.message) for each in caught), written.read().decode(errors="replace")]


def play(name: str, device: Device, figures: Figures) -> str:
    """Train in one setting; returns what is wrong, or nothing.

    Raises:
        Exception: whatever torch raises, such as where there is no compiler.
    """
    setting = SETTINGS[name]
    trainer = Trainer(setting, device)
    early = ddpmon.attach(trainer.model, name="matrix", buckets=True) if setting.buckets else None
    for _ in range(_WARM_UP):
        trainer.step()
    device.finish()
    usual = 0 if early is not None else trainer.synchronisations(2, None, "warn")
    monitor = early or ddpmon.attach(trainer.model, name="matrix")
    mode = "warn" if usual or setting.scaled else "error"
    found = trainer.synchronisations(_STEPS, monitor, mode)
    if not monitor.enabled:
        return "ddpmon stopped measuring"
    published = end(monitor, device)
    added = found / _STEPS - usual / 2
    figures.put({f"{name}: synchronisations a step, torch's": usual / 2, f"{name}: more with ddpmon": added})
    if added > 0:
        return f"{added:g} synchronisations a step more with ddpmon"
    steps = _STEPS + (_WARM_UP if early is not None else 0)
    if published.steps != steps:
        return f"{published.steps} of {steps} steps were published"
    return compare(name, published, figures, _NEAR_MS if device.is_gpu else _REHEARSED_MS)


def compare(name: str, published: Published, figures: Figures, near_ms: float) -> str:
    """Where the spins went; returns what is wrong, or nothing."""
    setting = SETTINGS[name]
    count = setting.accumulate
    expected = {
        "forward": count * _SPINS.forward,
        "backward": count * _SPINS.backward,
        "exposed": _SPINS.wait if setting.hooked else 0.0,
    }
    seen = {phase: published.median(phase) for phase in expected}
    figures.put({f"{name}: {phase} ms": ms for phase, ms in seen.items()})
    for phase, ms in expected.items():
        if not abs(seen[phase] - ms) <= max(near_ms, _NEAR * ms):
            return f"{phase} is {seen[phase]:.1f} ms, not {ms:.0f}"
    return ""


def measure(figures: Figures, rehearse: bool, names: tuple[str, ...] = tuple(SETTINGS)) -> None:
    """Play all settings; none stops the others."""
    device = Device(rehearse)
    device.join()
    wrong: dict[str, str] = {}
    played = 0
    for name in names:
        if rehearse and SETTINGS[name].gpu_only:
            figures.skip(name, SETTINGS[name].gpu_only)
            continue
        try:
            problem = play(name, device, figures)
        except Exception as error:
            figures.skip(name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        finally:
            ddpmon_detached()
        played += 1
        figures.put({name: problem or "right"})
        wrong |= {name: problem} if problem else {}
    shown = "; ".join(f"{name}: {problem}" for name, problem in wrong.items()) or "none"
    figures.say(f"{played} of {len(names)} settings measured; wrong: {shown}")
    figures.conclude(played > 0 and not wrong, shown if wrong else f"{played} settings are right")


def ddpmon_detached() -> None:
    """A setting that failed may have left its monitor attached; the next one needs the process."""
    from ddpmon.probe import monitor

    if monitor._process.active is not None:
        monitor._process.active.detach()


if __name__ == "__main__":
    chosen = tuple(word for word in sys.argv[1:] if word in SETTINGS)
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in SETTINGS]
    run_row(lambda figures, rehearse: measure(figures, rehearse, chosen or tuple(SETTINGS)), __doc__)
