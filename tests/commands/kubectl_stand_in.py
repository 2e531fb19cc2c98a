"""A stand-in for kubectl: `get pods`, `exec` and `port-forward` against pods that are folders of this host.

The file `pods.json` beside it has the pods as `kubectl get pods -o json` prints them, each with the environment of its
commands. If there is a file `refusal`, every command fails with its words; with a file `flood` they print without end,
and with a file `silence` they say nothing for ten minutes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[0]).resolve().parent


def main() -> None:
    arguments = sys.argv[1:]
    if (HERE / "refusal").exists():
        sys.exit((HERE / "refusal").read_text())
    if (HERE / "flood").exists():
        while True:
            sys.stdout.write("x" * (1 << 20))
    if (HERE / "silence").exists():
        time.sleep(600)
    cluster = json.loads((HERE / "pods.json").read_text())
    namespace = option(arguments, "--namespace", "default")
    pods = [pod for pod in cluster["items"] if pod["metadata"]["namespace"] == namespace]
    command = arguments.pop(0)
    if command == "get":
        label, _, value = option(arguments, "--selector").partition("=")
        found = [pod for pod in pods if pod["metadata"]["labels"].get(label) == value]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    elif command == "exec":
        pod = named(pods, arguments[0])
        program = arguments[arguments.index("--") + 1 :]
        os.execvpe(program[0], program, {**os.environ, **pod["environment"]})
    elif command == "port-forward":
        named(pods, arguments[-2].removeprefix("pod/"))
        forward(*arguments[-1].split(":"))


def option(arguments: list[str], name: str, default: str = "") -> str:
    for word in arguments:
        if word.startswith(f"{name}="):
            arguments.remove(word)
            return word.partition("=")[2]
    return default


def named(pods: list[Any], name: str) -> Any:
    for pod in pods:
        if pod["metadata"]["name"] == name:
            if pod["status"]["phase"] != "Running":
                sys.exit(f"error: unable to forward port because pod is not running. Current status={pod['status']}")
            return pod
    sys.exit(f'Error from server (NotFound): pods "{name}" not found')


def forward(local: str, remote: str) -> None:
    """Accept connections on loopback, and pass each on to the port of the pod."""
    server = socket.create_server(("127.0.0.1", int(local or 0)))
    print(f"Forwarding from 127.0.0.1:{server.getsockname()[1]} -> {remote}", flush=True)
    if (HERE / "talk").exists():
        print("Handling connection for 1\n" * 100_000, file=sys.stderr, flush=True)
    while True:
        here, _ = server.accept()
        try:
            there = socket.create_connection(("127.0.0.1", int(remote)))
        except OSError as error:
            said = f"error forwarding port {remote} to pod 4fa, uid : {error.strerror}"
            print(
                f"E1123 portforward.go:424] an error occurred forwarding {remote} -> {remote}: {said}", file=sys.stderr
            )
            here.close()
            continue
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=passed_on, args=(one, other), daemon=True).start()


def passed_on(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


if __name__ == "__main__":
    main()
