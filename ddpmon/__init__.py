"""ddpmon: a terminal dashboard for live PyTorch DistributedDataParallel runs.

`import ddpmon` loads neither torch nor textual: public names are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpmon.version import __version__

if TYPE_CHECKING:
    from ddpmon.probe.monitor import Monitor, attach

__all__ = ["Monitor", "__version__", "attach"]


def __getattr__(name: str) -> Any:
    if name in ("Monitor", "attach"):
        from ddpmon.probe import monitor

        return getattr(monitor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
