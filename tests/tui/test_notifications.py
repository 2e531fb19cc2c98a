"""Notifications as the terminal gets them: a real pty, a real tmux, and the bytes that come out of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ddpmon.snapshot import Finding, ReplayView
from tests.tui.made_runs import FAILED
from tests.tui.test_habits import sent
from tests.tui.test_terminal import PLAY, Terminal, terminal
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch

# The straggler is critical from the beginning; rank 3 is lost some readings later, and rank 2 fails some more later.
WORSENING = (*PLAY, "--worsens", "--notifications")
TOLD = ["gpt-stdlib: rank 3 has been silent for 14 s; its last step was", f"gpt-stdlib: {FAILED.summary}"]
OSC = re.compile(rb"\x1b\]([^\x07\x1b]*)(?:\x07|\x1b\\)")


def notified(term: Terminal) -> list[str]:
    """The notifications that the terminal was given, without the number of the step, which grows."""
    texts = [text.decode() for text in OSC.findall(term.everything)]
    return [re.sub(r"(step was) [\d,]+\.", r"\1", text) for text in texts if text.startswith(("9;", "777;"))]


def rings(term: Terminal) -> int:
    """How often the terminal was rung: a BEL that ends no OSC sequence."""
    return OSC.sub(b"", term.everything).count(b"\a")


def see_both(term: Terminal) -> None:
    """Read until both findings stand on the screen and other pictures have followed."""
    term.until(b"rank 2: failed")
    seen = len(term.everything)
    while len(term.everything) < seen + 2000:
        assert term.read()


@pytest.mark.parametrize(
    ("kind", "terminal_kind", "lead"),
    [("desktop", "xterm-256color", "9;"), ("desktop", "rxvt-unicode-256color", "777;notify;ddpmon;")],
)
def test_each_new_critical_finding_reaches_the_terminal_once(
    kind: str, terminal_kind: str, lead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMUX", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    with terminal(kind, command=WORSENING, kind=terminal_kind) as term:
        see_both(term)
        term.send(b"q")
        assert term.end() == 0
        assert notified(term) == [lead + (text.replace(";", ",") if lead != "9;" else text) for text in TOLD]
        assert rings(term) == 0


@pytest.mark.parametrize(("kind", "expected"), [("bell", 2), ("off", 0)])
def test_the_bell_rings_once_for_each(kind: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    with terminal(kind, command=WORSENING) as term:
        see_both(term)
        term.send(b"q")
        assert term.end() == 0
        assert rings(term) == expected
        assert notified(term) == []


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """A tmux of our own, which is ended with all that runs in it."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    for name in ("TMUX", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    command = ("tmux", "-S", str(tmp_path / "socket"), "-f", str(tmp_path / "tmux.conf"))
    yield command
    subprocess.run([*command, "kill-server"], check=False, capture_output=True)


@contextmanager
def inside(tmux: tuple[str, ...], kind: str, passes: str) -> Iterator[Terminal]:
    """The terminal around a tmux in which the dashboard runs."""
    Path(tmux[-1]).write_text(f"set -g allow-passthrough {passes}\nset -g status off\n")
    start = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
    with terminal(*tmux, "new-session", sys.executable, *WORSENING, kind, command=("-c", start)) as term:
        yield term


@pytest.mark.parametrize(
    ("kind", "passes", "texts", "bells"),
    [("desktop", "on", [f"9;{text}" for text in TOLD], 0), ("desktop", "off", [], 0), ("bell", "on", [], 2)],
)
def test_tmux_hands_it_on(tmux: tuple[str, ...], kind: str, passes: str, texts: list[str], bells: int) -> None:
    """With `allow-passthrough on` the terminal around tmux gets a notification, and it always gets the bell."""
    with inside(tmux, kind, passes) as term:
        see_both(term)
        term.send(b"q")
        assert term.end() == 0
        assert notified(term) == texts
        assert rings(term) == bells


def test_tmux_hands_on_the_bell_of_a_window_that_is_hidden(tmux: tuple[str, ...]) -> None:
    with inside(tmux, "bell", "off") as term:
        term.until(b"RUNNING")
        subprocess.run([*tmux, "new-window", "echo other; cat"], check=True)
        term.until(b"other")
        while rings(term) < 2:
            assert term.read()


def test_several_at_once_are_counted_and_one_that_was_a_warning_meanwhile_is_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TMUX", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    lost = Finding("rank_lost", "critical", "rank 2 is lost.", (2,))
    slow = Finding("slow_node", "critical", "node1 is slow.", nodes=("node1",))

    async def act(watched: Watched) -> None:
        async def show(*findings: Finding) -> None:
            source.shown = replace(STRAGGLER, findings=findings)
            await watched.until(lambda: watched.app.picture.snapshot.findings == findings)

        await watched.until_shown("RUNNING")
        said = sent(watched)
        await show(lost, slow)
        await show(lost, replace(slow, severity="warning"))
        await show(lost, slow)
        assert said == ["\x1b]9;gpt-stdlib: 2 new critical findings: rank 2 is lost.\a"]
        await show(lost)
        await show(lost, slow)
        assert said[1:] == ["\x1b]9;gpt-stdlib: node1 is slow.\a"], "it had ended and has begun again"

    source = Fixed(replace(STRAGGLER, findings=()))
    watch(source, act, notifications="desktop")


@pytest.mark.parametrize(("is_live", "rings_too"), [(True, True), (False, False)])
def test_a_finding_that_begins_while_the_past_of_the_run_is_shown_rings(is_live: bool, rings_too: bool) -> None:
    past = replace(STRAGGLER, findings=(), replay=ReplayView(1.0, 2.0, 1.79e9, False, 1.0, is_live, True))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        said = sent(watched)
        source.shown = past
        await watched.until(lambda: watched.app.picture.snapshot.replay is not None)
        assert said == []
        source.shown = replace(past, findings_now=(FAILED,))
        await watched.until(lambda: watched.app.picture.snapshot.findings_now == (FAILED,))
        assert said == ["\a"] * rings_too

    source = Fixed(replace(STRAGGLER, findings=()))
    watch(source, act, notifications="bell")
