"""`ddpmon export --prometheus`: a run's figures at a web address that Prometheus reads."""

from __future__ import annotations

import signal
import threading
from types import ModuleType

from ddpmon.commands.console import NO_RUN, OK, USAGE, complain
from ddpmon.commands.target import reached
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.watcher.observer import Observer

EVERY_S = 1.0


def export_prometheus(target: str | None, address: str, ssh: str | None = None, slurm: str | None = None) -> int:
    """Serve the run's figures at HOST:PORT until SIGTERM or SIGINT; returns the exit code."""
    try:
        client, (host, port) = _client(), host_and_port(address)
        with reached(target, ssh, slurm) as route:
            return _serve(client, Observer(route.target, route.way), host, port)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN


def _client() -> ModuleType:
    """The library that Prometheus publishes.

    Raises:
        TargetError: it is not installed.
    """
    try:
        import prometheus_client
    except ImportError:
        raise TargetError("--prometheus needs prometheus-client: pip install prometheus-client") from None
    client: ModuleType = prometheus_client
    return client


def host_and_port(text: str) -> tuple[str, int]:
    """Where to listen; port 0 is any free one.

    Raises:
        TargetError: it is not HOST:PORT.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise TargetError(f"{text!r} is not HOST:PORT, where Prometheus reads: such as 127.0.0.1:9480")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _serve(client: ModuleType, observer: Observer, host: str, port: int) -> int:
    from ddpmon.commands.prometheus_metrics import Metrics

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    metrics, registry = Metrics(), client.CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    metrics.snapshot = observer.tick()
    try:
        server, _ = client.start_http_server(port, host, registry)
    except OSError as error:
        raise TargetError(f"{host}:{port} cannot be listened at: {error.strerror or error}") from None
    shown = f"[{host}]" if ":" in host else host
    print(f"figures for Prometheus: http://{shown}:{server.server_port}/metrics", flush=True)
    while not stopping.wait(EVERY_S):
        metrics.snapshot = observer.tick()
    observer.close()
    return OK
