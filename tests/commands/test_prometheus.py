"""`ddpmon export --prometheus`: what a scrape brings, and a real Prometheus with the rules and the board."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client")
from prometheus_client import CollectorRegistry, generate_latest

from ddpmon.commands.export_prometheus import export_prometheus, host_and_port
from ddpmon.commands.prometheus_metrics import EACH_RANK, MOST_HOSTS, WORST_RANKS, Metrics
from ddpmon.snapshot import Link, Snapshot
from ddpmon.store.base import TargetError
from tests.commands.command_snapshots import STRAGGLER, snapshot, two_ranks, unknown_ranks
from tests.commands.served_runs import host_with_runs

ROOT = Path(__file__).parents[2]
RULES, BOARD = ROOT / "contrib" / "prometheus-rules.yml", ROOT / "contrib" / "grafana-board.json"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="no prometheus, or no promtool"
)


def scraped(made: Snapshot) -> dict[str, float]:
    """Series -> value."""
    metrics, registry = Metrics(), CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    metrics.snapshot = made
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_while_no_step_finishes_only_what_still_holds_is_there() -> None:
    hang = replace(STRAGGLER, kind="hang", severity="critical")
    names = {name.partition("{")[0] for name in scraped(snapshot(findings=(hang,)))}
    assert "ddpmon_finding" in names
    assert "ddpmon_last_step_timestamp_seconds" in names
    assert "ddpmon_loss" in names
    assert not {name for name in names if re.search("step_seconds|transfer|samples|waiting|_rank_|_node_", name)}


def test_figures_are_in_base_units_and_what_is_unknown_is_left_out() -> None:
    found = scraped(snapshot(findings=(STRAGGLER,)))
    assert found['ddpmon_run_info{backend="gloo",name="gpt",run="r1",world_size="2"}'] == 1
    assert found['ddpmon_run_state{run="r1",state="running"}'] == 1
    assert found['ddpmon_run_state{run="r1",state="failed"}'] == 0
    assert found['ddpmon_steps_total{run="r1"}'] == 1205
    assert found['ddpmon_step_seconds{run="r1"}'] == pytest.approx(0.17215)
    assert found['ddpmon_last_step_timestamp_seconds{run="r1"}'] == pytest.approx(1_700_000_000.25 - 2.2)
    assert found['ddpmon_waiting_ratio{run="r1"}'] == pytest.approx(0.195)
    assert found['ddpmon_rank_work_seconds{node="node0",phase="input",rank="1",run="r1"}'] == pytest.approx(0.0432)
    assert found['ddpmon_rank_lateness_seconds{node="node0",rank="1",run="r1"}'] == pytest.approx(0.0408)
    key = '{kind="straggler",node="node0",rank="1",run="r1",severity="warning"}'
    assert found[f"ddpmon_finding{key}"] == 1
    assert found[f"ddpmon_finding_cost_ratio{key}"] == pytest.approx(0.1925)
    assert not any(name.startswith("ddpmon_monitor_seconds") for name in found)
    assert not any("ddpmon_rank_work" in name for name in scraped(snapshot(ranks=unknown_ranks(2))))


def test_what_no_longer_holds_is_not_exported_and_hostile_names_are_data() -> None:
    made = snapshot(link=Link("silent", "no answer"), findings=(STRAGGLER,))
    assert made.run is not None
    found = scraped(replace(made, run=replace(made.run, name='a"\n# HELP x', step_age_s=None)))
    assert found['ddpmon_store_up{run="r1"}'] == 0
    assert {name.partition("{")[0] for name in found} == {
        "ddpmon_run_info", "ddpmon_run_state", "ddpmon_store_up", "ddpmon_steps_total"
    }  # fmt: skip
    assert 'name="a\\"\\n# HELP x"' in next(iter(found))
    assert scraped(Snapshot(Link("waiting"), 0.0, 0.0)) == {}


@pytest.mark.parametrize(("count", "a_host"), [(EACH_RANK, 8), (EACH_RANK + 1, 8), (20_000, 8)])
def test_the_number_of_series_is_bounded(count: int, a_host: int) -> None:
    columns: dict[str, Any] = {
        name: np.arange(float(count)) for name in unknown_ranks(1).__slots__ if name.endswith("_ms")
    }
    hosts = tuple(f"node{rank // a_host}" for rank in range(count))
    found = scraped(snapshot(ranks=two_ranks(**{**unknown_dict(count), **columns, "host": hosts})))
    counted = Counter(name.partition("{")[0] for name in found)
    if count <= EACH_RANK:
        assert counted["ddpmon_rank_lateness_seconds"] == count
        assert counted["ddpmon_node_lateness_seconds"] == 0
        return
    assert counted["ddpmon_rank_lateness_seconds"] == WORST_RANKS
    assert counted["ddpmon_node_lateness_seconds"] == min(MOST_HOSTS, -(-count // a_host))
    assert any(f'rank="{count - 1}"' in name for name in found), "the latest ranks are those that are shown"
    assert len(found) < 10_000


def unknown_dict(count: int) -> dict[str, Any]:
    made = unknown_ranks(count)
    return {name: getattr(made, name) for name in made.__slots__}


@pytest.mark.parametrize("text", ["", "9480", ":9480", "host:", "host:x", "host:70000", "host:-1"])
def test_an_address_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is not HOST:PORT"):
        host_and_port(text)
    assert host_and_port("[::1]:0") == ("::1", 0)


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert export_prometheus("tcp://127.0.0.1:1", f"127.0.0.1:{port}") == 2
    assert "cannot be listened at" in capsys.readouterr().err


@contextlib.contextmanager
def exporter(url: str) -> Iterator[str]:
    """The command on a run; yields where it serves."""
    command = [sys.executable, "-m", "ddpmon.cli", "export", url, "--prometheus", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1].removeprefix("http://").removesuffix("/metrics")
        finally:
            process.terminate()
            assert process.wait(60) == 0


@contextlib.contextmanager
def prometheus(folder: Path, exported: str) -> Iterator[str]:
    """A real one that scrapes every second and knows our rules; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "prometheus.yml"
    scrape = f"scrape_configs: [{{job_name: ddpmon, static_configs: [{{targets: ['{exported}']}}]}}]"
    config.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n{scrape}\n")
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def asked(address: str, path: str, **query: str) -> Any:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]
    return {"result": []}


def expressions() -> list[str]:
    """All queries of the board, for all runs."""
    board = json.loads(BOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [expr.replace("$run", ".*") for expr in found]


@needs_prometheus
def test_a_real_prometheus_scrapes_it_and_every_panel_of_the_board_has_data(tmp_path: Path) -> None:
    with (
        host_with_runs(tmp_path / "host", "gpt") as (url,),
        exporter(url) as exported,
        prometheus(tmp_path, exported) as address,
    ):
        deadline = time.monotonic() + 120
        wanted = dict.fromkeys(expr for expr in expressions() if "last_step" not in expr)  # frames without their age
        while not all(wanted.values()) and time.monotonic() < deadline:
            wanted = {expr: bool(asked(address, "query", query=expr)["result"]) for expr in wanted}
            time.sleep(1.0)
        assert all(wanted.values()), [expr for expr, has_data in wanted.items() if not has_data]
        (late,) = asked(address, "query", query='ddpmon_finding{kind="straggler"}')["result"]
        assert late["metric"]["rank"] == "1"
        rules = [rule["name"] for group in asked(address, "rules")["groups"] for rule in group["rules"]]
        assert rules == ["TrainingStalled", "TrainingCriticalFinding", "TrainingDied", "TrainingTelemetryGone"]
        assert {rule["health"] for group in asked(address, "rules")["groups"] for rule in group["rules"]} <= {
            "ok",
            "unknown",
        }


@needs_prometheus
def test_the_rules_are_right_and_alert_when_they_should() -> None:
    for check in (["check", "rules", str(RULES)], ["test", "rules", str(RULES.with_name("prometheus-rules-test.yml"))]):
        ended = subprocess.run(["promtool", *check], capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_board_names_only_metrics_that_exist() -> None:
    made = {name.partition("{")[0] for name in scraped(snapshot(findings=(STRAGGLER,)))}
    made |= {"ddpmon_node_lateness_seconds"}
    named = {name for expr in expressions() for name in re.findall(r"ddpmon_\w+", expr)}
    assert named <= made | {"ddpmon_samples_per_second"}
