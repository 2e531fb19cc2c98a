"""The commands on a real training run with a slow rank: seen, judged, stopped, killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddpmon.store.discovery import discover, past_runs
from tests.ranks import Group, running

pytest.importorskip("torch")
Done = subprocess.CompletedProcess[str]
DDPMON = [sys.executable, "-m", "ddpmon.cli"]
DELAY_MS = 500
TRAINING = ["--steps=1000000", "--name=live", "--layers=2", f"--fault=input:rank=1,ms={DELAY_MS},from=20"]
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A training run of two ranks, of which rank 1 is slow from step 20 on, once that is seen."""
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        with running(Group(2, "trainer", TRAINING, [folder / "log"])) as group:
            wait_for_the_straggler(group, folder / "log")
            yield group


def wait_for_the_straggler(group: Group, log: Path) -> None:
    """Until `status` names the slow rank above all else, and the steps that it shows are all slow ones."""
    deadline, done = time.monotonic() + PATIENCE_S, ddpmon("--version")
    while time.monotonic() < deadline and group.poll() is None:
        done = ddpmon("status", "--json")
        if done.returncode == 0:
            seen = json.loads(done.stdout)
            inputs = [rank["phases_ms"]["input"] or 0.0 for rank in seen["ranks"]]
            if inputs[1] > DELAY_MS * 0.9 and any(each["severity"] == "critical" for each in stragglers(seen)):
                return
        time.sleep(1.0)
    pytest.fail(f"no straggler: {done.stdout}{done.stderr}{log.read_text(errors='replace')[-3000:]}")


def stragglers(seen: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in seen["findings"] if finding["kind"] == "straggler" and finding["ranks"] == [1]]


def ddpmon(*arguments: str) -> Done:
    done = subprocess.run([*DDPMON, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    return done


def status() -> dict[str, Any]:
    done = ddpmon("status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.usefixtures("live")
def test_json_names_the_slow_rank_and_its_phase() -> None:
    seen = status()
    assert (seen["run"]["name"], seen["run"]["world_size"], seen["run"]["state"]) == ("live", 2, "running")
    assert seen["coverage"]["reporting"] == 2
    (straggler,) = stragglers(seen)
    assert straggler["phase"] == "input"
    early, late = seen["ranks"]
    assert late["phases_ms"]["input"] > DELAY_MS * 0.9
    assert early["exposed_ms"] > late["exposed_ms"], "the slow rank is the one that waits least"
    assert late["lateness_ms"] > early["lateness_ms"]


@pytest.mark.usefixtures("live")
def test_the_advice_names_a_command_that_works_on_the_readers_host() -> None:
    straggler = status_of_a_sleep()
    assert f"`ssh {straggler['nodes'][0]} py-spy dump --pid" in straggler["advice"], "it may be read on another host"


def status_of_a_sleep() -> dict[str, Any]:
    """The straggler in a look at which other work on this machine explains none of its lateness."""
    while True:  # the test's own deadline ends this
        found = stragglers(status())
        if found and found[0]["cause"] is None:
            return found[0]
        time.sleep(1.0)


@pytest.mark.usefixtures("live")
def test_the_run_goes_on_between_two_looks() -> None:
    before = status()["run"]["step"]
    while status()["run"]["step"] == before:  # the test's own deadline ends this
        time.sleep(0.2)
    assert status()["run"]["step"] > before


@pytest.mark.usefixtures("live")
def test_a_script_can_fail_on_the_finding() -> None:
    assert ddpmon("status", "--json", "--fail-on", "info").returncode == 1
    assert ddpmon("status").returncode == 0


@pytest.mark.usefixtures("live")
def test_a_person_reads_the_verdict_and_the_slow_rank_first() -> None:
    (run,) = discover()
    printed = printed_of_a_sleep(run.url)
    assert any("rank 1" in line and "input" in line for line in printed[:4])
    assert any("`py-spy dump --pid" in line for line in printed[:4]), "a reader on its host needs no ssh"
    assert any(re.search(r"last step \d", line) for line in printed), printed
    heading = next(at for at, line in enumerate(printed) if line.split()[:1] == ["rank"])
    assert printed[heading + 1].split()[0] == "1"


def printed_of_a_sleep(url: str) -> list[str]:
    """The printed lines of a look at which other work on this machine explains none of the straggler's lateness."""
    while True:  # the test's own deadline ends this
        printed = ddpmon("status", url).stdout.splitlines()
        if any("check the data loading" in line for line in printed[:4]):
            return printed
        time.sleep(1.0)


@pytest.mark.usefixtures("live")
def test_the_dashboard_opens_shows_the_run_and_quits_with_a_summary() -> None:
    code, screen = in_a_terminal("watch", (b"live", b"q"))
    assert code == 0, screen[-3000:]
    _, _, after = screen.rpartition(b"\x1b[?1049l")
    assert b"live" in after, "the summary stands on the ordinary screen, after the dashboard has gone"
    assert b"Traceback" not in screen


def test_a_store_that_is_stopped_is_3_and_recovers(live: Group) -> None:
    (run,) = discover()
    live.send_signal(signal.SIGSTOP)
    os.kill(run.store_pid, signal.SIGSTOP)
    try:
        done = ddpmon("status", "--json")
        assert (done.returncode, done.stdout) == (3, "")
        assert len(done.stderr.splitlines()) == 1
    finally:
        os.kill(run.store_pid, signal.SIGCONT)
        live.send_signal(signal.SIGCONT)
    assert status()["run"]["name"] == "live"


def test_a_killed_run_can_be_read_while_its_store_lives_and_is_3_afterwards(live: Group) -> None:
    (run,) = discover()
    live.send_signal(signal.SIGKILL)
    live.wait(PATIENCE_S)
    assert status()["run"]["id"] == run.run_id, "its last words"
    store = psutil.Process(run.store_pid)
    store.terminate()
    store.wait(PATIENCE_S)
    for target in ([], [f"{run.url}/{run.run_id}"]):  # the port alone may be another run's by now
        done = ddpmon("status", *target)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1), done.stderr
    assert run.run_id in {past.id for past in past_runs()}


def test_ending_the_demo_ends_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    demo = start_demo()
    tree = wait_for_ranks(psutil.Process(demo.pid), 2)
    assert bucket_detail(tree) == {"1"}
    demo.terminate()
    printed, said = demo.communicate()
    assert demo.returncode == 128 + signal.SIGTERM
    assert said == ""
    assert "the launcher imports torch" in printed
    _, left = psutil.wait_procs(tree, timeout=PATIENCE_S)
    assert left == []
    assert not list(tmp_path.glob("ddpmon-demo-*"))


def test_a_launcher_that_a_signal_ends_leaves_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("DDPMON_BUCKETS", "0")
    demo = start_demo()
    tree = wait_for_ranks(psutil.Process(demo.pid), 2)
    assert bucket_detail(tree) == {"0"}, "as the user set it"
    psutil.Process(demo.pid).children()[0].terminate()
    _, said = demo.communicate()
    assert demo.returncode == 1
    assert "ended by a signal" in said
    assert "Traceback" not in said
    assert psutil.wait_procs(tree, timeout=PATIENCE_S)[1] == []


def start_demo() -> subprocess.Popen[str]:
    command = [*DDPMON, "demo", "--nproc=2"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def test_the_demos_dashboard_is_there_before_the_ranks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, screen = in_a_terminal("demo", "--nproc=2", (b" torch", b"q"))  # the launcher's, or the ranks'
    assert code == 0, screen[-3000:]
    assert b"starting 2 ranks" in screen
    assert b"no run was seen" in screen.rpartition(b"\x1b[?1049l")[2]


def test_the_demos_dashboard_can_be_rewound_and_quitting_it_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, screen = in_a_terminal("demo", "--nproc=2", (b"RUNNING", b"["), (b"REWOUND", b"q"))
    assert code == 0, screen[-3000:]
    assert b"REWOUND" in screen
    assert b"demo-" in screen.rpartition(b"\x1b[?1049l")[2]
    assert discover() == []
    assert past_runs() == [], "to a guard it has ended, and was not killed"


def wait_for_ranks(parent: psutil.Process, count: int) -> list[psutil.Process]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and parent.status() != psutil.STATUS_ZOMBIE:
        tree = parent.children(recursive=True)
        ranks = []
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                ranks += ["LOCAL_RANK"] if "LOCAL_RANK" in process.environ() else []
        if len(ranks) == count:
            return tree
        time.sleep(0.2)
    raise AssertionError("the demo started no ranks")


def bucket_detail(processes: Sequence[psutil.Process]) -> set[str | None]:
    """What ranks are told of bucket detail."""
    told = [process.environ() for process in processes]
    return {each.get("DDPMON_BUCKETS") for each in told if "LOCAL_RANK" in each}


def in_a_terminal(*arguments: str | tuple[bytes, bytes]) -> tuple[int, bytes]:
    """Run on a terminal of 80x24; the exit code and what was drawn.

    Of each pair the second one is pressed once the first one has been drawn, again and again until that of the next is.
    """
    steps = [each for each in arguments if isinstance(each, tuple)]
    words = [each for each in arguments if isinstance(each, str)]
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen([*DDPMON, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    screen, deadline, key = b"", time.monotonic() + PATIENCE_S, b""
    while process.poll() is None and time.monotonic() < deadline:
        screen += drawn(ours)
        if steps and steps[0][0] in screen:
            key = steps.pop(0)[1]
        os.write(ours, key)
    process.kill()
    process.wait()
    screen += drawn(ours)
    os.close(ours)
    os.close(theirs)
    return process.returncode, screen


def drawn(terminal: int) -> bytes:
    """What has come within a moment."""
    parts = []
    while select.select([terminal], [], [], 0.2)[0]:
        parts.append(os.read(terminal, 1 << 16))
    return b"".join(parts)
