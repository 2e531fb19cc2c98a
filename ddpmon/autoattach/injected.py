"""What `ddpmon inject` has another Python process run, on its main thread, between two bytecodes. It never raises."""


def _watch() -> None:
    import sys

    try:
        if "torch.nn.parallel.distributed" not in sys.modules:
            return
        from ddpmon.autoattach.living import watch_living

        watch_living()
    except Exception as error:
        from contextlib import suppress

        with suppress(Exception):  # stderr may be closed, or None
            sys.stderr.write(f"ddpmon: nothing is watched: {sys.executable} cannot import ddpmon: {error}\n")


_watch()
del _watch
