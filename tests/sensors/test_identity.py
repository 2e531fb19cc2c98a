"""Who a process is, for real processes of every unpleasant kind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from ddpmon.machine import Process
from ddpmon.sensors.identities import Identities

WAITING = "import sys; sys.stdin.read()"
HOME = {**os.environ, "PYTHONHOME": sys.base_prefix}  # found by its own name, which a process may change
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


@contextlib.contextmanager
def started(*words: str | bytes, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    try:
        program_becomes(process.pid, os.fsdecode(words[-1]))
        yield process
    finally:
        process.communicate()


def crossed(process: Process) -> Process:
    """What arrives on the other side of the store."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(process), type=Process)


def program_becomes(pid: int, word: str) -> None:
    """Wait until its command line ends so: for a moment after its start it has none."""
    while psutil.Process(pid).cmdline()[-1:] != [word]:
        os.sched_yield()


def test_a_process_has_parents_a_user_a_command_and_a_start() -> None:
    with started(sys.executable, "-c", WAITING) as child:
        mine, its = Identities().of(os.getpid()), Identities().of(child.pid)
    assert its.parents == [os.getpid(), *mine.parents]
    assert mine.parents == [parent.pid for parent in psutil.Process().parents()]
    assert (mine.user, its.command) == (psutil.Process().username(), f"{Path(sys.executable).name} -c")
    assert mine.started_at == pytest.approx(psutil.Process().create_time())


def test_a_program_in_a_folder_with_a_space_has_its_own_name(tmp_path: Path) -> None:
    program = tmp_path / "a folder" / "python3"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    with started(str(program), "-c", WAITING, env=HOME) as child:
        assert Identities().of(child.pid).command == "python3 -c"


def test_hostile_words_cross_the_store(tmp_path: Path) -> None:
    script = os.fsencode(tmp_path) + b"/\xff\xfe \x1b[31m[bold]\t\n" + "日本".encode() + b"x" * 200
    Path(os.fsdecode(script)).write_text(WAITING)
    with started(sys.executable, script) as child:
        found = Identities().of(child.pid)
    assert crossed(found) == found
    assert found.command is not None
    assert "?? \x1b[31m[bold]\t\n日本xxx" in found.command
    assert len(found.command) < 256
    with started("x" * 5000, executable=shutil.which("cat")) as child:  # Python does not start by such a name
        assert Identities().of(child.pid).command == "x" * 256


@pytest.mark.parametrize(
    "user",
    [os.geteuid(), pytest.param(65534, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another user"))],
)
@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["python3", "-c", "import train"], "python3 -c"),
        (["python3", "-uc", "import train"], "python3"),
        (["/opt/bin/python3.13", "-u", "-Wignore", "{folder}/train.py"], "python3.13 train.py"),
        (["python3", "-B", "-m", "train"], "python3 -m train"),
        (["python3", "-X", "dev", "{folder}/train.py"], "python3"),
        (["python3.13t", "-sE", "{folder}/train.py"], "python3.13t train.py"),
        (["python3-dbg", "-P", "-m", "train"], "python3-dbg -m train"),
        (["bash", "{folder}/train.py"], "bash train.py"),
        (["/opt/bin/mysql", "{folder}/train.py"], "mysql"),
        (["worker: --token=HUNTER2", "{folder}/train.py"], "worker:"),
    ],
)
def test_a_process_is_known_by_its_program_and_script_and_no_argument_is_told(
    tmp_path: Path, words: list[str], known: str, user: int
) -> None:
    (tmp_path / "train.py").write_text(f"import os, sys; os.setuid({user}); print(flush=True); sys.stdin.read()")
    command = [word.format(folder=tmp_path) for word in words]
    environment = {**HOME, "PYTHONPATH": str(tmp_path)}
    with started(*command, "--password=HUNTER2", executable=sys.executable, env=environment) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = Identities().of(child.pid)
        assert (found.user, found.command) == (psutil.Process(child.pid).username(), known)
    assert "HUNTER2" not in repr(found)


@pytest.mark.parametrize(
    ("options", "known"),
    [
        (["-eu", "{script}"], "train.sh"),
        (["-m", "{script}"], "train.sh"),
        (["-O", "extglob", "{script}"], ""),
        (["-euo", "pipefail", "{script}"], ""),
        (["+x", "{script}"], ""),
        (["-s", "HUNTER2"], ""),
    ],
)
def test_a_shell_is_known_by_its_script_and_takes_other_options_than_python(
    tmp_path: Path, options: list[str], known: str
) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("needs bash")
    script = tmp_path / "train.sh"
    script.write_text("read line")
    with started(shell, *(option.format(script=script) for option in options)) as child:
        assert Identities().of(child.pid).command == f"bash {known}".strip()


def test_a_process_that_has_ended_is_a_number_only() -> None:
    identities = Identities()
    with started(sys.executable, "-c", WAITING) as child:
        assert identities.of(child.pid).command is not None
        assert child.stdin is not None
        child.stdin.close()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            os.sched_yield()
        zombie = identities.of(child.pid)
        assert zombie == Process(pid=child.pid, parents=zombie.parents)
        assert zombie.parents[0] == os.getpid()
        child.stdin = None
    assert identities.of(child.pid) == Process(pid=child.pid)


@pytest.mark.parametrize("pid", [0, 1 << 31, (1 << 32) - 1])
def test_a_number_that_no_process_has(pid: int) -> None:
    assert Identities().of(pid) == Process(pid=pid)
    assert crossed(Process(pid=pid)) == Process(pid=pid)


def test_a_process_that_becomes_another_program_is_noticed() -> None:
    identities = Identities()
    python = psutil.Process().exe()
    shell = next(path for path in ("/bin/bash", "/bin/sh") if Path(path).exists())
    with started(shell, "-c", 'read line; exec "$0" -c "$1" another', python, WAITING) as child:
        before = identities.of(child.pid).command
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        program_becomes(child.pid, "another")
        assert before is not None
        assert before == f"{Path(shell).name} -c"
        assert identities.of(child.pid).command == f"{Path(python).name} -c"


def test_an_orphan_has_another_parent_at_once() -> None:
    identities = Identities()
    script = (
        f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {WAITING!r}]); print(c.pid, flush=True)"
    )
    with started(sys.executable, "-c", f"{script}; input()") as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        orphan = int(parent.stdout.readline())
        assert identities.of(orphan).parents[0] == parent.pid
        parent.kill()
        parent.wait()
        assert parent.pid not in identities.of(orphan).parents
        assert identities.of(orphan).command is not None


def test_a_number_that_is_given_again_is_another_process(tmp_path: Path) -> None:
    identities = Identities()
    for name in ("first", "second"):
        (tmp_path / name).write_text(WAITING)
    with started(sys.executable, str(tmp_path / "first")) as first:
        assert (identities.of(first.pid).command or "").endswith(" first")
    try:
        LAST_PID.write_text(str(first.pid - 1))
    except OSError:
        pytest.skip("may not choose the next process's number")
    with started(sys.executable, str(tmp_path / "second")) as second:
        if second.pid != first.pid:
            pytest.skip("another process was faster")
        assert (identities.of(second.pid).command or "").endswith(" second")


def test_another_users_process_is_known_as_far_as_it_may_be_seen() -> None:
    first = Identities().of(1)
    assert (first.pid, first.parents) == (1, [])
    assert crossed(first) == first
    assert first.user == psutil.Process(1).username()


def test_threads_of_the_kernel_have_their_name_for_a_command() -> None:
    try:
        name = Path("/proc/2/comm").read_text().strip()
    except OSError:
        name = ""
    if name != "kthreadd":
        pytest.skip("the kernel's threads are not visible here")
    assert Identities().of(2).command == "[kthreadd]"
