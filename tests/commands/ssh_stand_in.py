"""What `ssh` does as far as a tunnel goes, on this host: runs the command that it is given, or forwards a socket."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    words, forward, only_forward = sys.argv[1:], "", False
    while words and words[0].startswith("-"):
        option = words.pop(0)
        value = words.pop(0) if option in ("-o", "-L", "-O") else ""
        if option == "-O":
            sys.exit("no connection is shared")
        forward = value if option == "-L" else forward
        only_forward = only_forward or option == "-N"
    host, *command = words
    if host == "locked.example":
        print("locked.example: Permission denied (publickey).", file=sys.stderr)
        sys.exit(255)
    if only_forward:
        serve(forward)
    os.execvp("sh", ["sh", "-c", " ".join(command)])


def serve(forward: str) -> None:
    here, there, there_port = forward.rsplit(":", 2)
    if gate := os.environ.get("DDPMON_TEST_GATE"):  # the log-in takes until this file is there
        while not Path(gate).exists():
            time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(here)
        listener.listen()
        while True:
            visitor, _ = listener.accept()
            try:
                store = socket.create_connection((there, int(there_port)))
            except OSError:
                visitor.close()
                continue
            for source, sink in ((visitor, store), (store, visitor)):
                threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()


if __name__ == "__main__":
    main()
