"""What `ddpmon inject` has another Python process run, on its main thread, between two bytecodes. It never raises."""


def _watch() -> None:
    import sys

    try:
        if "torch.nn.parallel.distributed" not in sys.modules:
            return
        try:
            from ddpmon.autoattach.running import watch_running
        except ImportError as error:
            reason = f"{sys.executable} cannot import ddpmon: {error}"
        else:
            watch_running()
            return
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    from contextlib import suppress

    with suppress(Exception):  # stderr may be closed, or None
        sys.stderr.write(f"ddpmon: nothing is watched: {reason}\n")


_watch()
del _watch
