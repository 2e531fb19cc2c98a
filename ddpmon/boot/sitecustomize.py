"""Runs at the start of every Python process below `ddpmon run`, and must cost less than a millisecond there.

It takes its own folder off `sys.path` again, leaves one finder on `sys.meta_path`, and runs the sitecustomize that
Python would have run without it. The finder answers for the modules in `_MAKERS` alone: once such a module has been
executed, what makes models in it reports each one to `ddpmon.autoattach`, which is imported then and not earlier.

It imports only what every Python has imported already. No loader is replaced: the one that Python has found gets an
attribute `exec_module`, which removes itself before the module's code runs.
"""

import os
import sys

TYPE_CHECKING = False  # to import `typing` here takes a millisecond
if TYPE_CHECKING:
    from typing import Any

# Module -> what in it makes a data parallel model: (a class or None, a function).
_MAKERS = {
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "__init__"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": ("FullyShardedDataParallel", "__init__"),
    "torch.distributed.fsdp._fully_shard._fully_shard": (None, "fully_shard"),
    "torch.distributed._composable.replicate_with_fsdp": (None, "replicate"),
    "torch._dynamo.eval_frame": ("OptimizedModule", "__init__"),
}
_MODELS = "ddpmon.autoattach.models"


class _Finder:
    """Finds nothing itself: it asks the other finders for the modules that it waits for, for each once."""

    def __init__(self) -> None:
        self.awaited = dict(_MAKERS)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The spec of a module that is waited for, with its loader hooked; None for every other."""
        if name not in self.awaited:
            return None
        maker = self.awaited.pop(name)
        if not self.awaited and self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
        for finder in list(sys.meta_path):
            find: Any = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                _hook(spec.loader, maker)
                return spec
        return None


def _hook(loader: "Any", maker: "tuple[str | None, str]") -> None:
    """Let `loader` wrap the maker of models once it has executed its module."""

    def exec_module(module: "Any") -> None:
        del loader.exec_module
        loader.exec_module(module)
        try:
            _wrap(module if maker[0] is None else getattr(module, maker[0]), maker[1])
        except Exception:  # a torch that is built in another way is not watched
            sys.exc_info()

    try:
        loader.exec_module = exec_module
    except Exception:  # a loader that takes no attributes
        sys.exc_info()


def _wrap(owner: "Any", name: str) -> None:
    import functools

    original = getattr(owner, name)

    @functools.wraps(original)
    def make(*args: "Any", **kwargs: "Any") -> "Any":
        result = original(*args, **kwargs)
        if owner.__name__ != "OptimizedModule" or _MODELS in sys.modules:  # a compiled model may not be a parallel one
            _report(result if result is not None else args[0])
        return result

    setattr(owner, name, make)


def _report(model: "Any") -> None:
    """Tell ddpmon of a new model; where it cannot be imported, one rank of the job says so, once."""
    try:
        from ddpmon.autoattach.models import built
    except Exception as error:
        if not hasattr(sys, "_ddpmon_said") and os.environ.get("RANK", "0") == "0" and sys.stderr is not None:
            setattr(sys, "_ddpmon_said", True)  # noqa: B010
            sys.stderr.write(f"ddpmon: nothing is watched: {sys.executable} cannot import ddpmon: {error}\n")
        return
    built(model)


try:
    _here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [_entry for _entry in sys.path if _entry != _here]
    sys.path_importer_cache.pop(_here, None)
    if os.environ.get("DDPMON") != "0" and os.environ.get("DDPMON_RUN") and sys.version_info >= (3, 10):
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
finally:
    _own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401  # the one that comes next on the path
    except ImportError as _error:
        if _error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = _own  # type: ignore[assignment]
