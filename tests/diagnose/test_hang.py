"""Hangs: who is named, from silence, flight recorders and phases; and what is only a pause."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.hang import find_stuck
from ddpmon.parts import NO_HOST, Flight, Stack, StackFrame, Stall
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import columns, mark, rank_frame, run_info

STEPS = columns(range(100, 121), {"duration": [100.0] * 21})
SLEEP = [
    StackFrame("/home/me/train.py", 40, "main", "for batch in loader:"),
    StackFrame("/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 700, "__next__", own=False),
    StackFrame("/home/me/data.py", 88, "__getitem__", "time.sleep(1e9)"),
    StackFrame("/usr/lib/python3.11/random.py", 5, "wait", own=False),
]


def stall(seconds: float = 15.0, *flights: Flight, frames: list[StackFrame] | None = None) -> Stall:
    return Stall(seconds, [Stack("MainThread", frames)] if frames else [], list(flights))


def flight(enqueued: int, completed: int = -1, operation: str = "gloo:all_reduce [1000]", group: str = "0") -> Flight:
    return Flight(group, enqueued, completed, operation)


def waiter(*flights: Flight, phase: str = "exposed", **changes: Any) -> dict[str, Any]:
    return {"state": "stalled", "phase": phase, "phase_s": 15.0, "stall": stall(15.0, *flights)} | changes


def stuck(phase: str = "input", *flights: Flight, **changes: Any) -> dict[str, Any]:
    values = {"state": "stalled", "phase": phase, "phase_s": 15.0, "stall": stall(15.0, *flights, frames=SLEEP)}
    return values | changes


def judge(*ranks: dict[str, Any] | None, silent: dict[int, float] | None = None, marks: Any = ()) -> list[Finding]:
    """The findings on ranks that say this; None is a rank never heard of."""
    run = Run(run_info(len(ranks)))
    for rank, says in enumerate(ranks):
        if says is not None:
            if marks:
                run.add_rank(rank_frame(rank, 1, STEPS, marks=list(marks)), 0.0)
            frame = rank_frame(rank, 20, says.get("steps", STEPS), **{k: v for k, v in says.items() if k != "steps"})
            run.add_rank(frame, 100.0, (silent or {}).get(rank, 0.0))
    return find_stuck(run, run.ages(100.0))


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_a_rank_stuck_in_the_dataset_is_named_with_its_stack_line() -> None:
    finding = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32)), stuck("input", flight(32, 32)), waiter()))
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("hang", "critical", (2,), "input")
    assert finding.since_step == 121
    assert "data.py:88 in __getitem__: time.sleep(1e9)" in finding.summary
    assert "ranks 0, 1 wait for it in gloo:all_reduce [1000]" in finding.summary
    stack = str(finding.evidence["stack"]).split("\n")
    assert (len(stack), stack[-1]) == (4, "random.py:5 in wait")
    assert finding.evidence["waiting"] == 3


@pytest.mark.parametrize("host", ["node0", "gpu-7.cluster", "10.0.0.7"])
def test_the_command_to_paste_goes_to_the_host_of_the_rank(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node0")  # frames alone decide what is said
    finding = only(judge(waiter(), stuck("forward", host=host, pid=2001)))
    assert finding.advice == f"see where it is: `ssh {host} py-spy dump --pid 2001`"


@pytest.mark.parametrize("host", ["", NO_HOST, "-oProxyCommand=touch${IFS}/tmp/x", "$(id)", "a;id", "a`id`", "a\nid"])
def test_a_host_that_ssh_or_a_shell_would_misread_is_in_no_command(host: str) -> None:
    finding = only(judge(waiter(), stuck("forward", host=host, pid=2001)))
    assert finding.advice == "see where it is: `py-spy dump --pid 2001`"


def test_without_flight_recorders_the_phases_tell() -> None:
    finding = only(judge(waiter(), stuck("forward"), waiter(phase="barrier"), waiter()))
    assert (finding.kind, finding.ranks, finding.phase) == ("hang", (1,), "forward")
    assert "ranks 0, 2, 3 wait in the gradient reduction" in finding.summary


def test_a_job_that_steps_does_not_hang() -> None:
    healthy = {"state": "running", "phase": "exposed", "phase_s": 0.1}
    assert judge(healthy, healthy) == []
    assert judge(waiter(), waiter()) != []
    went_on = columns(range(100, 122), {"duration": [100.0] * 22})
    assert judge(waiter(), healthy | {"steps": went_on}, healthy | {"steps": went_on}) == []


def test_a_long_step_is_not_a_hang_where_steps_are_long() -> None:
    slow = columns(range(10), {"duration": [5000.0] * 10})
    waits = {"state": "running", "phase": "exposed", "phase_s": 20.0}
    assert judge(waits | {"steps": slow}, {"phase": "forward", "phase_s": 20.0, "steps": slow}) == []
    assert judge(waits, {"phase": "forward", "phase_s": 20.0}) != []


def test_the_rank_in_another_operation_took_another_path() -> None:
    other = flight(33, 32, "gloo:barrier")
    finding = only(judge(*[waiter(flight(33, 32))] * 2, waiter(other, phase="barrier"), waiter(flight(33, 32))))
    assert finding.ranks == (2,)
    assert "rank 2 is in gloo:barrier" in finding.summary
    assert "rank 2 took another path" in finding.summary


def test_the_rank_that_left_a_collective_out_is_named_though_it_is_ahead() -> None:
    ahead = waiter(flight(34, 32))
    finding = only(judge(*[waiter(flight(33, 32, "gloo:barrier"), phase="barrier")] * 3, ahead))
    assert finding.ranks == (3,)
    assert "took another path" in finding.summary


def test_a_gather_has_other_sizes_at_its_root() -> None:
    root = waiter(flight(33, 32, "gloo:gather [4, 100]"))
    finding = only(judge(root, *[waiter(flight(33, 32, "gloo:gather [100]"))] * 3))
    assert (finding.ranks, "no single rank is to blame" in finding.summary) == ((), True)


def test_two_ranks_that_disagree_are_both_told_of_and_neither_blamed() -> None:
    finding = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32, "gloo:barrier"), phase="barrier")))
    assert finding.ranks == ()
    assert "gloo:all_reduce" in finding.summary
    assert "gloo:barrier" in finding.summary
    assert "disagree" in finding.summary


def test_of_two_ranks_the_one_that_does_not_wait_is_named() -> None:
    found = judge(stuck("forward", flight(33, 33, "gloo:barrier")), waiter(flight(33, 32)))
    assert only(found).ranks == (0,)


def test_a_rank_that_waits_in_a_subgroup_is_not_blamed_for_the_one_that_is_stuck() -> None:
    near = waiter(flight(32, 32), flight(5, 4, "gloo:broadcast", "sub"))
    finding = only(judge(*[waiter(flight(33, 32))] * 2, near, stuck("other", flight(32, 32), flight(4, 4, "", "sub"))))
    assert finding.ranks == (3,)


def test_when_all_wait_in_the_same_collective_nobody_is_named() -> None:
    finding = only(judge(*[waiter(flight(33, 32))] * 4))
    assert (finding.kind, finding.severity, finding.ranks) == ("hang", "critical", ())
    assert "all 4 ranks have waited in gloo:all_reduce [1000]" in finding.summary
    assert "network" in finding.advice


def test_when_all_compute_nobody_is_named() -> None:
    finding = only(judge(*[stuck("forward")] * 4))
    assert (finding.kind, finding.severity, finding.ranks) == ("hang", "critical", ())
    assert "all 4 ranks in forward" in finding.summary


def test_a_silent_rank_is_the_one() -> None:
    frame = {"state": "running", "phase": "backward", "phase_s": 0.1}
    finding = only(judge(waiter(flight(33, 32)), waiter(flight(33, 32)), frame, silent={2: 6.0}))
    assert (finding.kind, finding.ranks, finding.phase) == ("hang", (2,), "backward")
    assert "rank 2 has fallen silent" in finding.summary


def test_beside_a_lost_or_failed_rank_there_is_nothing_to_add() -> None:
    frame = {"state": "running", "phase": "backward", "phase_s": 0.1}
    assert judge(waiter(), waiter(), frame, silent={2: 30.0}) == []
    assert judge(waiter(), waiter(), {"state": "failed", "phase": "input"}) == []


@pytest.mark.parametrize(("step_ms", "behind"), [(93.0, 20), (10.0, 150)])
def test_what_a_silent_rank_did_after_its_last_word_is_allowed_for(step_ms: float, behind: int) -> None:
    steps = columns(range(300), {"duration": [step_ms] * 300})
    before = {"steps": columns(range(300 - behind), {"duration": [step_ms] * (300 - behind)}), "phase_s": 0.1}
    waits = waiter(flight(33, 32), steps=steps)
    finding = only(judge(waits, before, waits, silent={1: 6.0}))
    assert (finding.kind, finding.ranks) == ("hang", (1,))
    assert judge(waits, before, waits, silent={1: 12.0}) == []  # as a lost rank it is spoken of elsewhere


def test_a_rank_lost_long_ago_does_not_hide_a_hang() -> None:
    old = {"state": "running", "steps": columns([50], {"duration": [1.0]})}
    assert only(judge(waiter(), stuck(), old, silent={2: 300.0})).ranks == (1,)


def test_the_first_step_may_take_its_time() -> None:
    none = columns([], {})
    first = {"steps": none, "step": -1}
    finding = only(judge(waiter() | first, stuck("forward") | first))
    assert (finding.kind, finding.severity, finding.since_step) == ("hang", "info", 0)
    assert "compiling?" in finding.summary
    late = {"stall": stall(400.0)} | first
    assert only(judge(waiter() | late, stuck("forward") | late)).severity == "critical"


def test_a_checkpoint_is_a_pause_until_it_takes_far_too_long() -> None:
    def saving(seconds: float) -> dict[str, Any]:
        return {"state": "running", "phase": "checkpoint", "phase_s": seconds}

    finding = only(judge(saving(45.0), waiter(), waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    assert finding.summary == "rank 0 has been in checkpoint for 45 s; ranks 1, 2, 3 wait"
    assert only(judge(saving(100.0), waiter())).kind == "hang"
    assert only(judge(saving(100.0), waiter())).severity == "warning"
    assert only(judge(saving(700.0), waiter())).severity == "critical"
    earlier = [mark(110, "checkpoint", 30_000.0)]
    assert only(judge(saving(100.0), waiter(), marks=earlier)).kind == "pause"


def test_a_rank_stuck_beside_one_in_a_named_phase_is_named() -> None:
    saving = {"state": "running", "phase": "checkpoint", "phase_s": 15.0}
    finding = only(judge(saving, stuck("input"), waiter(), waiter()))
    assert (finding.kind, finding.ranks) == ("hang", (1,))


def test_ranks_that_wait_inside_a_named_phase_wait_too() -> None:
    evaluating = {"state": "running", "phase": "eval", "phase_s": 30.0}
    finding = only(judge(evaluating, {"state": "running", "phase": "barrier", "phase_s": 20.0}))
    assert (finding.kind, finding.ranks) == ("pause", (0,))


def test_an_evaluation_that_nobody_named_is_no_hang() -> None:
    moving = {"state": "stalled", "phase": "input", "phase_s": 0.2, "stall": stall(30.0)}
    finding = only(judge(moving, moving))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", ())
    finding = only(judge(moving, waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    saving = {"state": "stalled", "phase": "other", "phase_s": 30.0, "stall": stall(30.0)}
    assert only(judge(saving, saving)).severity == "info"


def test_a_rank_that_gets_on_while_others_wait_evaluates_or_saves_until_it_takes_too_long() -> None:
    """Nobody named it, and it enters no phase: its stack moves, or it writes."""
    evaluates = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), moves=True)}
    saves = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), write_bytes_s=250e6)}
    for rank in (evaluates, saves):
        finding = only(judge(rank, waiter(), waiter()))
        assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
        assert "data.py:88 in __getitem__" in finding.summary
    assert "writing 250 MB/s" in finding.summary
    assert finding.evidence["writes_gb_s"] == 0.25
    long = evaluates | {"phase_s": 70.0, "stall": replace(evaluates["stall"], seconds=70.0)}
    finding = only(judge(long, waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks) == ("hang", "warning", (0,))
    assert finding.evidence["stack_moves"] == "yes"
    assert "py-spy dump --pid" in finding.advice
    in_a_phase = evaluates | {"phase": "forward"}
    assert only(judge(in_a_phase, waiter(), waiter())).severity == "critical"
    logs = stuck("other") | {"stall": replace(stall(15.0, frames=SLEEP), write_bytes_s=1e6)}
    assert only(judge(logs, waiter(), waiter())).severity == "critical"


GETS_ON = [
    stuck("other") | {"stall": replace(stall(15.0), write_bytes_s=250e6)},
    stuck("other") | {"stall": replace(stall(15.0), moves=True)},
    {"state": "stalled", "phase": "input", "phase_s": 0.2, "stall": stall(15.0)},
]


def later(seconds: float, says: dict[str, Any]) -> dict[str, Any]:
    """The same after so many seconds of silence."""
    return says | {
        "phase_s": min(says["phase_s"], 1.0) if says["phase_s"] < 10 else seconds,
        "stall": replace(says["stall"], seconds=seconds),
    }


@pytest.mark.parametrize("innocent", GETS_ON)
def test_who_gets_on_is_not_blamed_beside_who_is_stuck(innocent: dict[str, Any]) -> None:
    finding = only(judge(innocent, stuck("input"), waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks) == ("hang", "critical", (1,))
    assert "data.py:88 in __getitem__" in finding.summary


@pytest.mark.parametrize("innocent", GETS_ON)
def test_who_is_between_the_phases_may_wait_for_one_that_gets_on_but_not_for_ever(innocent: dict[str, Any]) -> None:
    finding = only(judge(innocent, stuck("other"), waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    finding = only(judge(*(later(70.0, says) for says in (innocent, stuck("other"), waiter(), waiter()))))
    assert (finding.kind, finding.severity, finding.ranks) == ("hang", "critical", (1,))


@pytest.mark.parametrize("seconds", [70.0, 700.0])
def test_who_goes_from_phase_to_phase_for_ever_while_others_wait_is_told_of(seconds: float) -> None:
    """It skips every batch, say; or it evaluates a model that it should not."""
    finding = only(judge(later(seconds, GETS_ON[2]), later(seconds, waiter()), later(seconds, waiter())))
    assert (finding.kind, finding.ranks) == ("hang", (0,))
    assert finding.severity == ("warning" if seconds < 600 else "critical")
    comes_again = later(seconds, waiter(phase="barrier", phase_s=3.0))
    finding = only(judge(comes_again, later(seconds, waiter()), later(seconds, waiter())))
    assert (finding.kind, finding.severity) == ("hang", "critical")
    before = {"steps": columns([], {})}
    says = [before | later(seconds, each) for each in (GETS_ON[2], waiter(), waiter())]
    assert only(judge(*says)).severity == ("info" if seconds < 300 else "critical")


def test_who_has_just_come_back_is_not_stuck_whatever_its_older_stack_and_collectives_say() -> None:
    back = waiter(flight(32, 32), phase_s=0.4, stall=stall(17.0, flight(32, 32), frames=SLEEP))
    ahead = waiter(flight(33, 32), phase_s=17.0, stall=stall(17.0, flight(33, 32)))
    assert judge(back, ahead, ahead) == []
    assert judge(back, waiter(phase_s=17.0), waiter(phase_s=17.0)) == []
    assert only(judge(back | {"phase_s": 6.5}, ahead, ahead)).ranks == (0,)


@pytest.mark.parametrize("phase", ["other", "forward"])
def test_a_rank_is_not_named_before_it_has_told_where_it_is_and_whether_it_gets_on(phase: str) -> None:
    untold = {"state": "running", "phase": phase, "phase_s": 9.9}
    soon = waiter(stall=stall(10.2))
    assert judge(untold, soon, soon) == []
    assert judge(untold, waiter(stall=None, phase_s=10.2), waiter(stall=None, phase_s=10.2)) == []
    assert only(judge(untold, waiter(stall=stall(16.0)), soon)).ranks == (0,)


@pytest.mark.parametrize("step", [-1, 120])
@pytest.mark.parametrize("phases", [("forward", "backward"), ("backward", "backward"), ("barrier", "barrier")])
def test_ranks_that_go_through_their_phases_without_a_reduction_do_not_hang(step: int, phases: tuple[str, str]) -> None:
    """Gradient accumulation for minutes, or `no_sync` for good with parameters that are averaged by hand."""
    own = {"steps": columns([], {})} if step < 0 else {}
    says = [own | {"state": "stalled", "phase": phase, "phase_s": 0.4, "stall": stall(400.0)} for phase in phases]
    finding = only(judge(*says))
    assert (finding.kind, finding.severity, finding.ranks, finding.since_step) == ("pause", "info", (), step + 1)
    assert "all 2 ranks go from phase to phase" in finding.summary
    assert "no_sync" in finding.summary
    stopped = only(judge(says[0], says[1] | {"phase_s": 30.0}))
    assert (stopped.kind, stopped.severity) == ("hang", "critical")


def test_work_after_the_last_step_is_no_hang() -> None:
    finding = only(judge(stuck("forward"), {"state": "finished"}, {"state": "finished"}))
    assert (finding.kind, finding.severity, finding.ranks) == ("pause", "info", (0,))
    assert "the others have finished" in finding.summary


def test_foreign_text_comes_in_harmless() -> None:
    evil = [StackFrame("/x/\x1b[31mdata.py", 1, "f\n" + "y" * 200, "\x07z" * 300)]
    finding = only(judge(waiter(), stuck("\x1b]0;forward") | {"stall": stall(15.0, frames=evil)}))
    assert finding.summary.isprintable()
    assert len(finding.summary) < 600


def test_a_host_that_blocks_behind_a_queued_reduction_waits() -> None:
    queued = {"phase": "other", "gpu_uuid": "GPU-a", "stall": stall(15.0, flight(33, 32, "nccl:all_reduce"))}
    finding = only(judge(waiter() | queued, waiter() | queued, stuck("input"), waiter() | queued))
    assert (finding.kind, finding.ranks, finding.evidence["waiting"]) == ("hang", (2,), 3)
    finding = only(judge(*[waiter() | queued] * 4))
    assert (finding.kind, finding.ranks) == ("hang", ())


def test_a_recorder_that_has_not_noticed_the_end_of_a_collective_is_not_believed() -> None:
    late = flight(242, 241, "gloo:all_reduce [41216]")  # Gloo: the others could not have gone on without it
    ahead = waiter(flight(246, 242, "gloo:all_reduce [41216]"))
    finding = only(judge(ahead, stuck("input", late), ahead))
    assert (finding.ranks, finding.phase, finding.evidence["waiting"]) == ((1,), "input", 2)
    assert "rank 1 has been stuck in input for 15 s, at data.py:88" in finding.summary
    assert "ranks 0, 2 wait for it" in finding.summary
    assert only(judge(ahead, stuck("input", late))).ranks == (1,)


def test_a_rank_stuck_between_the_phases_is_named_while_others_wait_for_it() -> None:
    finding = only(judge(stuck("other"), waiter(), waiter()))
    assert (finding.kind, finding.severity, finding.ranks, finding.phase) == ("hang", "critical", (0,), "other")


def test_what_a_silent_rank_said_last_does_not_stop_the_job() -> None:
    runs = {"state": "running", "phase": "forward", "phase_s": 0.1}
    assert judge(runs, waiter(), silent={1: 6.0}) == []


def test_before_the_first_step_nothing_is_called_a_pause() -> None:
    first = {"steps": columns([], {}), "step": -1, "state": "stalled", "phase": "other", "phase_s": 15.0}
    finding = only(judge(first, first))
    assert (finding.kind, finding.severity) == ("hang", "info")


def test_without_flight_recorders_the_phase_tells_who_waits_elsewhere() -> None:
    finding = only(judge(waiter(), waiter(), waiter(phase="barrier"), waiter()))
    assert finding.ranks == (2,)
    assert "rank 2 is in a collective, but ranks 0, 1, 3 are in the gradient reduction" in finding.summary
    finding = only(judge(waiter(), waiter(phase="barrier")))
    assert (finding.ranks, "disagree" in finding.summary) == ((), True)


def test_nobody_is_not_said_to_be_in_particular_before_all_have_told_where_they_stand() -> None:
    early = [waiter(flight(10, 9), stall=stall(11.0, flight(10, 9))) for _ in range(3)]
    untold = waiter(stall=None, state="running", phase_s=9.0)
    assert judge(*early, untold) == []
    assert only(judge(*early, {**early[0]})).ranks == ()
    late = [waiter(flight(10, 9), stall=stall(16.0, flight(10, 9))) for _ in range(3)]
    assert only(judge(*late, untold)).kind == "hang"
