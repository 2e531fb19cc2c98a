"""Hostile frames and connections: nothing crashes, hangs or grows, and whatever is refused is counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.findings import finding_lines
from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from ddpmon.watcher.observer import Observer
from tests.fuzzing import Fuzz, besiege, feed, feed_descriptions, wait_for

FRAMES, DESCRIPTIONS, CONNECTIONS = 4_000, 200, 200  # bench/fuzz.py sends more


def test_hostile_frames_are_counted_and_the_picture_stays_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz, ticks = Fuzz(seed=5), 0

    def draw(snapshot: Snapshot) -> None:
        nonlocal ticks
        ticks += 1
        if ticks % 10 == 0:
            draw_plainly(snapshot)

    refused = feed(fuzz, FRAMES, monkeypatch, draw)
    assert fuzz.refused > FRAMES / 10
    assert refused == fuzz.refused


def test_hostile_descriptions_of_a_run_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, unreadable = feed_descriptions(Fuzz(seed=6), DESCRIPTIONS, monkeypatch, draw_plainly)
    assert DESCRIPTIONS / 10 < refused < DESCRIPTIONS
    assert refused == unreadable


def draw_plainly(snapshot: Snapshot) -> None:
    """Draw the overview; fails on anything that a terminal would obey."""
    picture = ViewState(snapshot, make_look())
    lines = [header_line(picture, 120), figures_line(picture, 120), *verdict_lines(picture, 120)]
    lines += [*heat_lines(picture, 120, 12), *finding_lines(picture, 120, 8)]
    order = ordered(snapshot, "worst", reverse=False, wanted="")
    lines += table_lines(picture, TableView(order), 120, 20)
    text = "".join(segment.text for line in lines for segment in line)
    assert text.isprintable(), [letter for letter in text if not letter.isprintable()]


def test_a_besieged_store_goes_on_serving_its_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=4", "--processes=1", "--scenario=healthy"]
    with subprocess.Popen([*command, "--step-ms=100"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().split()[-1]
        observer = Observer(url)
        try:
            assert wait_for(lambda: _step(observer.tick()) > 0, 60.0)

            def look() -> None:
                observer.tick()

            host, port = url.removeprefix("tcp://").split(":")
            taken = besiege((host, int(port)), CONNECTIONS, 5, look)
            assert taken == CONNECTIONS
            reached = _step(observer.tick())
            assert wait_for(lambda: _step(observer.tick()) > reached + 10, 60.0)
            assert wait_for(lambda: _is_whole(observer.tick()), 60.0)
        finally:
            observer.close()
            run.terminate()
            assert run.wait(60) == 0


def _is_whole(snapshot: Snapshot) -> bool:
    return snapshot.link.state == "live" and snapshot.coverage is not None and snapshot.coverage.reporting == 4


def _step(snapshot: Snapshot) -> int:
    return -1 if snapshot.run is None or snapshot.run.step is None else snapshot.run.step
