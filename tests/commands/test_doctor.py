"""`ddpmon doctor` on this machine, alone and under a launcher."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from network import network, why_not

from tests import ranks

CANNOT = why_not()


def doctor(*arguments: str, **environment: str) -> tuple[int, str]:
    done = ranks.run("ddpmon.doctor", *arguments, environment=environment)
    return done.returncode, done.stdout + done.stderr


def test_a_taken_port_will_fail_and_its_holder_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, said = doctor("--nproc=1", f"--port={port}", "--json")
    found: dict[str, Any] = json.loads(said)
    (check,) = [check for check in found["checks"] if check["name"] == "port" and str(port) in check["text"]]
    assert (code, found["verdict"], check["level"]) == (2, "failure", "failure")
    assert f"pid {os.getpid()}" in check["text"]


def test_more_ranks_than_cpus_is_a_warning_in_the_table() -> None:
    with socket.socket() as lender:
        lender.bind(("", 0))
        free = lender.getsockname()[1]
    code, said = doctor("--nproc=4096", f"--port={free}")
    assert code == 1, said
    assert "the ranks would wait for a CPU" in said
    assert said.splitlines()[-1].startswith("the run will start, but not run well")


def test_nonsense_is_named_in_one_sentence() -> None:
    code, said = doctor(GROUP_RANK="zero", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    assert code == 2
    assert said == "ddpmon: GROUP_RANK=zero is not a number: start this under torchrun or srun, or by itself\n"


@pytest.mark.live
def test_all_hosts_of_a_launch_are_in_one_table(tmp_path: Path) -> None:
    with socket.socket() as lender:
        lender.bind(("127.0.0.1", 0))
        port = lender.getsockname()[1]

    def launch(host: int) -> subprocess.Popen[str]:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={host}"]
        where = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        return subprocess.Popen(
            [*torchrun, *where, "-m", "ddpmon.doctor", "--json"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    both = [launch(0), launch(1)]
    try:
        said = [process.communicate(timeout=150) for process in both]
    finally:
        for process in both:
            process.kill()
    found = json.loads(said[0][0])
    assert len(found["hosts"]) == 2, said
    assert [host["ranks"] for host in found["hosts"]] == [2, 2]
    assert [host["host"].endswith(f" (host {number})") for number, host in enumerate(found["hosts"])] == [True, True]
    assert any(check["name"] == "versions" and check["level"] == "ok" for check in found["checks"])
    assert said[1][0] == "", "only the first host prints"


@pytest.mark.live
def test_the_launcher_of_the_check_does_not_take_its_own_port() -> None:
    """It said that the run would fail, because torchrun held the port of the rendezvous."""
    with socket.socket() as lender:
        lender.bind(("127.0.0.1", 0))
        port = lender.getsockname()[1]
    torchrun = ["--nnodes=1", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    done = ranks.run("torch.distributed.run", *torchrun, "-m", "ddpmon.doctor", environment={"OMP_NUM_THREADS": "1"})
    assert "failures" in done.stdout, "it came to its verdict"
    assert f"port {port}" not in done.stdout


@pytest.mark.skipif(CANNOT != "", reason=CANNOT or "-")
def test_where_the_address_to_meet_at_is_the_last_hosts_that_one_serves() -> None:
    with network(3) as net:
        common = {"SLURM_STEP_ID": "0", "SLURM_NNODES": "3", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"}
        common |= {"MASTER_ADDR": net.address(2), "MASTER_PORT": "29555"}

        def launch(host: int) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*net.enter(host), sys.executable, "-m", "ddpmon.doctor", "--json"],
                env={**os.environ, **common, "SLURM_PROCID": str(host), "SLURM_NODEID": str(host)},
                cwd=ranks.ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        all_of_them = [launch(host) for host in range(3)]
        try:
            said = [process.communicate() for process in all_of_them]
        finally:
            for process in all_of_them:
                process.kill()
    assert said[0][0], said
    assert len(json.loads(said[0][0])["hosts"]) == 3
    assert [out for out, _ in said[1:]] == ["", ""]
    assert all("Traceback" not in error and "[W" not in error for _, error in said)
    assert [process.returncode for process in all_of_them[1:]] == [0, 0]


def test_a_host_that_cannot_be_met_says_so() -> None:
    with socket.socket() as lender:
        lender.bind(("127.0.0.1", 0))
        port = lender.getsockname()[1]
    code, said = doctor(
        GROUP_RANK="1",
        GROUP_WORLD_SIZE="2",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    assert code == 2
    assert f"host 1 cannot reach the others at 127.0.0.1:{port}" in said
