"""Look at this host: everything that a check rests on. Takes some seconds, since rates need two readings."""

from __future__ import annotations

import errno
import os
import platform
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeVar

from ddpmon.checkup.facts import Facts, Interface
from ddpmon.checkup.gather import DEFAULT_PORT, Place
from ddpmon.checkup.host_checks import RENDEZVOUS, STORE
from ddpmon.machine import GpuFigures, HostFigures
from ddpmon.sensors.process import ProcessSensor
from ddpmon.sensors.sampler import Sample, Sampler
from ddpmon.store.lookup import addresses
from ddpmon.store.server import FIRST_PORT

T = TypeVar("T")
_CHOOSERS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_RECORDERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")  # the second is the name in older torch
_FIRST_S, _PATIENCE_S = 2.5, 10.0
_NOTHING = Sample(HostFigures(), [], [])


def survey(place: Place, ranks: int | None, port: int | None) -> Facts:
    """The facts of this host. Never raises; a sensor that hangs is waited for no longer than ten seconds.

    Args:
        place: where this process stands among those of the check.
        ranks: planned on this host; None takes what was launched, else one for each GPU.
        port: where the rendezvous is to stand; None takes MASTER_PORT, else torchrun's default.
    """
    process = ProcessSensor()
    sample = _sampled({number: use for number, use in _wanted(place, port).items() if _is_taken(number)})
    gpus = _visible(sample.gpus)
    return Facts(
        host=(os.environ.get("DDPMON_HOSTNAME") or socket.gethostname())[:256],
        ranks=ranks or place.ranks or len(gpus) or None,
        threads=_threads(),
        hosts=place.hosts,
        device=_device(sample.gpus),
        figures=sample.figures,
        process=process.read(),
        gpus=gpus,
        no_gpus_because=sample.figures.unread.get("gpus", ""),
        interfaces=_interfaces(),
        own_address=_attempt(_own_address) or "",
        chosen={name: os.environ[name][:256] for name in _CHOOSERS if os.environ.get(name)},
        versions=_versions(with_gpus=bool(gpus)),
        open_files=_attempt(lambda: min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 40)),
        recorder_entries=_recorder_entries(),
    )


def _sampled(wanted: dict[int, str]) -> Sample:
    """This host after two readings and more: rates need an earlier one."""
    sampler, began = Sampler({}, wanted, lifetime=True), time.monotonic()
    sampler.start()
    try:
        while time.monotonic() < began + _PATIENCE_S:
            time.sleep(0.1)
            waiting = any(guard.value is None and not guard.trouble for guard in sampler.guards)
            if time.monotonic() >= began + _FIRST_S and not waiting:
                break
        return sampler.sample() or _NOTHING
    finally:
        sampler.stop()


def _visible(gpus: list[GpuFigures]) -> list[GpuFigures]:
    """Those that CUDA_VISIBLE_DEVICES leaves, by index in PCI order or by the beginning of a UUID."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    return [gpu for gpu in gpus if any(_is_called(gpu, name) for name in names)]


def _is_called(gpu: GpuFigures, name: str) -> bool:
    return str(gpu.index) == name if name.isdigit() else gpu.uuid.startswith(name)


def _device(gpus: list[GpuFigures]) -> Literal["cuda", "cpu"]:
    """CUDA where there are GPUs, or where there should be some."""
    return "cuda" if gpus or Path("/dev/nvidiactl").exists() else "cpu"


def _threads() -> int | None:
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) else None


def _recorder_entries() -> int | None:
    """What the first of the variables says that is set; None if it is no number."""
    value = next((os.environ[name] for name in _RECORDERS if name in os.environ), "")
    return min(int(value), 1 << 40) if value.isascii() and value.isdigit() else None


def _wanted(place: Place, port: int | None) -> dict[int, str]:
    """The ports that a run started from here would want, and what for."""
    wanted = {FIRST_PORT: STORE}
    if not place.hosted and (place.serves or place.meeting is None):  # torchrun's agent holds its own
        wanted[port or _port_of(os.environ.get("MASTER_PORT", "")) or DEFAULT_PORT] = RENDEZVOUS
    return wanted


def _is_taken(port: int) -> bool:
    """Whether somebody listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _port_of(value: str) -> int | None:
    return int(value) if value.isdigit() and 0 < int(value) < 65536 else None


def _own_address() -> str:
    """The first IPv4 address that this host's own name resolves to."""
    found = addresses(socket.gethostname(), 0)
    return next((str(address[0]) for family, _, _, _, address in found if family == socket.AF_INET), "")


def _interfaces() -> list[Interface]:
    with suppress(Exception):
        import psutil

        up = {name for name, state in psutil.net_if_stats().items() if state.isup}
        spoken = (socket.AF_INET, socket.AF_INET6)
        addresses = psutil.net_if_addrs()
        return [
            Interface(name[:256], [a.address[:256] for a in addresses.get(name, []) if a.family in spoken][:32])
            for name in sorted(up)[:64]
        ]
    return []


def _versions(*, with_gpus: bool) -> dict[str, str]:
    found = {
        "Python": platform.python_version(),
        "ddpmon": _attempt(lambda: metadata.version("ddpmon")),
        "torch": _attempt(lambda: metadata.version("torch")),
        "NCCL": _attempt(_nccl) if with_gpus else None,  # torch takes seconds to load
        "driver": _attempt(_driver) if with_gpus else None,
    }
    return {name: version for name, version in found.items() if version}


def _nccl() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _driver() -> str:
    import pynvml

    pynvml.nvmlInit()
    return str(pynvml.nvmlSystemGetDriverVersion())


def _attempt(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:
        return None
