"""Whose a process is."""

from __future__ import annotations

import pytest

from ddpmon.machine import HostFigures, HostProcess, Process
from ddpmon.run.process_roles import ProcessRoles, owner_of

PIDS = {100: 0, 101: 1}


@pytest.mark.parametrize(
    ("process", "rank"),
    [
        (Process(101), 1),
        (Process(300, [101, 50, 1]), 1),
        (Process(301, [300, 100, 50, 1]), 0),
        (Process(300, [50, 1]), None),
        (Process(50, [1]), None),
        (Process(300), None),
    ],
    ids=[
        "a rank",
        "a worker",
        "a worker's child",
        "a stranger",
        "the launcher",
        "no parents known",
    ],
)
def test_a_process_belongs_to_the_rank_that_it_is_or_descends_from(process: Process, rank: int | None) -> None:
    assert owner_of(process, PIDS) == rank


def test_of_two_ranks_the_nearer_owns_it() -> None:
    assert owner_of(Process(300, [101, 100, 1]), PIDS) == 1


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("python3 ddpmon_store.py", "monitor"),
        ("python -m ddpmon.cli", "monitor"),
        ("ddpmon", "monitor"),
        ("python3 my_ddpmon_store.py", None),
        ("python3 train.py", None),
    ],
)
def test_the_store_beside_rank_0_is_a_monitor_and_no_foreign_process(command: str, role: str | None) -> None:
    assert ProcessRoles(PIDS, HostFigures(), []).role(Process(900, [1], "bob", command)) == role


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/sbin/init splash", "init"),
        ("/usr/lib/systemd/systemd --switched-root", "init"),
        ("/usr/bin/tini -- torchrun train.py", "init"),
        (None, "init"),
        ("/usr/bin/python3 /usr/local/bin/torchrun train.py", "launcher"),
        ("bash initialise.sh", "launcher"),
    ],
)
def test_process_1_is_a_launcher_only_if_it_is_no_init(command: str | None, role: str) -> None:
    rank = Process(100, [50, 1], "alice", "python train.py")
    first = Process(1, [], "root", command)
    figures = HostFigures(processes=[HostProcess(rank, 90.0), HostProcess(first, 1.0)])
    roles = ProcessRoles(PIDS, figures, [])
    assert roles.role(first) == role
    assert roles.role(Process(50, [1], "alice", "torchrun train.py")) == "launcher"
