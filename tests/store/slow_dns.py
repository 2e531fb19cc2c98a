"""On a host whose name server never answers, in namespaces of its own: what a watcher is told, as one line of JSON.

Run it as `unshare -n -m PYTHON slow_dns.py FOLDER`: it mounts a resolv.conf over the host's and listens at port 53.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import connect, list_runs, parse_target
from tests.external_runs import MadeRun
from tests.store.served import serve


def said(what: Callable[[], object]) -> str:
    """The sentence with which it fails, "" if it does not."""
    try:
        what()
    except StoreUnavailable as error:
        return str(error)
    return ""


def main() -> None:
    """Ask a store here by its address, and others by their names."""
    settings = Path(sys.argv[1]) / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\n")
    for command in (["ip", "link", "set", "lo", "up"], ["mount", "--bind", str(settings), "/etc/resolv.conf"]):
        subprocess.run(command, check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 53))
        store, port = serve()
        MadeRun(store)
        runs = list_runs(connect(parse_target(f"tcp://127.0.0.1:{port}")))
        deaf.setblocking(False)
        try:
            questions = len(deaf.recv(4096))
        except BlockingIOError:
            questions = 0
        addresses = ("tcp://trainer.example:29480", "redis://trainer.example", "rediss://trainer.example")
        with ThreadPoolExecutor() as pool:
            told = [*pool.map(lambda address: said(lambda: connect(parse_target(address))), addresses)]
        store.close()
    print(json.dumps({"runs": runs, "questions": questions, "told": told}), flush=True)


if __name__ == "__main__":
    main()
