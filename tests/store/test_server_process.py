"""The store's process beside rank 0: whose it is, what it holds, how it ends, and what nobody can make it take."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from ddpmon.store.base import StoreUnavailable
from ddpmon.store.discovery import Announcement, announce, discover
from ddpmon.store.liveness import started
from ddpmon.store.server_process import StoreProcess, end_left_over, start
from ddpmon.store.tcp_wire import MULTI_GET, query_of_keys
from tests.store.half_open import visited
from tests.store.store_clients import HOME, Client, names

ROOT = Path(__file__).parents[2]
LAST_WORDS_S = 1.0
MOST_BYTES = 160 << 20  # what a run of two ranks lets it take, with an interpreter
# A process that starts a store and does what its arguments say: what it has forked or inherited must not matter.
OWNER = """
import os, socket, sys, time
from ddpmon.store.server_process import start
import ddpmon.store.server_process as module
listener = socket.create_server(("127.0.0.1", 0))
os.set_inheritable(listener.fileno(), True)
if "closed" in sys.argv:
    os.close(0); os.close(1)
with socket.create_server(("127.0.0.1", 0)) as free:  # a port that no other test's store takes when this one has ended
    port = free.getsockname()[1]
launcher = int(next((word[9:] for word in sys.argv if word.startswith("launcher=")), "0"))
store = start("127.0.0.1", port, ranks=2, launcher=launcher, last_words_s=float(sys.argv[1]))
if "waits" in sys.argv:
    try:
        os.waitpid(-1, os.WNOHANG)
        child = "a child"
    except ChildProcessError:
        child = "no child"
else:
    child = "-"
if "forks" in sys.argv and os.fork() == 0:
    time.sleep(600)
said = f"{store.port} {store.pid} {listener.getsockname()[1]} {child}"
os.write(2, f"{said}\\n".encode())
if "ends" in sys.argv:
    store.end()
time.sleep(600)
"""


class Owner:
    """The process OWNER, with what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        port, pid, listener, self.child = process.stderr.readline().strip().split(" ", 3)
        self.port, self.store, self.listener = int(port), psutil.Process(int(pid)), int(listener)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def owner(*options: str, last_words_s: float = LAST_WORDS_S) -> Iterator[Owner]:
    command = [sys.executable, "-c", OWNER, str(last_words_s), *options]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        try:
            yield Owner(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has forked


@pytest.fixture
def store() -> Iterator[StoreProcess]:
    found = start(HOME, ranks=2)
    yield found
    found.end()


def until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_nobodys_child_and_nobody_waits_for_it() -> None:
    with owner("waits") as owned:
        assert owned.child == "no child"
        assert psutil.Process(owned.process.pid).children(recursive=True) == []
        assert os.getsid(owned.store.pid) not in (os.getsid(owned.process.pid), os.getsid(0))


def test_a_child_subreaper_is_left_no_zombie() -> None:
    ends = "import ctypes; ctypes.CDLL(None).prctl(36, 1); from ddpmon.store.server_process import os, start; "
    ends += "start('127.0.0.1').end(); os.waitpid(-1, 0)"
    done = subprocess.run([sys.executable, "-c", ends], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ChildProcessError" in done.stderr


def test_it_holds_nothing_of_whom_it_was_started_by() -> None:
    with owner() as owned:
        owned.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOME, owned.listener))
        assert owned.store.is_running()
        assert owned.store.cwd() == "/"


def test_a_clean_end_leaves_no_process_and_no_port() -> None:
    with owner("ends", last_words_s=600) as owned:
        until(lambda: not owned.store.is_running())
        with pytest.raises(ConnectionRefusedError):
            Client(owned.port)


@pytest.mark.parametrize("options", [(), ("forks",)])
def test_it_outlives_an_owner_that_was_killed_for_its_last_words_and_no_longer(options: tuple[str, ...]) -> None:
    with owner(*options) as owned:
        Client(owned.port).put("ddpmon/last", b"words")
        owned.kill()
        assert Client(owned.port).get("ddpmon/last") == [b"words"]
        until(lambda: not owned.store.is_running())
        with pytest.raises(ConnectionRefusedError):
            Client(owned.port)


def test_while_a_launcher_may_start_the_ranks_again_it_stays_beyond_its_last_words() -> None:
    with (
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as launcher,  # it ends with its input
        owner(f"launcher={launcher.pid}", last_words_s=0.0) as owned,
    ):
        owned.kill()
        for _ in range(2):  # each store looks once a second
            with owner(last_words_s=0.0) as other:
                other.kill()
                until(lambda: not other.store.is_running())
        assert Client(owned.port).count() == 0
        launcher.communicate()
        until(lambda: not owned.store.is_running())


def test_a_signal_to_it_alone_ends_it_with_its_owner_and_not_before() -> None:
    with owner(last_words_s=600) as owned:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(owned.store.pid, number)
        assert Client(owned.port).count() == 0
        owned.kill()
        until(lambda: not owned.store.is_running())


def test_a_job_that_starts_again_ends_the_store_of_its_killed_predecessor_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with owner(last_words_s=600) as owned:
        said = Announcement(
            run_id="job-1",
            name="job",
            url=f"tcp://{HOME}:{owned.port}",
            pid=owned.process.pid,
            store_pid=owned.store.pid,
            host=socket.gethostname(),
            world_size=2,
            started_at=time.time(),
        )
        announce(said)
        (run,) = (run for run in discover() if run.run_id == "job-1")  # other runs may be on this host
        assert not end_left_over(run), "its rank 0 lives"
        assert owned.store.is_running()
        owned.kill()
        assert end_left_over(run)
        again = start(HOME, owned.port)
        again.end()
        assert again.port == owned.port


def test_an_owner_without_streams_gets_one_too() -> None:
    with owner("closed") as owned:
        assert Client(owned.port).count() == 0


def test_it_is_small(store: StoreProcess) -> None:
    assert psutil.Process(store.pid).memory_info().rss < 20 << 20


def test_a_port_that_is_taken_is_passed_over(store: StoreProcess) -> None:
    other = start(HOME, store.port)
    assert other.port > store.port
    other.end()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("", "does not know its own program"),
        ("/nowhere/python", "/nowhere/python: No such file or directory"),
        ("/bin/echo", "/bin/echo is no Python interpreter"),
    ],
)
def test_without_an_interpreter_there_is_none_and_a_sentence_says_why(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], program: str, why: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(StoreUnavailable, match=f"^no store can be hosted here: .*{why}"):
        start(HOME)
    assert capfd.readouterr() == ("", "")


def test_a_frozen_program_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(StoreUnavailable, match=r"^no store can be hosted here: .* is no Python interpreter$"):
        start(HOME)


@pytest.mark.parametrize("program", ["true", "echo"])
def test_an_interpreter_that_ends_at_once_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    (tmp_path / "python3").symlink_to(f"/bin/{program}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(StoreUnavailable, match=r"^no store can be hosted here: its process ended at once$"):
        start(HOME)


def test_an_address_of_another_machine_is_said() -> None:
    with pytest.raises(StoreUnavailable, match=r"no store can be hosted here: .*Cannot assign requested address"):
        start("192.0.2.1")


def test_a_limit_of_processes_is_said() -> None:
    if os.geteuid() == 0:
        pytest.skip("no limit of processes holds for root")
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        with pytest.raises(StoreUnavailable, match="no store can be hosted here"):
            start(HOME)
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def test_one_that_does_not_end_at_once_ends_with_its_process(store: StoreProcess) -> None:
    os.kill(store.pid, signal.SIGSTOP)
    try:
        store.end()
        assert store.is_running
    finally:
        os.kill(store.pid, signal.SIGCONT)
    until(lambda: not store.is_running)


def test_what_trickles_answers_at_its_address_does_not_hold_who_ends_it() -> None:
    def trickle(visitor: socket.socket) -> None:
        with visitor, suppress(OSError):
            while True:
                visitor.sendall(b"x")
                time.sleep(0.01)

    def admit(visitor: socket.socket) -> None:
        threading.Thread(target=trickle, args=(visitor,), daemon=True).start()

    with visited(admit) as port, subprocess.Popen(["/bin/sleep", "600"]) as process:
        StoreProcess(HOME, port, process.pid, started(process.pid), b"secret").end()
        process.wait(60)  # else it sleeps on; `end` may have taken its exit code, since it is our child here
        assert started(process.pid) is None


def test_whatever_is_sent_to_it_its_memory_is_bounded_and_its_friends_are_served(store: StoreProcess) -> None:
    process, friend = psutil.Process(store.pid), Client(store.port)
    friend.put("ddpmon/large", bytes(1 << 20))
    attackers = [Client(store.port) for _ in range(300)]
    for each in attackers:
        each.say(query_of_keys(MULTI_GET, ["ddpmon/large"] * 100))
    for attempt in range(100):
        attackers.append(Client(store.port))
        with suppress(ConnectionError):
            for key in names(100, f"attempt{attempt}"):
                attackers[-1].put(key, bytes(1 << 20))
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000) * 100:
        with suppress(ConnectionError):
            attackers.append(Client(store.port, greets=False))
            attackers[-1].say(noise)
    friend.put("ddpmon/frame", b"here")
    assert friend.get("ddpmon/frame") == [b"here"]
    assert (40 << 20) < process.memory_info().rss < MOST_BYTES, "it has taken what it may, and not more"
    for each in attackers:
        each.close()
