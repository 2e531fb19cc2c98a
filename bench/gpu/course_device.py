"""The device that a row measures on: the GPU, or in a rehearsal the CPU, where a spin is a sleep of the host."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

_CYCLES = 200_000_000  # a tenth of a second at 2 GHz: long enough to be measured to 1 %
_spin: Callable[[int], None] = torch.cuda._sleep


class Device:
    """One GPU, or the CPU.

    Attributes:
        is_gpu: False in a rehearsal.
        at: where tensors go.
        ids: DDP's `device_ids`.
    """

    def __init__(self, rehearse: bool) -> None:
        self.is_gpu = not rehearse
        self.at = torch.device("cpu") if rehearse else torch.device("cuda", 0)
        self.ids = None if rehearse else [0]
        self._cycles_per_ms = 0.0
        if rehearse:
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.at)
            _spin(_CYCLES)  # the first launch loads the kernel, and wakes the clock
            self._cycles_per_ms = _CYCLES / self.time(lambda: _spin(_CYCLES))

    def spin(self, ms: float) -> None:
        """Keep the device busy on the current stream; the host goes on at once. In a rehearsal the host sleeps."""
        if ms > 0 and self.is_gpu:
            _spin(int(ms * self._cycles_per_ms))
        elif ms > 0:
            time.sleep(ms / 1e3)

    def finish(self) -> None:
        """Wait until the device has done all that was launched."""
        if self.is_gpu:
            torch.cuda.synchronize()

    def time(self, job: Callable[[], object]) -> float:
        """Milliseconds that the device needs for what `job` launches."""
        if not self.is_gpu:
            began = time.perf_counter()
            job()
            return 1e3 * (time.perf_counter() - began)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.finish()
        start.record()
        job()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def join(self, backend: str | None = None) -> None:
        """Make the process group of this one rank: NCCL, or Gloo in a rehearsal."""
        backend = backend or ("nccl" if self.is_gpu else "gloo")
        at = self.at if backend == "nccl" else None
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, device_id=at)


# One thread of each block polls until the flag is set or the time is over; the others wait for it at a barrier.
_HOLD = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 flag, .param .u64 longest_ns)
{
    .reg .pred %p<4>;
    .reg .u32 %r<4>;
    .reg .u64 %rd<6>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra together;
    ld.param.u64 %rd1, [flag];
    ld.param.u64 %rd2, [longest_ns];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd3, %globaltimer;
again:
    ld.volatile.global.u32 %r2, [%rd1];
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra together;
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p3, %rd5, %rd2;
    @%p3 bra again;
together:
    bar.sync 0;
    ret;
}
"""
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Holder:
    """A kernel that holds streaming multiprocessors (SMs) until it is let go, as a NCCL kernel does that waits.

    Args:
        shared_bytes: shared memory of a block; with nearly all of an SM's no other block that needs some fits beside.

    Raises:
        RuntimeError: the driver refuses the kernel.
    """

    def __init__(self, shared_bytes: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._flag = torch.zeros(1, dtype=torch.int32, device="cuda")  # makes the context, too
        self._shared = shared_bytes
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_HOLD))
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, ctypes.c_char_p(b"hold"))
        self._call("cuFuncSetAttribute", self._function, _MOST_SHARED, shared_bytes)
        self._letting_go: Any = torch.cuda.Stream()

    def hold(self, blocks: int, threads: int, longest_ms: float, stream: Any) -> None:
        """Hold `blocks` SMs on a stream, for `longest_ms` at most."""
        self._flag.zero_()
        torch.cuda.synchronize()
        address, longest = ctypes.c_uint64(self._flag.data_ptr()), ctypes.c_uint64(int(longest_ms * 1e6))
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(longest))
        sizes = (blocks, 1, 1, threads, 1, 1, self._shared)
        self._call("cuLaunchKernel", self._function, *sizes, ctypes.c_void_p(stream.cuda_stream), arguments, None)

    def let_go(self) -> None:
        """Let the kernel end."""
        with torch.cuda.stream(self._letting_go):
            self._flag.fill_(1)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise RuntimeError(f"{name} failed with error {code}")
