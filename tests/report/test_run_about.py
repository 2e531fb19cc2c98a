"""What the view of the run says of its configuration, and the same as JSON."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpmon.commands.status_text import figures_line
from ddpmon.format import local_time, size
from ddpmon.parts import Settings
from ddpmon.probe.about import driver
from ddpmon.report.build import build_run
from ddpmon.report.cost import UNLIKE_WAITING, WAITING_MORE
from ddpmon.report.report_html import page
from ddpmon.report.report_markdown import markdown
from ddpmon.report.run_about import about
from ddpmon.report.run_report import RunReport
from ddpmon.report.run_report import facts as report_facts
from ddpmon.report.status_json import status_object
from ddpmon.run.model import Run
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.simulated_host import run_info as simulated_info
from ddpmon.snapshot import Finding, JobView, Link, LinkState, ReplayView, RunState, Snapshot
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.tui.made_runs import Made, snapshot


def shown(**told: Any) -> Snapshot:
    """A run whose rank 0 tells this of its buckets."""
    said = {"bucket_count": 12} | told
    settings = Settings(True, False, None, "bfloat16", None, 25 << 20)
    versions = {"torch": "2.9.0", "cuda": "12.8", "nccl": "2.27.5", "driver": "570.86.15", "python": "3.11.7"}
    info = run_info(
        2,
        gradient_bytes=280 << 20,
        settings=settings,
        versions=versions,
        command="python train.py --lr 3e-4",
        device="cuda",
    )
    run = Run(info)
    run.add_rank(rank_frame(0, 1, MadeJob(healthy_phases(2, 10)).columns(0, 0, 10), **said), 0.0)
    view = build_run(run, run.ages(0.0), np.empty(0, np.int64), "tcp://node0:29480", ended=None)
    return Snapshot(Link("live"), 0.0, 0.0, run=view)


def test_settings_versions_and_command_are_told_as_far_as_they_are_known() -> None:
    sections = {section.name: dict(section.pairs) for section in about(shown())}
    assert sections["run"]["command"] == "python train.py --lr 3e-4"
    assert sections["model"]["gradient dtype"] == "bfloat16"
    assert sections["DDP"]["bucket cap"] == "25 MiB"
    assert sections["DDP"]["buckets"] == "12, 23 MiB each on average"
    assert (sections["DDP"]["find_unused_parameters"], sections["DDP"]["gradient_as_bucket_view"]) == ("no", "yes")
    assert "static_graph" not in sections["DDP"], "unknown"
    assert [*sections["versions"]] == ["torch", "CUDA", "NCCL", "driver", "Python"]
    assert sections["store and watching"]["store"] == "tcp://node0:29480"
    assert about(replace(shown(), run=None)) == []


def test_the_sizes_of_the_buckets_are_told_and_whether_they_were_rebuilt() -> None:
    few = {"bucket_count": 3, "bucket_sizes": [12 << 20, 25 << 20, 14 << 20], "buckets_rebuilt": True}
    many = {"bucket_count": 12, "bucket_sizes": [*[25 << 20] * 11, 5 << 20], "buckets_rebuilt": False}
    said = [dict({each.name: each.pairs for each in about(shown(**told))}["DDP"]) for told in (few, many)]
    assert said[0]["buckets"] == "3: 12 MiB, 25 MiB, 14 MiB"
    assert said[0]["buckets rebuilt"].startswith("yes")
    assert said[1]["buckets"] == "12: first 25 MiB, last 5.0 MiB, largest 25 MiB"
    assert said[1]["buckets rebuilt"] == "no"
    told = status_object(shown(**few))["run"]["configuration"]
    assert (told["bucket_sizes"], told["buckets_rebuilt"]) == (few["bucket_sizes"], True)


def test_what_is_over_was_not_started_some_time_ago() -> None:
    live = shown()
    assert live.run is not None
    for state, link, named in (
        ("running", "live", "running for"),
        ("finished", "gone", "ran for"),
        ("killed", "gone", "ran for"),
    ):
        run = replace(live.run, state=state, elapsed_s=90.0)  # type: ignore[arg-type]
        pairs = dict(about(replace(live, run=run, link=Link(link)))[0].pairs)  # type: ignore[arg-type]
        assert pairs[named] == "00:01:30"
        assert "ago" not in pairs["started"]


@pytest.mark.parametrize(("state", "link"), [("running", "gone"), ("running", "silent"), ("lost", "live")])
def test_of_a_run_whose_end_nobody_has_seen_it_is_told_when_it_was_heard_last(state: RunState, link: LinkState) -> None:
    made = shown()
    assert made.run is not None
    assert made.run.info is not None
    for elapsed_s, words in (
        (90.0, f"{local_time(made.run.info.started_at + 90)}, 00:01:30 after the start"),
        (None, "–"),
    ):
        run = replace(made.run, state=state, elapsed_s=elapsed_s)
        pairs = dict(about(replace(made, run=run, link=Link(link)))[0].pairs)
        assert pairs["last heard"].startswith(words)
        assert not {"ran for", "running for"} & pairs.keys()


def test_a_moment_of_a_recording_says_for_how_long_the_run_ran_then() -> None:
    made = shown()
    assert made.run is not None
    replay = ReplayView(10.0, 60.0, 1.79e9, False, 1.0, True, True)
    shown_then = replace(made, run=replace(made.run, elapsed_s=90.0), link=Link("gone"), replay=replay)
    assert dict(about(shown_then)[0].pairs)["ran for"] == "00:01:30"


def test_where_losses_come_from_is_told_once_there_are_any() -> None:
    without = shown()
    with_loss = replace(without, job=JobView(loss=2.3))
    said = [dict(about(each)[0].pairs)["loss from"] for each in (without, with_loss)]
    assert said == ["no rank has logged one", "monitor.log"]


def test_the_json_has_the_same() -> None:
    found = status_object(shown())["run"]["configuration"]
    assert found["command"] == "python train.py --lr 3e-4"
    assert found["settings"]["bucket_cap_bytes"] == 25 << 20
    assert found["settings"]["static_graph"] is None
    assert found["bucket_count"] == 12
    assert found["versions"]["driver"] == "570.86.15"


def test_the_driver_is_read_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert driver(file) == ""
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\n"
    )
    assert driver(file) == "570.86.15"
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n")
    assert driver(file) == "535.104.05"


def test_hours_have_their_unit_in_every_line() -> None:
    made = snapshot(Made(straggler=5, gpu=True))
    assert made.run is not None
    job = replace(made.job, lost_to_waiting_pct=made.findings[0].cost_pct)
    told = replace(made, run=replace(made.run, step_age_s=0.2), job=job)
    (hours,) = [section.pairs for section in about(told) if section.name == "GPU-h used and lost"]
    assert {name.split(":")[0] for name, _ in hours} == {"used", "lost to waiting", "lost"}
    assert all("GPU-h" in words for _, words in hours)
    assert re.fullmatch(
        r"about [\d.]+ GPU-h since step 812, [\d.]+ GPU-h a day: late \+41 ms, input.*", dict(hours)["lost: rank 5"]
    )


def test_hours_lost_since_before_what_is_on_record_have_no_most() -> None:
    made = snapshot(Made(straggler=5, gpu=True))
    late, other = made.findings[0], replace(made.findings[0], id=9, ranks=(3,), since_step=400)
    assert made.run is not None
    for bound, words in ((False, "at least .*, at most .* GPU-h; "), (True, r"at least [\d.<]+ GPU-h; ")):
        findings = (replace(late, since_is_bound=bound), other)
        told = replace(made, run=replace(made.run, step_age_s=0.2), findings=findings)
        pairs = {name: value for section in about(told) for name, value in section.pairs}
        assert re.match(words, pairs["lost together"])
        assert pairs["lost: rank 5"].startswith("at least ") == bound


@pytest.mark.parametrize(
    ("waiting_pct", "note"),
    [(0.0, UNLIKE_WAITING), (18.0, UNLIKE_WAITING), (24.3, ""), (30.0, WAITING_MORE), (None, "")],
)
def test_a_loss_unlike_what_is_lost_to_waiting_is_explained(waiting_pct: float | None, note: str) -> None:
    """`lost to waiting 21 %` stood over `lost: rank 341 ... 18 %`, and nothing explained the rest."""
    made = snapshot(Made(straggler=5, gpu=True))
    assert made.run is not None
    job = replace(made.job, lost_to_waiting_pct=waiting_pct)
    told = replace(made, run=replace(made.run, step_age_s=0.2), job=job)
    pairs = {name: value for section in about(told) for name, value in section.pairs}
    assert pairs["lost: rank 5"].split(",")[0].endswith("GPU-h since step 812")
    assert pairs.get("note", "") == note, "the finding costs 24 % of the run's time"
    if waiting_pct is not None:
        assert f"{waiting_pct:.0f} % of the time of all ranks over the last 20 steps, " in pairs["lost to waiting"]


@pytest.mark.parametrize(("waiting_pct", "words"), [(None, "–"), (0.0, "0 % of the time of all ranks over ")])
def test_a_report_has_a_dash_alone_where_waiting_is_unknown(waiting_pct: float | None, words: str) -> None:
    made = snapshot(Made())
    told = replace(made, job=replace(made.job, lost_to_waiting_pct=waiting_pct))
    said = dict(report_facts(RunReport(told, run_info(8), (), 0.0, 3600.0, "a file")))["lost to waiting"]
    assert said == words if waiting_pct is None else said.startswith(words)


@pytest.mark.parametrize(("loss", "words"), [(2.31, "2.310"), (0.5, "0.5000"), (None, "–")])
def test_a_report_has_the_loss_in_the_form_of_the_status(loss: float | None, words: str) -> None:
    """The report said 2.31 where the status and the screen said 2.310."""
    made = snapshot(Made())
    told = replace(made, job=replace(made.job, loss=loss))
    assert dict(report_facts(RunReport(told, run_info(8), (), 0.0, 3600.0, "a file")))["loss"] == words
    assert figures_line(told).endswith(f"   loss {'-' if loss is None else words}")


def test_a_report_tells_of_the_hosts_where_something_stands_out_and_of_no_others() -> None:
    calm, troubled = (snapshot(Made(ranks=8, per_node=4, gpu=True, troubled=nodes)) for nodes in ((), (1,)))
    for shown_as in (markdown, page):
        without, one = (shown_as(RunReport(each, run_info(8), (), 0.0, 3600.0, "a file")) for each in (calm, troubled))
        assert "Hosts at the end" not in without
        listed = one.split("Hosts at the end")[1]
        assert "node1: " in listed
        assert "foreign process" in listed
        assert "node0: " not in listed


@pytest.mark.parametrize(("state", "span"), [("running", "so far"), ("failed", "in all")])
def test_what_a_standstill_has_cost_is_in_all_once_the_run_has_ended(state: RunState, span: str) -> None:
    made = snapshot(Made(gpu=True))
    assert made.run is not None
    hang = Finding("hang", "critical", "rank 2 is stuck", (2,), evidence={"seconds": 500.0, "waiting": 7})
    told = replace(made, run=replace(made.run, state=state), findings=(hang,))
    pairs = {name: value for section in about(told) for name, value in section.pairs}
    assert pairs["lost: rank 2"].startswith(f"1.1 GPU-h {span}")


def test_what_is_simulated_is_said_once_and_adds_up() -> None:
    info = simulated_info(Plan(ranks=4), "id")
    assert size(info.gradient_bytes) == "267 MiB", "70 million parameters in float32"
    made = shown()
    assert made.run is not None
    run = replace(made.run, info=info, backend=info.backend)
    pairs = {name: value for section in about(replace(made, run=run)) for name, value in section.pairs}
    assert (pairs["backend"], pairs["gradients per step"]) == ("simulated", "267 MiB")
