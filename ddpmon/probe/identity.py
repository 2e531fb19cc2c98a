"""Who this rank is, where its store must stand, and whether the training's own rendezvous carries it."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ddpmon.parts import wire_text
from ddpmon.probe.parallel import HOROVOD, group_of, kind_of, reduced
from ddpmon.store.lookup import addresses

# The training has looked this name up itself by now, however long that took; three DNS servers of 5 s, twice, are 30 s.
_LOOKUP_S = 30.0


@dataclass(frozen=True, slots=True)
class Identity:
    """One rank of one run. `node` is -1 where no launcher numbers the hosts; `node_keys` are the keys of all hosts."""

    rank: int
    world_size: int
    local_rank: int
    node: int
    node_keys: tuple[int, ...]
    host: str
    pid: int
    device: torch.device
    gpu_uuid: str | None
    backend: str

    @property
    def node_key(self) -> int:
        """The number under which this rank's host is published."""
        return self.node if self.node >= 0 else self.rank

    def host_of(self, run: str) -> str:
        """What the ranks of a run that share this host have in common."""
        return f"{run}/{self.node}/{self.host}"


def identify(model: torch.nn.Module) -> Identity:
    """Read this rank's identity from its process group, its launcher's variables and its device."""
    group: Any = group_of(model)
    is_horovod = kind_of(model) == HOROVOD
    rank, world = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    if is_horovod:
        rank, world = _number("HOROVOD_RANK", default=0), _number("HOROVOD_SIZE", default=1)
    node, nodes = _node(world)
    device = reduced(model)[0].device  # a frozen parameter may lie elsewhere
    local_rank = _number("LOCAL_RANK", "HOROVOD_LOCAL_RANK", "SLURM_LOCALID", default=rank if nodes == 1 else 0)
    return Identity(
        rank=rank,
        world_size=world,
        local_rank=local_rank,
        node=node,
        node_keys=tuple(range(nodes)) if node >= 0 else tuple(range(world)),
        host=wire_text(os.environ.get("DDPMON_HOSTNAME") or socket.gethostname()),
        pid=os.getpid(),
        device=device,
        gpu_uuid=gpu_uuid(device),
        backend=HOROVOD if is_horovod else "none" if group is None else str(dist.get_backend(group)),
    )


def run_id(name: str) -> str:
    """A new id for a run: its name made safe for a key, the time, and a few random letters."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip("-")[:64] or "run"
    return f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def store_address() -> str:
    """The address that the run's store binds to: loopback for one host, this host's side of MASTER_ADDR otherwise.

    Raises:
        OSError: the run spans hosts, and this one has no address that others could reach.
    """
    if not spans_hosts():
        return "127.0.0.1"
    # Its own name may resolve to loopback (Debian's 127.0.1.1): then the side that faces other networks is taken.
    launcher = os.environ.get("MASTER_ADDR") or os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    for target in (launcher, "192.0.2.1"):
        address = side_towards(target)
        if address is not None and not is_loopback(address):
            return address
    raise OSError("MASTER_ADDR is loopback and there is no other route, but the run spans hosts")


def side_towards(target: str) -> str | None:
    """This host's address on the way to `target`; sends nothing, it only asks the kernel for the route."""
    try:
        family, _, _, _, address = addresses(target, 9, _LOOKUP_S)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def spans_hosts() -> bool:
    """Whether the run has ranks on several hosts, as far as its launcher says."""
    world, local = _number("WORLD_SIZE", "HOROVOD_SIZE"), _number("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE")
    if world > 0 and local > 0:
        return world > local
    if (slurm_nodes := _number("SLURM_NNODES")) > 0:
        return slurm_nodes > 1
    return not is_loopback(os.environ.get("MASTER_ADDR", "localhost"))


def _node(world: int) -> tuple[int, int]:
    """This host's number and how many there are; (-1, world) where no launcher says."""
    local_world = _number("LOCAL_WORLD_SIZE")
    if _number("GROUP_RANK") >= 0 and local_world > 0:
        return _number("GROUP_RANK"), _number("GROUP_WORLD_SIZE", default=-(-world // local_world))
    if _number("SLURM_NODEID") >= 0 and _number("SLURM_NNODES") > 0:
        return _number("SLURM_NODEID"), _number("SLURM_NNODES")
    if _number("HOROVOD_CROSS_RANK") >= 0:
        return _number("HOROVOD_CROSS_RANK"), _number("HOROVOD_CROSS_SIZE", default=1)
    return (-1, world) if spans_hosts() else (0, 1)


def _number(*names: str, default: int = -1) -> int:
    for name in names:
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):
            continue
    return default


def is_loopback(address: str) -> bool:
    """Whether this is a loopback address, or the name of one or of this host."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == socket.gethostname()


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID of a rank's GPU or MIG instance as NVML spells it, as far as can be told from here."""
    if device.type != "cuda":
        return None
    if (instance := _chosen(device.index or 0)).startswith("MIG-"):
        return instance[:256]  # CUDA may say the whole GPU's
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def _chosen(index: int) -> str:
    """What CUDA_VISIBLE_DEVICES calls the device of that number; empty where it does not say."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return names[index].strip() if index < len(names) else ""


def uses_rendezvous() -> bool:
    """Whether DDPMON_STORE asks for it."""
    return os.environ.get("DDPMON_STORE") == "rendezvous"


def rendezvous_server(training: Any) -> tuple[str, int]:
    """Host and port of the server behind a process group's store, as this rank reaches it.

    The group's own client is left to the training: its one lock and socket must not wait for our frames.

    Raises:
        RuntimeError: there is no TCPStore behind it.
    """
    inner = training
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    if not isinstance(inner, TCPStore):
        raise RuntimeError(f"DDPMON_STORE=rendezvous needs a TCPStore, this run has a {type(inner).__name__}")
    return str(inner.host), int(inner.port)


def name_asked_for(in_script: str | None) -> str | None:
    """What the run is to be called: the name of `ddpmon run --name`, else the script's, else that of `DDPMON_NAME`."""
    return os.environ.get("DDPMON_RUN_NAME") or in_script or os.environ.get("DDPMON_NAME")
