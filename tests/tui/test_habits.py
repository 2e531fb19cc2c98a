"""The habits of hands: filter, copy, write, palette and help, as keys in and text out."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddpmon.snapshot import Finding
from ddpmon.tui.preferences import UserCommand
from ddpmon.tui.screens.overview import Overview
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch

KEYS = {" ": "space", ">": "greater_than_sign", "=": "equals_sign", "<": "less_than_sign", "~": "tilde", ",": "comma",
        "(": "left_parenthesis"}  # fmt: skip


async def type_filter(watched: Watched, text: str) -> None:
    await watched.until_shown("RUNNING")
    await watched.press("slash", *(KEYS.get(letter, letter) for letter in text))


def test_late_over_10_shows_the_late_ranks_and_not_rank_10() -> None:
    source = Fixed(snapshot(Made(ranks=64, straggler=42, per_node=8)))

    async def act(watched: Watched) -> None:
        await type_filter(watched, "late > 30")
        assert watched.rows() == [42]
        await watched.press("enter")
        await watched.until_shown("filter late > 30: 1 of 64")

    watch(source, act)


def test_what_is_not_understood_is_said_while_the_old_filter_stays() -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "node0")
        await watched.press("enter")
        assert len(watched.rows()) == 4
        await type_filter(watched, " lat>5")
        await watched.until_shown("there is no field 'lat': did you mean late?")
        assert len(watched.rows()) == 4
        await watched.press("enter")
        assert "there is no field 'lat'" in watched.text(), "it stays open"
        await watched.press("escape")
        assert len(watched.rows()) == 8

    watch(Fixed(STRAGGLER), act)


def test_tab_completes_a_field() -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "hos")
        await watched.until_shown("tab: host")
        await watched.press("tab", "n", "tab", "tab")
        assert len(watched.rows()) == 4
        await watched.until_shown("host=node0")

    watch(Fixed(STRAGGLER), act)


def test_the_filter_is_one_for_all_views() -> None:
    source = Fixed(snapshot(Made(ranks=16, per_node=4, straggler=5)))

    async def act(watched: Watched) -> None:
        await type_filter(watched, "node1")
        await watched.press("enter", "3")
        await watched.until_shown("filter node1: 1 of 4")
        await watched.press("slash", "comma", "n", "o", "d", "e", "2", "enter")
        await watched.until_shown("filter node1,node2: 2 of 4")
        await watched.press("5")
        await watched.until_shown("filter node1,node2: 1 of 1 finding")
        await watched.press("slash", "space", "n", "o", "t", "space", "5", "enter")
        await watched.until_shown("0 of 1 finding")
        await watched.press("1")
        assert watched.rows() == [4, 6, 7, 8, 9, 10, 11]
        await watched.press("escape")
        assert len(watched.rows()) == 16

    watch(source, act)


def sent(watched: Watched) -> list[str]:
    """What is written to the terminal besides pictures, from here on."""
    said: list[str] = []
    driver = watched.app._driver
    assert driver is not None
    driver.write = said.append  # type: ignore[method-assign,assignment]
    return said


def copied(said: list[str]) -> str:
    (sequence,) = (text for text in said if text.startswith("\x1b]52;c;"))
    return base64.b64decode(sequence.removeprefix("\x1b]52;c;").partition("\a")[0]).decode()


def test_y_copies_the_headline_as_text_and_upper_y_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        said = sent(watched)
        await watched.press("y")
        text = copied(said)
        assert text.startswith("rank 5 (node1) is late by 41 ms")
        assert "critical straggler; since step 812" in text
        assert "run gpt-stdlib, step 1,204, 8 ranks" in text
        await watched.until_shown("copied: rank 5, late +41 ms, input, as text")
        await watched.until_shown("5, then w,")  # the rest is in the next line: test_toasts.py
        said.clear()
        await watched.press("Y")
        found = json.loads(copied(said))
        assert found["ranks"] == [5]
        assert found["run"] == {
            "id": "r1", "name": "gpt-stdlib", "step": 1204, "world_size": 8, "source": "tcp://127.0.0.1:29480",
        }  # fmt: skip
        assert found["time"].endswith("Z")
        await watched.until_shown("copied: rank 5, late +41 ms, input, as JSON")

    watch(Fixed(STRAGGLER), act)


def test_without_a_finding_the_verdict_is_copied_and_on_a_rank_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-1/default,1,0")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("down", "down", "down", "enter")  # rank 2, after 5, 0 and 1
        said = sent(watched)
        await watched.press("y")
        whole = "".join(said)
        assert "\x1bPtmux;\x1b\x1b]52;c;" in whole, "tmux hands it on"
        await watched.until_shown("copied")
        assert "is late" not in copied(said)

    watch(Fixed(STRAGGLER), act)


@pytest.mark.parametrize(
    ("rank", "keys", "start"),
    [
        (21, (), "rank 21 of node2"), (21, ("2",), "rank 21 of node2"), (21, ("3",), "rank 21 of node2"),
        (21, ("3", "enter"), "rank 21 of node2"), (17, ("3", "enter"), "rank 21 of node2"),
        (21, ("m", "j", "c"), "rank 21 of node2"), (3, (), "rank 42 "), (3, ("3",), "rank 42 "),
    ],
)  # fmt: skip
def test_what_is_under_the_cursor_is_copied_or_the_headline(
    rank: int, keys: tuple[str, ...], start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    made = snapshot(Made(ranks=64, straggler=42, per_node=8))
    mine = replace(
        made.findings[0], id=77, ranks=(21,), nodes=("node2",), severity="warning", summary="rank 21 of node2"
    )
    source = Fixed(replace(made, findings=(*made.findings, mine)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        said = sent(watched)
        watched.app.links.choose(rank)
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        overview.follow()
        await watched.press(*keys, "y")
        await watched.until_shown("copied")
        assert copied(said).startswith(start)
        assert ("the headline, because" in watched.text()) == (rank == 3)

    watch(source, act, (160, 50))


def test_on_a_rank_without_a_finding_the_headline_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("down", "enter")  # rank 0, after 5
        said = sent(watched)
        await watched.press("y")
        await watched.until_shown("copied")
        assert copied(said).startswith("rank 5 (node1) is late by 41 ms")

    watch(Fixed(STRAGGLER), act)


@pytest.mark.parametrize(
    ("key", "ending", "inside"),
    [("s", "svg", "<svg"), ("t", "txt", "ms/step"), ("c", "csv", "rank,host,state"), ("j", "json", '"findings"')],
)
def test_the_view_is_written_and_never_over_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, ending: str, inside: str
) -> None:
    monkeypatch.chdir(tmp_path)
    stem = f"{'ranks' if ending == 'csv' else 'overview'}-gpt-stdlib-step-1204"
    first = tmp_path / f"{stem}.{ending}"
    first.write_text("mine")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("ctrl+s")
        await watched.until_shown("write the view as")
        await watched.press(key)
        await watched.until(lambda: len(list(tmp_path.iterdir())) == 2)
        await watched.until_shown("written:")

    watch(Fixed(STRAGGLER), act, (160, 50))
    assert first.read_text() == "mine"
    written = (tmp_path / f"{stem}-2.{ending}").read_text()
    assert inside in written
    assert "write the view as" not in written
    assert ending != "csv" or len(written.splitlines()) == 9


@pytest.mark.parametrize("key", ["s", "t"])
def test_no_toast_is_in_a_picture_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.chdir(tmp_path)

    async def write(watched: Watched, number: int) -> None:
        await watched.press("ctrl+s")
        await watched.until_shown("write the view as")
        await watched.press(key)
        await watched.until(lambda: len(list(tmp_path.iterdir())) == number)
        await watched.until_shown("written:")

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        for number in (1, 2):
            await write(watched, number)

    watch(Fixed(STRAGGLER), act, (80, 24))
    assert not [path.name for path in tmp_path.iterdir() if "written" in path.read_text()]


def test_w_without_a_past_asks_for_a_form_and_a_folder_that_takes_no_file_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        folder.rmdir()
        await watched.press("w", "escape", "w", "t")
        await watched.until_shown("nothing was written")

    watch(Fixed(STRAGGLER), act, (160, 50))


@pytest.mark.parametrize(("key", "ending", "inside"), [("t", "txt", "what to do: "), ("j", "json", '"evidence"')])
def test_a_finding_is_written_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, ending: str, inside: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5", "w")
        await watched.until_shown("write the finding as")
        assert "report of the run" not in watched.text(), "it has no past"
        await watched.press(key)
        await watched.until_shown("written:")

    watch(Fixed(STRAGGLER), act)
    (written,) = tmp_path.iterdir()
    assert written.name == f"finding-straggler-gpt-stdlib-step-1204.{ending}"
    assert inside in written.read_text()


@pytest.mark.parametrize(("keys", "name"), [((), "overview"), (("3",), "hosts"), (("5",), "findings")])
def test_help_is_of_the_view_that_it_was_opened_over(keys: tuple[str, ...], name: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys, "question_mark")
        await watched.until_shown(f"Keys: {name}")
        shown = watched.text()
        parts = [f"Keys: {name}", " Filter ", "Keys everywhere"]
        assert [shown.index(part) for part in parts] == sorted(shown.index(part) for part in parts)
        assert next(line for line in shown.split("\n")[2:] if line.strip()).startswith(f" Keys: {name}")
        await watched.press("G")
        await watched.until_shown("How to find the straggler")
        assert shown.count("How to find the straggler") == 0, "it comes last"
        await watched.press("escape")
        await watched.until(lambda: "Keys: " not in watched.text())

    watch(Fixed(STRAGGLER), act, (120, 60))


def test_notifications_are_chosen_in_the_palette() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        said = sent(watched)
        await watched.press("ctrl+p")
        await watched.press(*"notifications")
        await watched.until_shown("set now: a new critical finding is only drawn")
        await watched.press(*" bell")
        await watched.until(lambda: "Notifications: desktop" not in watched.text())
        await watched.press("enter")
        await watched.until_shown("notifications: bell")
        source.shown = replace(STRAGGLER, findings=(Finding("rank_failed", "critical", "rank 3 failed.", (3,)),))
        await watched.until(lambda: "\a" in said)

    source = Fixed(STRAGGLER)
    watch(source, act)


def test_the_help_of_every_view_names_the_users_commands() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        for view in ("1", "5"):
            await watched.press(view, "question_mark")
            await watched.until_shown("say: echo {rank} [on] {host}")
            assert "f5 " in next(line for line in watched.text().splitlines() if "say: echo" in line)
            await watched.press("escape")

    watch(Fixed(STRAGGLER), act, (120, 70), commands=(UserCommand("f5", "say", ("echo", "{rank}", "[on]", "{host}")),))


def test_a_users_command_runs_on_the_chosen_rank_without_a_shell() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("f5")
        await watched.until_shown("of 5 on node1; pid 4305 $HOME")
        await watched.until_shown("done")
        await watched.press("escape", "f6")
        await watched.until_shown("'ddpmon-no-such-program' cannot be started: No such file or directory")
        await watched.press("escape", "f7")
        await watched.until_shown("failed with exit code 3")
        await watched.press("escape", "f8")
        await watched.until_shown("the gpu of rank 5 is not known")

    commands = (
        UserCommand("f5", "say", ("echo", "of {rank} on {host};", "pid {pid} $HOME")),
        UserCommand("f6", "none", ("ddpmon-no-such-program",)),
        UserCommand("f7", "fails", (sys.executable, "-c", "raise SystemExit(3)")),
        UserCommand("f8", "gpu", ("nvidia-smi", "-i", "{gpu}")),
    )
    watch(Fixed(STRAGGLER), act, commands=commands)


def test_a_host_that_calls_itself_an_option_reaches_no_command() -> None:
    source = Fixed(snapshot(Made(ranks=4, hosts=("-oProxyCommand=touch x",))))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("f5")
        await watched.until_shown("the host of rank 0 is not known")

    watch(source, act, commands=(UserCommand("f5", "say", ("echo", "{host}")),))


@pytest.mark.parametrize(
    ("kind", "expected"), [("off", []), ("bell", ["\a"]), ("desktop", ["\x1b]9;gpt-stdlib: rank 3 failed.\a"])]
)
def test_only_a_new_critical_finding_rings(monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[str]) -> None:
    for name in ("TMUX", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    old = Finding("rank_lost", "critical", "rank 2 is lost.", (2,))
    new = Finding("rank_failed", "critical", "rank 3 \x1bfailed.", (3,))
    source = Fixed(replace(STRAGGLER, findings=(old,)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 2 is lost")
        said = sent(watched)
        source.shown = replace(STRAGGLER, findings=(old, replace(new, severity="warning")))
        await watched.until(lambda: len(watched.app.picture.snapshot.findings) == 2)
        assert said == []
        source.shown = replace(STRAGGLER, findings=(new, old))
        await watched.until(lambda: watched.app.picture.snapshot.findings[0].severity == "critical")
        seen = source.ticks
        await watched.until(lambda: source.ticks > seen + 2)
        assert [text.replace("rank 3  f", "rank 3 f") for text in said] == expected

    watch(source, act, notifications=kind)
