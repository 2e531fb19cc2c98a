"""Runs that can be reached from here: listed, and meant by their names."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.codec import encode
from ddpmon.commands.ls import ls
from ddpmon.commands.status import status
from ddpmon.store.base import RUNS_KEY, rank_key, run_key
from ddpmon.store.connect import parse_target
from ddpmon.store.discovery import Announcement, announce
from ddpmon.store.redis import RedisStore
from tests.commands.served_runs import host_with_runs
from tests.external_runs import MadeRun
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.store.redis_server import needs_redis, redis_server
from tests.store.served import serve
from tests.tui.test_terminal import terminal

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The stores of the runs gpt, gpt-large and bert, which are on this host."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch, host_with_runs(folder, "gpt", "gpt-large", "bert") as urls:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        yield urls


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a run."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_runs_here_are_listed_with_how_they_are_and_how_to_watch_them(urls: list[str], capsys: Printed) -> None:
    assert ls(None, None, True, False) == 0
    listing = json.loads(capsys.readouterr().out)
    runs = {run["name"]: run for run in listing["runs"]}
    assert listing["schema_version"] == 1
    assert {name: run["url"] for name, run in runs.items()} == dict(
        zip(["gpt", "gpt-large", "bert"], urls, strict=True)
    )
    gpt = runs["gpt"]
    assert (gpt["state"], gpt["world_size"], gpt["hosts"], gpt["step"]) == ("running", 2, ["node0"], 119)
    assert gpt["step_ms"] == pytest.approx(160, rel=0.1)
    assert gpt["elapsed_s"] >= 3600
    assert (gpt["worst"]["kind"], gpt["worst"]["severity"]) == ("straggler", "critical")
    assert "rank 1" in gpt["worst"]["summary"]
    assert gpt["watch"] == f"ddpmon watch {gpt['id']}"


def test_the_run_in_a_store_is_listed(urls: list[str], capsys: Printed) -> None:
    assert ls(urls[2], None, False, False) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:7] == ["name", "state", "ranks", "hosts", "step", "ms/step", "age"]
    assert head.split()[7:] == ["worst", "finding", "to", "watch", "it"]
    assert row.split()[:5] == ["bert", "running", "2", "node0", "119"]
    assert "  critical: straggler  ddpmon watch" in row
    assert f"ddpmon watch {urls[2]}/bert-2026" in row


@pytest.mark.parametrize(("columns", "folds"), [(80, True), (200, False)])
def test_in_a_narrow_terminal_each_command_stands_below_its_row(columns: int, folds: bool, urls: list[str]) -> None:
    with terminal("ls", urls[2], size=(columns, 24), command=("-m", "ddpmon.cli")) as term:
        assert term.end() == 0
        head, *rows = term.text().splitlines()
    command = f"ddpmon watch {urls[2]}/bert-2026"
    assert head.endswith("to watch it") != folds
    assert rows[-1].startswith(f"    {command}") == folds
    assert command in rows[-1]
    assert rows[0].startswith("bert  running")


@pytest.mark.usefixtures("empty")
def test_no_run_here_and_no_store_there_are_3(capsys: Printed) -> None:
    assert ls(None, None, True, False) == 3
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert ls("tcp://127.0.0.1:1", None, True, False) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "no store at 127.0.0.1:1" in said.err


@pytest.mark.parametrize(("target", "ssh"), [("http://node0:1", None), ("gpt", None), ("tcp://node0:1", "node0")])
def test_words_that_make_no_sense_are_usage(target: str, ssh: str | None, capsys: Printed) -> None:
    assert ls(target, ssh, False, False) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.usefixtures("empty")
def test_a_run_that_cannot_be_read_is_listed_with_the_reason_and_as_plain_text(capsys: Printed) -> None:
    announcement = Announcement(
        run_id="a-1",
        name="\x1b[31m[red]",
        url="tcp://127.0.0.1:1",
        pid=os.getpid(),
        host="node0",
        world_size=4,
        started_at=0.0,
    )
    announce(announcement)
    assert ls(None, None, False, False) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "[31m[red]" in printed
    assert "note: a-1: no store at 127.0.0.1:1" in printed
    assert printed.splitlines()[1].split()[1] == "gone"


@pytest.mark.usefixtures("empty")
def test_runs_whose_processes_are_dead_are_named_in_a_line(capsys: Printed) -> None:
    """A plain `ls` said nothing of them; only its JSON did."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    said = {"url": "tcp://127.0.0.1:1", "host": "node0", "world_size": 2, "started_at": time.time()}
    for number in range(5):
        announce(Announcement(run_id=f"old-{number}", name="old", pid=dead.pid, **said))  # type: ignore[arg-type]
    assert ls(None, None, False, False) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("note: 5 runs of the last 24 h did not end in order: old-")
    assert "killed" not in line, "it may as well have failed"
    assert line.endswith(" and 2 more, which --json names")
    mine = {"store_pid": os.getpid(), "launcher_pid": os.getpid(), "max_restarts": 3}
    announce(Announcement(run_id="again-1", name="again", pid=dead.pid, **said, **mine))  # type: ignore[arg-type]
    assert ls(None, None, False, False) == 0
    printed = capsys.readouterr().out
    assert "again-1" in printed.splitlines()[1], "its launcher is about to start it again"
    assert printed.splitlines()[-1] == line, "what is listed is not among them"


@pytest.mark.usefixtures("empty")
def test_a_simulation_that_was_left_is_lost_and_a_run_whose_port_is_anothers_is_gone(
    capsys: Printed,
) -> None:
    store, port = serve("127.0.0.1")
    job, now = MadeJob(healthy_phases(2, 60)), time.time()
    for rank in range(2):
        frame = rank_frame(rank, 1, job.columns(rank, 40, 60), run_id="quiet-1", host="node9", sent_at=now - 100)
        store.put(rank_key("quiet-1", rank), encode(frame))
    here = {"host": socket.gethostname(), "versions": {"simulated": "yes"}}
    store.put(run_key("quiet-1"), encode(run_info(2, run_id="quiet-1", name="quiet", **here)))
    store.put(RUNS_KEY, b"quiet-1")
    said = {"url": f"tcp://127.0.0.1:{port}", "pid": os.getpid(), "host": "h", "world_size": 2, "started_at": now}
    for name in ("quiet", "other"):
        announce(Announcement(run_id=f"{name}-1", name=name, **said))  # type: ignore[arg-type]
    assert ls(None, None, True, False) == 0
    store.close()
    runs = {run["name"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert runs == {"quiet": "lost", "other": "gone"}


@pytest.mark.usefixtures("urls")
@pytest.mark.parametrize(
    ("target", "name"), [("bert", "bert"), ("be", "bert"), ("bert-20260101-000000-ab12", "bert"), ("gpt", "gpt")]
)
def test_a_name_an_id_or_its_beginning_means_a_run(target: str, name: str, capsys: Printed) -> None:
    assert status(target, True, None) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == name


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_the_status_of_a_live_run_without_an_output_has_a_code_of_its_own(
    urls: list[str], as_json: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "ddpmon.cli", "status", urls[2], "--fail-on=info", *as_json]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = b"ddpmon: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, said)


@pytest.mark.usefixtures("urls")
def test_a_run_is_meant_before_a_file_of_its_name(
    capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    assert status("bert", True, None) == 0
    (tmp_path / "be").touch()
    assert status("be", True, None) == 0, "the beginning of a name goes before a file, too"
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"]["name"] == "bert"
    (tmp_path / "notes.txt").touch()
    assert status("notes.txt", True, None) == 2
    assert "'notes.txt' is a file, not a run on this host: `ddpmon ls` lists runs" in capsys.readouterr().err


@pytest.mark.usefixtures("urls")
def test_a_run_is_meant_before_a_folder_and_a_folder_is_none(
    capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("be", "trainer"):
        (tmp_path / name).mkdir()
    assert status("be", True, None) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "bert"
    assert status("trainer", True, None) == 2
    assert "'trainer' is a folder, not a run on this host: `ddpmon ls` lists runs" in capsys.readouterr().err
    assert status("nosuch", True, None) == 3
    assert "'nosuch' is neither an address nor a run on this host: `ddpmon ls` lists runs" in capsys.readouterr().err
    for wrong, said in (("host:29480", "if it is an address, write tcp://host:29480"), ("", "TARGET is empty")):
        assert status(wrong, True, None) == 2
        assert said in capsys.readouterr().err


@pytest.mark.usefixtures("urls")
def test_a_beginning_of_several_names_is_usage_and_lists_them(capsys: Printed) -> None:
    assert status("gp", True, None) == 2
    said = capsys.readouterr().err
    assert "  gpt-2026" in said
    assert "  gpt-large-2026" in said
    assert "bert" not in said


@needs_redis
@pytest.mark.usefixtures("empty")
def test_the_runs_in_redis_are_listed_and_no_password_is_printed(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path / "redis", "requirepass secret") as server:
        url = server.url(":secret@")
        address = parse_target(url).redis
        assert address is not None
        store = RedisStore(address, ttl_s=600)
        for run_id in ("gpt-1", "bert-1"):
            MadeRun(store, run_id).speak()
        store.close()
        assert ls(url, None, True, False) == 0
        said = capsys.readouterr()
        monkeypatch.setenv("DDPMON_STORE", url)
        assert ls(None, None, True, False) == 0, "the variable names the store"
        again = json.loads(capsys.readouterr().out)["runs"]
        assert [run["watch"] for run in again] == ["ddpmon watch bert-1", "ddpmon watch gpt-1"]
        for name in ("bert-1", "be"):
            assert status(name, True, None) == 0
            assert json.loads(capsys.readouterr().out)["run"]["id"] == "bert-1"
        assert status("nosuch", True, None) == 3
        store = RedisStore(address, ttl_s=600)
        MadeRun(store, "bert-2")
        store.close()
        capsys.readouterr()
        assert status("bert", True, None) == 2
        said_of_both = capsys.readouterr().err.splitlines()
        assert said_of_both[0].startswith("ddpmon: several runs in the store of DDPMON_STORE: name one")
        assert len(said_of_both) == 3
    assert ls(None, None, True, False) == 3, "its server has gone"
    assert "secret" not in capsys.readouterr().err
    runs = {run["id"]: run for run in json.loads(said.out)["runs"]}
    assert {run_id: (run["state"], run["world_size"], run["trouble"]) for run_id, run in runs.items()} == {
        "gpt-1": ("running", 4, ""),
        "bert-1": ("running", 4, ""),
    }
    assert runs["gpt-1"]["watch"] == f"ddpmon watch '{server.url()}?run=gpt-1'"
    assert "secret" not in said.out + said.err
