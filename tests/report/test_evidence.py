"""Evidence in words: what is said, in which units, and what is left out."""

from __future__ import annotations

from ddpmon.report.evidence import evidence_blocks, evidence_words
from ddpmon.report.wording import state_words
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.findings import all_findings, one_line
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

NAN = float("nan")
LATE = {
    "work_ms": 158.2,
    "others_work_ms": 117.1,
    "excess_ms": 41.0,
    "waits_less_ms": 40.2,
    "excess_input_ms": 39.4,
    "excess_forward_ms": 0.7,
    "excess_backward_ms": -0.2,
    "excess_optimizer_ms": 0.0,
    "excess_other_ms": 0.3,
    "gc_ms": 0.0,
    "samples_ratio": NAN,
    "ratio": 1.351,
    "cost_pct": 24.1,
    "window_steps": 20,
}


def test_a_straggler_in_words() -> None:
    assert evidence_words(LATE) == (
        "work 158 ms, others 117 ms, +41.0 ms; waits 40.2 ms less; input +39.4 ms; 1.35 times the others' work; "
        "over 20 steps"
    )


def test_a_difference_that_the_two_figures_do_not_have_says_that_it_is_of_the_median_step() -> None:
    said = evidence_words({"work_ms": 590.0, "others_work_ms": 455.0, "excess_ms": 133.0})
    assert said == "work 590 ms, others 455 ms, +133 ms in the median step"
    assert evidence_words({"work_ms": 590.0, "others_work_ms": 455.0, "excess_ms": 134.4}).endswith(", +134 ms")


def test_parts_that_count_are_all_named_the_largest_first() -> None:
    shared = LATE | {"excess_input_ms": 10.0, "excess_backward_ms": 31.0, "gc_ms": 12.0}
    assert "backward +31.0 ms; garbage collection +12.0 ms; input +10.0 ms;" in evidence_words(shared)


def test_growth_is_said_with_the_time_that_it_took() -> None:
    """`GPU memory grows, growth 600 MiB, over 5 min` stood below compared ranks."""
    evidence = {"growth_bytes": 600 << 20, "over_s": 300.0, "allocated_bytes": 44 << 30}
    assert evidence_words(evidence) == "grows by 600 MiB in 5 min; allocated 44.0 GiB"
    found = Finding("gpu_memory_growth", "warning", "it grows", (1,), ("node0",), evidence=evidence)
    said = "".join(segment.text for segment in one_line(found, 100, LOOKS["plain"]))
    assert "rank 1: GPU memory grows by 600 MiB in 5 min" in said


def test_waiting_longer_and_more_samples_are_said_as_such() -> None:
    said = evidence_words(LATE | {"waits_less_ms": -3.0, "samples_ratio": 1.5})
    assert "waits 3.00 ms more" in said
    assert "1.50 times the others' samples" in said
    assert "samples" not in evidence_words(LATE | {"samples_ratio": 1.0})


def test_an_intermittent_one_says_how_often() -> None:
    assert evidence_words({"hit_steps": 31.0, "one_step_in": 6.0}) == "seen in 31 steps, one of 6"
    assert evidence_words({"hit_steps": 31.0, "one_step_in": 1.0}) == "seen in 31 steps"


def test_an_intermittent_one_says_of_which_steps_its_figures_are() -> None:
    """`work 816 ms, others 454 ms` stood beside medians of 458 ms and 454 ms in the other views."""
    often = {"work_ms": 816.0, "others_work_ms": 454.0, "excess_ms": 362.0, "hit_steps": 23.0, "one_step_in": 5.0}
    assert evidence_words(often) == (
        "in the late steps: work 816 ms, others 454 ms, +362 ms; seen in 23 steps, one of 5"
    )


def test_a_network_and_a_job_are_told_against_what_they_were() -> None:
    network = {"transfer_ms": 32.0, "normal_transfer_ms": 20.0, "spread_rise_ms": 0.3, "step_ms": 172.0}
    assert evidence_words(network) == "transfer 32.0 ms, before 20.0 ms, +12.0 ms; step 172 ms"
    job = {
        "step_ms": 172.0,
        "normal_step_ms": 154.0,
        "rise_forward_ms": 16.5,
        "rise_input_ms": 0.1,
        "rise_spread_ms": 1.0,
    }
    assert evidence_words(job) == "step 172 ms, without the rise 154 ms, +18.0 ms; forward +16.5 ms"


def test_other_keys_keep_their_name_and_get_their_unit() -> None:
    assert evidence_words({"imbalance": 0.14, "most_often_last_share": 0.22}) == "imbalance 14 %; most often last 22 %"
    assert evidence_words({"silent_s": 14.2}) == "silent 14 s"
    assert evidence_words({"bucket_bytes": 26_214_400, "overlap_pct": 31.0}) == "bucket 25 MiB; overlap 31.0 %"
    assert evidence_words({"first_step": 1204, "value": "nan"}) == "first step 1,204; value nan"


def test_what_is_not_finite_or_empty_is_left_out() -> None:
    assert evidence_words({"work_ms": NAN, "silent_s": float("inf"), "reason": ""}) == ""
    assert evidence_words({}) == ""


def test_a_long_text_is_a_block_and_not_a_word() -> None:
    stack = "a.py:1 in f: g()\n\nb.py:2 in g: sleep(9)"
    assert evidence_words({"stack": stack}) == ""
    assert evidence_blocks({"stack": stack, "value": "nan"}) == [
        ("stack", ["a.py:1 in f: g()", "b.py:2 in g: sleep(9)"])
    ]


def test_the_findings_screen_indents_a_stack_and_cuts_paths_from_the_left() -> None:
    path = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
    stack = f"train.py:1 in <module>: main()\n{path}:732 in __next__: data = self._next_data()\n\x1b[31m<b>\x07: x"
    found = Finding("hang", "critical", "rank 2 is stuck.", (2,), evidence={"stack": stack, "stuck_s": 14.0})
    lines = text_of(all_findings(ViewState(snapshot(Made(findings=(found,))), LOOKS["colour"]), 80))
    at = next(place for place, line in enumerate(lines) if line.strip() == "stack:")
    assert lines[at - 1].strip() == "evidence: stuck 14 s"
    assert lines[at + 1].startswith("     │ train.py:1 in <module>: main()")
    assert lines[at + 2].strip().endswith("/dataloader.py:732 in __next__: data = self._next_data()")
    assert lines[at + 3].strip() == "│ [31m<b>: x"
    assert all(line.isprintable() for line in lines)


def test_the_share_of_a_cause_and_the_place_of_a_rank_are_said_plainly() -> None:
    assert [evidence_words({"cause_share": share}) for share in (1.0, 0.8)] == [
        "this explains all of the lateness",
        "this explains 80 % of the lateness",
    ]
    assert state_words("running", "exposed") == "waiting in the all-reduce"
    assert state_words("running", "other") == "running between phases"
    assert state_words("running", "backward") == "running in backward"
    assert state_words("stalled", "exposed") == "stalled in the all-reduce"
    assert state_words("lost", "backward") == "lost"


def test_a_long_time_is_told_in_hours_and_a_hang_says_what_its_numbers_count() -> None:
    assert evidence_words({"growth_bytes": 300 << 20, "left_s": 36_564.0}) == "growth 300 MiB; full in 10 h"
    assert evidence_words({"seconds": 60.4, "waiting": 3}) == "3 ranks have waited for 60 s"
    assert evidence_words({"cause_taken_pct": 11_800.0}) == "CPU taken 11,800 %"


def test_who_waits_and_who_is_not_seen_is_said_in_words() -> None:
    hang: dict[str, float | int | str] = {"seconds": 73.0, "waiting": 63, "operation": "nccl:all_reduce"}
    assert evidence_words(hang) == "63 ranks have waited in all_reduce for 73 s"
    assert evidence_words({"seconds": 73.0, "waiting": 1, "name": "eval"}) == "1 rank waits; for 73 s; name eval"
    unseen = {"not_reporting": 8, "never_heard_of": 1, "restarted_alone": 2, "dropped_steps": 3}
    assert evidence_words(unseen) == "8 ranks silent; 1 rank never reported; dropped steps 3"
    assert (evidence_words({"gpus": 1}), evidence_words({"gpus": 2})) == ("", "GPUs 2")
