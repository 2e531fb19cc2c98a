"""Runs at the start of every Python process below `ddpmon run`, and must cost less than a millisecond there.

It takes its folder off `sys.path`, leaves one finder on `sys.meta_path`, and runs the sitecustomize that would have run
without it. Once a module in `_MAKERS` has been executed, what makes models in it reports each to `ddpmon.autoattach`,
which is imported then. A loader keeps its class: its attribute `exec_module` is gone before the module's code runs.
"""

import os
import sys

TYPE_CHECKING = False  # to import `typing` here takes a millisecond
if TYPE_CHECKING:
    from typing import Any

_MAKERS = {  # module that is waited for -> what in it makes a data parallel model: (a class or None, a function)
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "__init__"),
    "torch.nn.parallel.data_parallel": ("DataParallel", "__init__"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("FullyShardedDataParallel", "__init__"),
    "torch.distributed.fsdp._fully_shard._fully_shard": (None, "fully_shard"),
    "torch.distributed._composable.replicate_with_fsdp": (None, "replicate"),
    "torch._dynamo.eval_frame": ("OptimizedModule", "__init__"),
    "horovod.torch.optimizer": (None, "DistributedOptimizer"),
    "deepspeed.runtime.engine": ("DeepSpeedEngine", "__init__"),
}


class _Finder:
    """Finds nothing itself: it asks the other finders for the modules that it waits for, until they have been run."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The spec of a module that is waited for, with its loader hooked; None for any other."""
        for finder in sys.meta_path[:] if name in _MAKERS else ():
            find: Any = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self.hook(spec.loader, name)
                return spec
        return None

    def hook(self, loader: "Any", name: str) -> None:
        """Let `loader` wrap the maker of models once it has executed its module."""

        def exec_module(module: "Any") -> None:
            del loader.exec_module
            loader.exec_module(module)
            kind, maker = _MAKERS.pop(name, (None, ""))
            if not _MAKERS and self in sys.meta_path:
                sys.meta_path.remove(self)
            _wrap(module if kind is None else getattr(module, kind, None), maker)

        if hasattr(loader, "__dict__"):
            loader.exec_module = exec_module


def _wrap(owner: "Any", name: str) -> None:
    import functools

    original: Any = getattr(owner, name, None)

    @functools.wraps(original or _wrap)
    def make(*args: "Any", **kwargs: "Any") -> "Any":
        made = original(*args, **kwargs)
        if owner.__name__ != "OptimizedModule" or "ddpmon.autoattach.models" in sys.modules:  # few are parallel
            _report(args[0] if made is None else made)
        return made

    if original is not None:  # else this torch is built in another way
        setattr(owner, name, make)


def _report(model: "Any") -> None:
    """Tell ddpmon of a new model; where it cannot be imported, one rank of the job says so, once."""
    try:
        from ddpmon.autoattach.models import built

        built(model)
    except Exception as error:
        from contextlib import suppress

        with suppress(Exception):  # stderr may be closed, or None
            line = f"ddpmon: nothing is watched: {sys.executable} cannot import ddpmon: {error}\n"
            if os.environ.get("RANK", "0") == "0" and vars(sys).setdefault("_ddpmon_said", line) is line:
                sys.stderr.write(line)


try:
    _here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [_entry for _entry in sys.path if _entry != _here]
    sys.path_importer_cache.pop(_here, None)
    if os.environ.get("DDPMON") != "0" and os.environ.get("DDPMON_RUN") and sys.version_info >= (3, 10):
        sys.meta_path.insert(0, _Finder())
except Exception as _error:  # a Python that is built in another way starts as it would without us
    _failed = _error
_own = sys.modules.pop("sitecustomize", None)
try:  # the sitecustomize that comes next on the path, with the errors that it has without this one
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as _missing:
    if _missing.name != "sitecustomize":
        raise
    sys.modules.update({} if _own is None else {"sitecustomize": _own})
