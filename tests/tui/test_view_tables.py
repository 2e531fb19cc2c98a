"""`ctrl+s c` writes the table of the view that it is pressed in."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ddpmon.report.verdicts import late_ranks
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.view_tables import compare_csv, findings_csv, hosts_csv, rank_csv, ranks_csv, run_csv, timeline_csv
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_host_order import RARE
from tests.tui.test_views import LATE, SHOWN, timed
from tests.tui.watched import Fixed, Watched, watch

Rows = list[dict[str, str]]
VIEWS = {
    "overview": ((), "ranks", "the rank table", 16),
    "rank": (("enter",), "rank", "the rank beside the others", 18),
    "compare": (("m", "j", "c"), "compare", "the compared ranks", 18),
    "timeline": (("2",), "timeline", "the steps", 500),
    "hosts": (("3",), "hosts", "the hosts and GPUs", 16),
    "host": (("3", "enter"), "hosts", "the hosts and GPUs", 8),
    "run": (("4",), "run", "the run", None),
    "findings": (("5",), "findings", "the findings", 4),
}


def table(text: str) -> Rows:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_writes_its_own_table_and_says_so(view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, name, words, rows = VIEWS[view]
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys, "ctrl+s")
        assert f"CSV of {words}   " in watched.text()
        await watched.press("c")
        await watched.until_shown("written:")

    watch(Fixed(timed(SHOWN)), act, (160, 50))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{name}-gpt-stdlib-step-1204.csv"
    written = table(path.read_text())
    assert all(None not in row and None not in row.values() for row in written), "each row has every column"
    assert len(written) == rows if rows is not None else len(written) > 10


def test_the_order_and_the_filter_of_the_view_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.filter_by("node0 or rank=9")
        await watched.press("3", "H", "H", "ctrl+s", "c")
        await watched.until(lambda: bool(list(tmp_path.glob("hosts-*"))))
        await watched.press("1", "R", "R", "ctrl+s", "c")
        await watched.until(lambda: bool(list(tmp_path.glob("ranks-*"))))

    watch(Fixed(SHOWN), act)
    ranks, hosts = (table(next(tmp_path.glob(f"{name}-*")).read_text()) for name in ("ranks", "hosts"))
    assert [int(row["rank"]) for row in ranks] == [9, *range(7, -1, -1)]
    assert [row["host"] for row in hosts] == ["node1"] * 8 + ["node0"] * 8


def test_hosts_have_a_row_for_each_gpu_with_its_rank_in_full_figures() -> None:
    rows = table(hosts_csv(SHOWN, [1]))
    node = SHOWN.nodes[1]
    row, gpu = rows[3], node.gpus[3]
    assert (row["node"], row["host"], row["ranks"], row["gpu"], row["rank"]) == ("1", "node1", "8-15", "3", "11")
    assert row["memory_total"] == str(node.figures.memory_total)
    assert row["gpu_memory_used"] == str(gpu.memory_used)
    assert (row["gpu_uuid"], float(row["gpu_power_w"]), row["finding"]) == (gpu.uuid, gpu.power_w, "straggler")
    assert SHOWN.ranks is not None
    assert float(row["rank_late_ms"]) == pytest.approx(float(SHOWN.ranks.lateness_ms[11]), rel=1e-4)
    assert {each["late_ms"] for each in rows} == {row["rank_late_ms"]}, "of the host's latest rank"


def test_a_gpu_without_a_rank_a_rank_without_a_gpu_and_a_bare_host_have_a_row() -> None:
    ranks = SHOWN.ranks
    assert ranks is not None
    node = SHOWN.nodes[0]
    spare = msgspec.structs.replace(node.gpus[0], index=8, uuid="GPU-spare", power_w=None)
    made = replace(
        SHOWN,
        ranks=replace(ranks, gpu=(None, *ranks.gpu[1:])),
        nodes=(replace(node, gpus=(*node.gpus, spare)), replace(SHOWN.nodes[1], gpus=(), ranks=())),
    )
    rows = table(hosts_csv(made, [0, 1, 7]))
    assert [(row["gpu"], row["rank"]) for row in rows if row["host"] == "node0"] == [
        ("0", ""), *((str(place), str(place)) for place in range(1, 8)), ("8", ""), ("", "0"),
    ]  # fmt: skip
    assert next(row for row in rows if row["gpu_uuid"] == "GPU-spare")["gpu_power_w"] == ""
    assert [(row["gpu"], row["rank"], row["late_ms"]) for row in rows if row["host"] == "node1"] == [("", "", "")]
    assert len(rows) == 11


def test_steps_have_their_time_and_the_lateness_of_the_latest_rank_in_ms_and_percent() -> None:
    made = timed(SHOWN)
    assert made.timeline is not None
    timeline = made.timeline
    timeline.late_rank[0], timeline.late_pct[0] = -1, np.nan
    first, *_, last = table(timeline_csv(made, timeline))
    assert (first["step"], first["late_rank"], first["late_pct"], first["late_ms"]) == ("705", "", "", "")
    assert (last["step"], last["late_rank"], last["step_ms"], last["allreduce_ms"]) == ("1204", "11", "170", "24")
    assert float(last["late_ms"]) == pytest.approx(131.0 * 0.3)
    assert float(last["unix_s"]) == pytest.approx(made.taken_at - 0.3, abs=0.01)
    assert (last["busbw_gb_s"], last["loss"]) == ("", "2")


def test_findings_have_what_was_measured_and_whether_they_last() -> None:
    over = replace(NOTES[2], ranks=(3, 1))
    first, second = table(findings_csv(SHOWN, [LATE, over]))
    assert (first["kind"], first["severity"], first["state"], first["ranks"]) == ("straggler", "critical", "lasts", "3")
    assert (first["hosts"], first["phase"], first["excess_ms"], first["cost_pct"]) == ("node0", "backward", "80", "30")
    assert (first["since_step"], first["since_is_bound"], first["cleared_at_step"]) == ("1000", "false", "")
    assert 0 < float(first["since_unix_s"]) < SHOWN.taken_at
    assert first["summary"].endswith("Costs 30 % of the run's time.")
    assert (second["state"], second["cleared_at_step"], second["ranks"]) == ("over", "640", "3 1")


def test_foreign_words_are_cleaned_and_nothing_known_is_a_heading_alone() -> None:
    evil = Finding("disk_low", "warning", 'a "quoted", \x1b[31mred\nword', nodes=("no\x1bde",))
    (row,) = table(findings_csv(SHOWN, [evil]))
    assert row["summary"].isprintable()
    assert '"quoted", ' in row["summary"]
    assert row["hosts"].isprintable()
    nothing = replace(SHOWN, ranks=None, nodes=(), timeline=None, run=None)
    texts = (ranks_csv(nothing, [0]), hosts_csv(nothing, [0]), timeline_csv(nothing, None), findings_csv(nothing, []))
    assert [len(text.splitlines()) for text in (*texts, run_csv(nothing))] == [1] * 5


def test_the_run_has_its_names_and_values_by_section() -> None:
    rows = table(run_csv(SHOWN))
    known = {(row["section"], row["key"]): row["value"] for row in rows}
    assert known["run", "ranks"] == "16 on 2 hosts"
    assert known["store and watching", "store"] == "tcp://127.0.0.1:29480"


def test_ranks_have_all_columns_however_narrow_the_screen_is() -> None:
    made: Snapshot = snapshot(Made(ranks=8, gpu=True))
    rows = table(ranks_csv(made, [5, 2]))
    assert [row["rank"] for row in rows] == ["5", "2"]
    assert {"late", "work", "wait", "reduce", "gpu%", "MHz", "power", "cpu%", "GiB", "age s"} <= set(rows[0])
    assert (rows[0]["host"], rows[0]["state"], rows[0]["MHz"]) == ("node1", "running", "1755")


def test_the_lateness_is_the_one_that_is_shown_and_says_in_how_many_steps() -> None:
    rare, other = table(ranks_csv(RARE, [33, 34]))
    assert (rare["late"], rare["one_step_in"]) == ("361.2", "5")
    assert RARE.ranks is not None
    assert float(other["late"]) == pytest.approx(float(RARE.ranks.lateness_ms[34]), rel=1e-4)
    assert other["one_step_in"] == ""
    rows = table(hosts_csv(RARE, [3, 4]))
    assert {(row["late_ms"], row["one_step_in"]) for row in rows if row["node"] == "4"} == {("361.2", "5")}
    assert {row["one_step_in"] for row in rows if row["node"] == "3"} == {""}
    found = {row["rank"]: (row["rank_late_ms"], row["rank_one_step_in"]) for row in rows}
    assert found["33"] == ("361.2", "5")
    assert [rank for rank, (_, often) in found.items() if often] == ["33"]


def test_while_nobody_is_late_no_rank_is_late_now_and_then() -> None:
    assert RARE.ranks is not None
    still = replace(RARE, ranks=replace(RARE.ranks, lateness_ms=np.full(64, np.nan)))
    (row,) = table(ranks_csv(still, [33]))
    assert (row["late"], row["one_step_in"]) == ("", "")


def figures_of(text: str) -> dict[str, dict[str, str]]:
    return {row["figure"]: row for row in table(text)}


def test_a_rank_has_each_figure_beside_the_others_with_the_difference() -> None:
    assert SHOWN.ranks is not None
    rows = figures_of(rank_csv(SHOWN, 3))
    work = rows["work"]
    assert (work["rank"], work["unit"], work["one_step_in"]) == ("3", "ms", "")
    assert float(work["this"]) == pytest.approx(float(SHOWN.ranks.work_ms[3]), rel=1e-4)
    others = np.delete(SHOWN.ranks.work_ms, [3, *late_ranks(SHOWN.findings)])
    assert float(work["others"]) == pytest.approx(float(np.median(others)), rel=1e-4)
    assert float(work["diff"]) == pytest.approx(float(work["this"]) - float(work["others"]), abs=1e-2)
    assert len(table(rank_csv(SHOWN, 999))) == 0, "a rank that the run has not got"


def test_compared_ranks_have_a_column_each_with_the_difference_from_the_first() -> None:
    rows = table(compare_csv(SHOWN, [3, 11, 0]))
    ranks = [name for rank in (3, 11, 0) for name in (f"rank_{rank}", f"rank_{rank}_diff", f"rank_{rank}_one_step_in")]
    assert [*rows[0]] == ["figure", "unit", *ranks, "others"]
    assert {row["rank_3_diff"] for row in rows} == {""}, "the first has no difference"
    work = next(row for row in rows if row["figure"] == "work")
    assert float(work["rank_11_diff"]) == pytest.approx(float(work["rank_11"]) - float(work["rank_3"]), abs=1e-2)


def test_what_is_late_now_and_then_has_the_difference_that_is_shown() -> None:
    found = replace(RARE.findings[0], phase="backward")
    made = replace(RARE, findings=(found,))
    alone = figures_of(rank_csv(made, 33))
    assert (alone["backward"]["diff"], alone["backward"]["one_step_in"]) == ("361.2", "5")
    assert (alone["work"]["diff"], alone["work"]["one_step_in"]) == ("361.2", "5"), "all of its work is late as well"
    assert {row["one_step_in"] for name, row in alone.items() if name not in ("backward", "work")} == {""}


@pytest.mark.parametrize("ranks", [(1, 33), (33, 1)])
def test_of_what_is_late_now_and_then_the_difference_is_that_from_the_first_rank(ranks: tuple[int, int]) -> None:
    made = replace(RARE, findings=(replace(RARE.findings[0], phase="backward"),))
    row = figures_of(compare_csv(made, ranks))["backward"]
    first, second = ranks
    assert row[f"rank_{first}_diff"] == "", "the first has no difference"
    apart = float(row[f"rank_{second}"]) - float(row[f"rank_{first}"])
    assert float(row[f"rank_{second}_diff"]) == pytest.approx(apart, abs=1e-2)
    assert (row["rank_33_one_step_in"], row["rank_1_one_step_in"]) == ("5", "")
