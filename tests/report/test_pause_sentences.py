"""What is said of a job without progress that does not hang: pauses under way, CUDA graphs, uneven inputs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Severity
from ddpmon.diagnose.pause import GraphMeasures, OngoingPauseMeasures, UnsynchronisedMeasures
from ddpmon.diagnose.uneven_inputs import LeftBehindMeasures, UnevenInputsMeasures
from ddpmon.report.sentences import tell
from ddpmon.shell_command import advice_text
from tests.report.test_hang_sentences import ALL, AT, BARE, HERE, SEE, STACK, said

WRAP = "wrap evaluations and checkpoints in `with monitor.phase(name)`, so that their time has a name"
RECOMPILES = (
    "if it compiles again and again, find out why: TORCH_LOGS=recompiles; a shared TORCHINDUCTOR_CACHE_DIR helps"
)
GRAPH = "run some steps without the graph to measure them: ranks are compared in steps outside CUDA graphs"
NO_GRAPH = "look at the stacks of the ranks and at the GPUs (nvidia-smi): where a graph stands is not known"
INTENDED = (
    "change nothing if this is intended: ranks are compared in steps that reduce gradients; wrap an evaluation in "
    "`with monitor.phase(name)`"
)
SAME_BATCHES = (
    "give every rank the same number of batches: DistributedSampler, drop_last=True, or a fixed number of steps; "
    "or let the others continue with torch.distributed.algorithms.join.Join"
)
BATCHES = "if this is not intended, give every rank the same number of batches: DistributedSampler, drop_last=True"
STORAGE = "check the storage that rank 0 uses: it takes far longer than before"


def pause(severity: Severity = "info", **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "activity": "unnamed",
        "seconds": 45.0,
        "ranks": (0,),
        "waiting": (1, 2, 3),
        "others_finished": False,
        "shown": BARE,
        "stack_moves": False,
        "write_bytes_s": None,
    }
    measures = OngoingPauseMeasures(**(values | changes))
    return said(measures, *measures.ranks, kind="pause" if severity == "info" else "hang", severity=severity)


ROWS = [
    (
        "replays of a graph",
        said(GraphMeasures(700.0, ALL, are_all=True, is_replaying=True, replay_s=0.02), kind="pause", severity="info"),
        "not measured: a CUDA graph: all 4 ranks replay a CUDA graph, in which no step is seen",
        GRAPH,
    ),
    (
        "graph of the only rank",
        said(GraphMeasures(700.0, (0,), are_all=True, is_replaying=True, replay_s=0.02), kind="pause", severity="info"),
        "not measured: a CUDA graph: rank 0 replays a CUDA graph, in which no step is seen",
        GRAPH,
    ),
    (
        "graph that some replay no more",
        said(GraphMeasures(700.0, (0, 1), are_all=False, is_replaying=False, replay_s=20.0), severity="warning"),
        "not measured: a CUDA graph: ranks 0, 1 have replayed no CUDA graph for 20 s, in which no step is seen",
        NO_GRAPH,
    ),
    (
        "named phase",
        pause(activity="named_phase", shown=replace(BARE, phase="checkpoint")),
        "rank 0 has been in checkpoint for 45 s; ranks 1, 2, 3 wait",
        "",
    ),
    (
        "named phase for too long",
        pause(
            "warning", activity="named_phase", shown=replace(HERE, phase="eval\x1b"), write_bytes_s=9e6, seconds=100.0
        ),
        f"rank 0 has been in eval for 100 s, at {AT}; ranks 1, 2, 3 wait",
        STORAGE,
    ),
    (
        "compilation",
        pause(activity="compilation", ranks=(0, 1), waiting=(2,), shown=HERE),
        f"ranks 0, 1 have been compiling for 45 s, at {AT}; rank 2 waits",
        RECOMPILES,
    ),
    (
        "compilation for too long",
        pause("critical", activity="compilation", seconds=1900.0, waiting=()),
        "rank 0 has been compiling for 32 min; no rank waits for another",
        SEE,
    ),
    (
        "busy, writing",
        pause(shown=replace(BARE, phase="other"), write_bytes_s=250e6),
        "rank 0 has been busy without finishing a step (now other, writing 250 MB/s) for 45 s; ranks 1, 2, 3 wait",
        WRAP,
    ),
    (
        "busy for too long",
        pause("warning", shown=HERE),
        f"rank 0 has been busy without finishing a step (now input) for 45 s, at {AT}; ranks 1, 2, 3 wait",
        f"{SEE}; {WRAP}",
    ),
    (
        "busy for too long, and nobody waits",
        pause("warning", waiting=()),
        "rank 0 has been busy without finishing a step (now forward) for 45 s; no rank waits for another",
        WRAP,
    ),
    (
        "busy after the others have finished",
        pause(waiting=(), others_finished=True),
        "rank 0 has been busy without finishing a step (now forward) for 45 s; the others have finished",
        WRAP,
    ),
    (
        "no reduction",
        said(UnsynchronisedMeasures(400.0, 0, ALL, True, ("forward", "backward")), kind="pause", severity="info"),
        "no gradient reduction for 7 min, although all 4 ranks go from phase to phase (now forward and backward): "
        "gradient accumulation, no_sync, an evaluation, or a model other than the attached one",
        INTENDED,
    ),
    (
        "no reduction of some",
        said(UnsynchronisedMeasures(400.0, 1, (0, 1), False, ("barrier",)), kind="pause", severity="info"),
        "no gradient reduction for 7 min, although ranks 0, 1 go from phase to phase (now barrier): gradient "
        "accumulation, no_sync, an evaluation, or a model other than the attached one",
        INTENDED,
    ),
    (
        "one has finished",
        said(UnevenInputsMeasures(15.0, (0, 1, 3), 1120, has_finished=True), 2, kind="uneven_inputs"),
        "rank 2 finished after step 1,120; ranks 0, 1, 3 have waited for it at step 1,121 for 15 s: its data ended "
        "earlier",
        SAME_BATCHES,
    ),
    (
        "several have finished",
        said(UnevenInputsMeasures(15.0, (0,), 120, has_finished=True), 1, 2, kind="uneven_inputs"),
        "ranks 1, 2 finished after step 120; rank 0 has waited for them at step 121 for 15 s: their data ended earlier",
        SAME_BATCHES,
    ),
    (
        "end of its data",
        said(UnevenInputsMeasures(15.0, (0,), 120, has_finished=False), 1, kind="uneven_inputs"),
        "rank 1 reached the end of its data after step 120; rank 0 has waited for it at step 121 for 15 s",
        SAME_BATCHES,
    ),
    (
        "end of their data",
        said(UnevenInputsMeasures(15.0, (0,), 120, has_finished=False), 1, 2, kind="uneven_inputs"),
        "ranks 1, 2 reached the end of their data after step 120; rank 0 has waited for them at step 121 for 15 s",
        SAME_BATCHES,
    ),
    (
        "left behind",
        said(LeftBehindMeasures(120, 1300), 1, kind="uneven_inputs", severity="info"),
        "rank 1 finished after step 120; the others continue without it",
        BATCHES,
    ),
    (
        "several left behind",
        said(LeftBehindMeasures(120, 1300), 1, 2, kind="uneven_inputs", severity="info"),
        "ranks 1, 2 finished after step 120; the others continue without them",
        BATCHES,
    ),
]
EVIDENCE: dict[str, dict[str, float | int | str]] = {
    "replays of a graph": {"seconds": 700.0, "name": "CUDA graph"},
    "named phase": {"seconds": 45.0, "waiting": 3, "name": "checkpoint"},
    "compilation": {"seconds": 45.0, "waiting": 1, "name": "input", "compiling": "yes", "stack": STACK},
    "busy, writing": {"seconds": 45.0, "waiting": 3, "name": "other", "writes_gb_s": 0.25},
    "no reduction": {"seconds": 400.0, "waiting": 0, "name": "forward and backward"},
    "one has finished": {"seconds": 15.0, "waiting": 3, "last_step": 1120},
    "left behind": {"last_step": 120, "newest_step": 1300},
}


@pytest.mark.parametrize(("alert", "summary", "advice"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_sentences(alert: Alert, summary: str, advice: str) -> None:
    finding = tell(alert)
    assert (finding.summary, advice_text(finding.advice)) == (summary, advice)
    assert (finding.cause, finding.ranks, finding.severity) == (None, alert.ranks, alert.severity)


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence(name: str) -> None:
    (alert,) = (alert for row, alert, _, _ in ROWS if row == name)
    assert [*tell(alert).evidence.items()] == [*EVIDENCE[name].items()]


def test_all_evidence_of_a_pause_in_its_order() -> None:
    alert = pause(activity="compilation", shown=HERE, stack_moves=True, write_bytes_s=8e6)
    names = ["seconds", "waiting", "name", "compiling", "stack_moves", "writes_gb_s", "stack"]
    assert [*tell(alert).evidence] == names


def test_every_class_of_measures_has_a_row_and_evidence() -> None:
    rows = {name: type(alert.measures) for name, alert, _, _ in ROWS}
    expected = {GraphMeasures, OngoingPauseMeasures, UnsynchronisedMeasures, UnevenInputsMeasures, LeftBehindMeasures}
    assert {*rows.values()} == {rows[name] for name in EVIDENCE} == expected
