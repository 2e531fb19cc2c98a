"""DDP's buckets and settings: bucket detail on request by a communication hook that changes no bit, and DDP's log."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpmon.parts import Settings, wire_text
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.parallel import DDP, kind_of, sizes
from ddpmon.schema import MAX_BUCKETS

Hook = Callable[[Any, Any], "torch.futures.Future[torch.Tensor]"]
_DEFAULT_RATE = 100  # kDDPRuntimeLoggingSampleRate


_SAMPLED_STEPS = 3  # sync points from switching the logger on to reading a step that it saw whole


class BucketTimer:
    """Times the buckets of one DDP module through its communication hook.

    A hook that the user registered before or registers later is wrapped and keeps its state; without one the
    reduction is the default's to the last bit: the bucket scaled as DDP scales it (see `_Scale`), then the sum.

    Args:
        recorder: takes the marks.
        ddp: the module, before its first backward.

    Raises:
        RuntimeError: the module has trained already, its hook cannot be wrapped, or its reduction cannot be repeated
            to the last bit; it is left as it was.
    """

    def __init__(self, recorder: EventLog, ddp: DistributedDataParallel) -> None:
        self._recorder: EventLog | None = recorder
        self._ddp = ddp
        self._inner: tuple[Hook, Any] | None = None
        self._scale = _Scale(ddp)
        hooks = list(getattr(ddp, "_comm_hooks", []))
        _check(ddp, self._scale, hooked=bool(hooks))
        if hooks:
            self._inner = hooks[0]
            _renew_reducer(ddp)
        try:
            ddp.register_comm_hook(None, self._hook)
        except Exception:
            ddp._comm_hooks.clear()  # DDP has put ours there before it refused it
            for hook, state in hooks:
                ddp.register_comm_hook(state, hook)
            raise
        ddp.register_comm_hook = self._take_hook  # type: ignore[method-assign]

    @staticmethod
    def of(recorder: EventLog, ddp: DistributedDataParallel) -> BucketTimer:
        """The timer of `ddp`: the one that an earlier attach left in its only hook, or a new one.

        Raises:
            RuntimeError: as the constructor.
        """
        earlier = getattr(ddp.register_comm_hook, "__self__", None)
        if not isinstance(earlier, BucketTimer):
            return BucketTimer(recorder, ddp)
        earlier._recorder = recorder
        return earlier

    @property
    def users_hook(self) -> Hook | None:
        """The communication hook inside this one."""
        return None if self._inner is None else self._inner[0]

    def stop(self) -> None:
        """Time no more; the reduction goes on as it was."""
        self._recorder = None

    def __reduce__(self) -> tuple[type[_Unhooked], tuple[()]]:
        return _Unhooked, ()

    def _take_hook(self, state: object, hook: Hook) -> None:
        """The user registers a hook after us: DDP allows one, so it becomes the one inside ours."""
        if self._inner is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._ddp._check_comm_hook(hook)
        self._inner = (hook, state)

    # DDP compares the annotations of a hook with its own types, and ours are postponed: it gets none.
    def _hook(self, _state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        recorder = self._recorder
        entry = None if recorder is None else recorder.time_hook("bucket", _launch, recorder, bucket)
        future = self._reduce(bucket)
        return future if entry is None or recorder is None else _timed(recorder, entry, future)

    def _reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self._inner is not None:
            hook, state = self._inner
            return hook(state, bucket)
        tensor = self._scale(bucket.buffer())
        group: Any = self._ddp.process_group
        return cast("torch.futures.Future[torch.Tensor]", group.allreduce([tensor]).get_future().then(_first))


class _Scale:
    """Scales a bucket by the number of ranks in place, with the very operation that DDP takes where there is no hook.

    DDP multiplies by `1.0 / world_size` while it copies a gradient into its bucket. It divides by the world size what
    it does not copy one by one: sparse gradients, those of `batched_grad_copy`, and those that still lie in the bucket
    since the step before (`gradient_as_bucket_view`). Both give the same bits where the world size is a power of two.
    (The world size is the initial one: not for `ddp.join(divide_by_initial_world_size=False)`.)
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._world = dist.get_world_size(ddp.process_group)
        self._divides = bool(getattr(ddp, "batched_grad_copy", False))

    @property
    def may_differ(self) -> bool:
        """Whether it matters for the last bit which of the two operations it is."""
        return self._world & (self._world - 1) != 0 and not self._divides

    def __call__(self, bucket: torch.Tensor) -> torch.Tensor:
        """The bucket, scaled."""
        if self._divides or bucket.is_sparse:
            return bucket.div_(self._world)
        return bucket.mul_(1.0 / self._world)


def _check(ddp: DistributedDataParallel, scale: _Scale, *, hooked: bool) -> None:
    """Refuse what a hook cannot time, or cannot repeat.

    Raises:
        RuntimeError: why, in one line.
    """
    if getattr(ddp, "_use_python_reducer", False):
        raise RuntimeError("torch's python_reducer has no buckets")
    if ddp.gradient_as_bucket_view and scale.may_differ and not hooked:
        raise RuntimeError("with gradient_as_bucket_view it would change bits unless the ranks are a power of two")


class _Unhooked:
    """What a pickled module takes along instead of a timer."""

    def _hook(self, *_: Any) -> None:
        """Never called: unpickling makes a reducer without a hook."""

    _take_hook = _hook


def _first(future: Any) -> torch.Tensor:
    tensor: torch.Tensor = future.value()[0]
    return tensor


def _launch(recorder: EventLog, bucket: Any) -> list[Any]:
    buffer = bucket.buffer()
    entry = [bucket.index(), buffer.numel() * buffer.element_size(), recorder.clock.mark(), None]
    recorder.put("bucket", entry)
    return entry


def _timed(recorder: EventLog, entry: list[Any], future: Any) -> Any:
    def done(finished: Any) -> Any:
        entry[3] = recorder.time_hook("reduced", recorder.clock.mark)
        return finished.value()

    return future.then(done)


def _renew_reducer(ddp: DistributedDataParallel) -> None:
    """Give `ddp` a fresh reducer without a hook, as unpickling does: a reducer takes one hook in its life."""
    if getattr(ddp, "_lazy_init_ran", True):  # set by the first forward; the reducer counts from the second on
        raise RuntimeError("the model has trained already: attach before the first backward")
    if getattr(ddp, "mixed_precision", None) is not None:
        raise RuntimeError("DDP's mixed_precision registers a hook of its own")
    parameters, sparse = ddp._build_params_for_reducer()
    names = ddp._build_debug_param_to_name_mapping(parameters)
    ddp._ddp_init_helper(parameters, sparse, names, ddp.static_graph)
    ddp._comm_hooks.clear()
    if ddp.static_graph:
        ddp._set_static_graph()


class ReducerLog:
    """Reads `_get_ddp_logging_data` (40 us) on the training thread, each time that the publisher asks for it.

    What it tells is the newest sampled all-reduce window in milliseconds.

    On the CPU the logger samples every step (13 us each) for as long as it takes to read one; on CUDA it keeps its
    default of one in a hundred, since a sampled step synchronises on events at the next forward. Only DDP has
    such a log.
    """

    def __init__(self, ddp: Any, tell: Callable[[float], None], *, on_cpu: bool) -> None:
        self._ddp = ddp
        self._tell = tell
        self._wait = _SAMPLED_STEPS if on_cpu else 1
        self._left = self._wait
        self._stopped = kind_of(ddp) != DDP
        self._last_sample: Any = None
        self.bucket_count = 0
        self.bucket_sizes: list[int] = []
        self.buckets_rebuilt: bool | None = None
        self.gradient_bytes = sum(count * size for count, size in sizes(ddp))

    def stop(self) -> None:
        """Put the logger's sample rate back to DDP's default."""
        if self._stopped:
            return
        self._stopped = True
        self._ddp._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)

    def __call__(self) -> bool:
        """Called at sync points until it returns True: then it has told what it knows.

        The logger takes a step in at the next forward: what is read here is the window of the step before.
        """
        if self._stopped:
            return True
        if self._left == self._wait > 1:
            self._ddp._set_ddp_runtime_logging_sample_rate(1)
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._wait
        if self._wait > 1:
            self._ddp._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)
        self._read()
        return True

    def _read(self) -> None:
        data = self._ddp._get_ddp_logging_data()
        self.bucket_count = int(data.get("num_buckets_reduced", 0))
        sample = data.get("backward_comm_time_end")
        if sample and sample != self._last_sample:
            self._last_sample = sample
            self._tell(data["backward_comm_time"] / 1e6)
        told = data.get("has_rebuilt_buckets")
        self.buckets_rebuilt = None if told is None else bool(told)
        with suppress(ValueError):  # another torch may write them otherwise
            self.bucket_sizes = _byte_list(data.get("rebuilt_bucket_sizes" if told else "bucket_sizes", ""))


def _byte_list(text: str) -> list[int]:
    """`3006000, 2004000` as numbers; empty where there are more than a frame holds."""
    parts = text.split(",") if text else []
    return [int(part) for part in parts] if len(parts) <= MAX_BUCKETS else []


def settings_of(ddp: Any) -> Settings:
    """The settings of `ddp` now; what this torch does not say is None, and everything of another kind of model."""
    if kind_of(ddp) != DDP:
        return Settings()
    return Settings(
        gradient_as_bucket_view=_flag(ddp, "gradient_as_bucket_view"),
        find_unused_parameters=_flag(ddp, "find_unused_parameters"),
        static_graph=_flag(ddp, "static_graph"),
        gradient_dtype=_gradient_dtype(ddp),
        comm_hook=_comm_hook(ddp),
        bucket_cap_bytes=_bucket_cap(ddp),
    )


def _flag(ddp: DistributedDataParallel, name: str) -> bool | None:
    value = getattr(ddp, name, None)
    return None if value is None else bool(value)


def _bucket_cap(ddp: DistributedDataParallel) -> int | None:
    """The size that DDP lets a bucket grow to, in bytes."""
    value = getattr(ddp, "bucket_bytes_cap", None)
    return int(value) if isinstance(value, int) and value >= 0 else None


def _gradient_dtype(ddp: DistributedDataParallel) -> str | None:
    """Such as "float32", or "mixed"; None without gradients."""
    kinds = {str(p.dtype).removeprefix("torch.") for p in ddp.parameters() if p.requires_grad}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


def _comm_hook(ddp: DistributedDataParallel) -> str | None:
    """The qualified name of the user's communication hook, which may lie inside ours."""
    hooks: list[tuple[Any, Any]] = list(getattr(ddp, "_comm_hooks", []))
    timer = getattr(hooks[0][0], "__self__", None) if hooks else None
    hook = timer.users_hook if isinstance(timer, BucketTimer) else hooks[0][0] if hooks else None
    if isinstance(hook, functools.partial):
        hook = hook.func
    if hook is None:
        return None
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    return wire_text(f"{kind.__module__}.{kind.__qualname__}")
