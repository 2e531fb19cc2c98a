"""One rank's life, whoever started it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

import torch

from .config import Config, ConfigError
from .launch import place
from .loop import train

STOPPED = 130
GRACE_S = 3.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_rank(config: Config) -> int:
    """Train as one rank in this process; return the exit code."""
    listen_for_signals()
    end_even_if_stuck()
    # Ranks share the host's cores; one thread each also makes the order of additions repeatable.
    torch.set_num_threads(1)
    try:
        with place(config) as here:
            train(config, here)
    except ConfigError as error:
        return refuse(error)
    except KeyboardInterrupt as signalled:
        end_now(str(signalled))
    return 0


def end_now(signal_name: str) -> NoReturn:
    """Say what ended this rank and leave without destructors: they would wait for collectives that never come."""
    print(f"trainer: rank {os.environ.get('RANK', '0')} stopped by {signal_name}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(STOPPED)


def refuse(error: ConfigError) -> int:
    """Print one sentence per host, however many ranks found the mistake, and return exit code 2."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"trainer: {error}", file=sys.stderr, flush=True)
    else:
        # The launcher ends all ranks when the first one fails: that shall not be before the sentence is out.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(1)
    return 2


def listen_for_signals() -> None:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt, once: a launcher may well send both."""
    for number in SIGNALS:
        signal.signal(number, _stop)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def end_even_if_stuck() -> None:
    """End this process some seconds after a signal that the main thread, stuck in a collective, cannot hear."""
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    signal.set_wakeup_fd(mouth.detach())
    os.register_at_fork(after_in_child=_forget_signals)
    threading.Thread(target=_end_late, args=(ear,), daemon=True).start()


def _end_late(ear: socket.socket) -> None:
    number = ear.recv(1)[0]
    time.sleep(GRACE_S)
    end_now(signal.Signals(number).name)


def _forget_signals() -> None:
    # A DataLoader's worker shares the socket: its signals are not ours.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
