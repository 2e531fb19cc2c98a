"""The settings file: what holds, what is wrong in it is named, and what comes before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpmon.commands import sessions
from ddpmon.commands.settings import preferences, read_settings
from ddpmon.tui.preferences import Preferences, Session, UserCommand

WHOLE = """
# mine
theme = "light"
glyphs = "blocks"
mouse = false
view = "hosts"
sort = "gpu%"
filter = "late>5% not lost"
interval = 2
notifications = "bell"

[keys]
f5 = { name = "stack", run = ["ssh", "{host}", "py-spy", "dump", "--pid", "{pid}"] }
"ctrl+t" = { run = ["true"] }
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "config" / "ddpmon" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_a_whole_file(file: Path) -> None:
    file.write_text(WHOLE)
    stack = UserCommand("f5", "stack", ("ssh", "{host}", "py-spy", "dump", "--pid", "{pid}"))
    assert preferences() == Preferences(
        "light", "blocks", False, "hosts", "gpu", "late>5% not lost", 2.0, "bell",
        (stack, UserCommand("ctrl+t", "true", ("true",))),
    )  # fmt: skip


def test_the_command_line_comes_before_the_file(file: Path) -> None:
    file.write_text(WHOLE)
    held = preferences({"theme": "mono", "view": None, "filter": "", "mouse": True})
    assert (held.theme, held.view, held.filter, held.mouse) == ("mono", "hosts", "", True)


def test_without_a_file_the_usual_holds(file: Path) -> None:
    assert not file.exists()
    assert preferences() == Preferences()
    assert read_settings(None) == Preferences()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('theme = "pink"', "line 2: theme = 'pink': it has to be one of auto, dark, light, colour-blind, mono"),
        ('colour = "red"', "line 2: there is no setting 'colour'; there are theme,"),
        ('interval = "2"', "line 2: interval = '2': it has to be a number from 0.25 to 10, in seconds"),
        ("interval = true", "line 2: interval = True: it has to be a number"),
        ("interval = nan", "line 2: interval = nan: it has to be a number"),
        ("mouse = 1", "line 2: mouse = 1: it has to be true or false"),
        ('filter = "late >"', "line 2: filter = 'late >': late> needs a value behind it"),
        ("filter = 3", "line 2: filter = 3: it has to be a text"),
        ('sort = "beauty"', "line 2: sort = 'beauty': it has to be one of worst, host, rank"),
        ("theme = ", "is not read: Invalid value (at line 2"),
        ('[keys]\nq = { run = ["true"] }', "line 3: key 'q': a command's key is f1 to f12"),
        ('[keys]\nf5 = { run = "true" }', "line 3: key 'f5': it has to be"),
        ('[keys]\nf5 = { run = ["true"], shell = true }', "line 3: key 'f5': it has to be"),
        ('[keys]\nf5 = { run = ["true"], name = 5 }', "line 3: key 'f5': it has to be"),
        ('[keys]\nf5 = { run = ["x", "{gpus}"] }', "line 3: key 'f5': {gpus} is not known: there are {rank}"),
        ("keys = 3", "line 2: key 'keys': "),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_the_rest_holds(file: Path, line: str, said: str) -> None:
    file.write_text(f"view = 'hosts'\n{line}\n")
    held = preferences()
    (sentence,) = held.complaints
    assert said in sentence
    assert sentence.startswith(str(file))
    assert "\n" not in sentence
    assert held.theme is None
    assert held.view == (None if "not read" in said else "hosts")


def test_a_file_that_cannot_be_read_is_said(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    assert "is not read" in preferences().complaints[0]
    file.unlink()
    file.mkdir()
    assert "is not read: Is a directory" in preferences().complaints[0]


@pytest.mark.usefixtures("file")
def test_sessions_are_kept_by_run_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    assert sessions.remembered("r1") is None
    for number in range(60):
        sessions.remember(f"r{number}", Session("hosts", "late", True, f"rank={number}"))
    assert sessions.remembered("r59") == Session("hosts", "late", True, "rank=59")
    assert sessions.remembered("r3") is None
    (path,) = (tmp_path / "state" / "ddpmon").iterdir()
    path.write_text('{"r1": {"view": "hosts", "sort": "late", "reverse": true, "filter": "late>5"}}')
    assert sessions.remembered("r1") == Session("hosts", "late", True, "late>5"), "a file of an older version"
    damaged = {"view": "nowhere", "sort": "nothing", "filter": "late>", "hosts_sort": 1, "theme": "pink"}
    for name, value in damaged.items():
        path.write_text(json.dumps({"r1": {name: value}, "r2": {"view": "run"}}))
        assert sessions.remembered("r1") is None
        assert sessions.remembered("r2") == Session("run"), "the other runs are still remembered"
    for nothing in (b"", b"\xff", b'{"r1": "\xff"}', b"[]", b'{"r1":' * 5000):
        path.write_bytes(nothing)
        assert sessions.remembered("r1") is None
    sessions.remember("r1", Session())
    assert sessions.remembered("r1") == Session()
