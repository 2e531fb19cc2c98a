"""Whoever reaches the store takes no descriptor and no memory of the process that publishes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.connect import parse_target
from ddpmon.store.discovery import discover
from tests.probe.lone_uplink import lone_uplink, speak
from tests.probe.probe_ranks import private_runs
from tests.ranks import ROOT

MOST_BYTES = 8 << 20  # that this process may grow by for reasons of its own
# Connections that stay, values, and answers that nobody reads, until its standard input is closed.
ATTACK = """
import resource, sys
from contextlib import suppress
from ddpmon.store.tcp_wire import MULTI_GET, query_of_keys
from tests.store.store_clients import Client, names
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
port, held = int(sys.argv[1]), []
for attempt in range(64):
    with suppress(ConnectionError):
        held.append(Client(port))
        for key in names(100, f"attempt{attempt}"):
            held[-1].put(key, bytes(1 << 20))
for attempt in range(3000):
    with suppress(ConnectionError, AssertionError):
        held.append(Client(port, greets=False))
        if attempt % 10 == 0:
            held.append(Client(port))
            held[-1].say(query_of_keys(MULTI_GET, names(30, "attempt0")))
print(len(held), flush=True)
sys.stdin.read()
"""


def test_an_attacked_store_costs_the_publisher_nothing(tmp_path: Path) -> None:
    with private_runs(tmp_path), closing(lone_uplink("attacked")) as uplink:
        assert uplink.connect()
        speak(uplink)
        port, here = parse_target(discover()[0].url).port, psutil.Process()
        before = here.num_fds(), here.memory_info().rss
        command = [sys.executable, "-c", ATTACK, str(port)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment
        ) as attack:
            assert attack.stdout is not None
            attack.stdout.readline()
            ours = 3  # the pipes of the attacking process
            assert here.num_fds() <= before[0] + ours
            speak(uplink)
            attack.communicate()
        assert here.num_fds() == before[0]
        assert here.memory_info().rss < before[1] + MOST_BYTES
