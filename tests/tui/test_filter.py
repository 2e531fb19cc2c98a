"""The filter's language: what it means, what it does not understand, and what it fits."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.filter.complete import completed, completions
from ddpmon.tui.filter.filter_fields import NAMES
from ddpmon.tui.filter.fits import complaint, fitting_findings, fitting_hosts, fitting_ranks
from ddpmon.tui.filter.parse import parse
from ddpmon.tui.filter.tree import FilterError
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_host_order import RARE

SLOW = Finding(kind="slow_node", severity="warning", summary="", nodes=("node0",))
OVER = Finding(kind="straggler", severity="info", summary="", ranks=(1,), cleared_at_step=7)
JOB = Finding(kind="job_slower", severity="warning", summary="")


def run_of_8() -> Snapshot:
    """Rank 6 is late, rank 2 is lost, and rank 5 has no GPU."""
    made = snapshot(Made(ranks=8, lost=(2,), straggler=6, gpu=True))
    assert made.ranks is not None
    assert made.heat is not None
    ranks = replace(
        made.ranks,
        lateness_ms=np.array([0, 1, np.nan, -2, 9.6, 12, 40, 10], np.float64),
        loss=np.array([2.31, 2.26, 2.34, 2.35, 2.2, np.nan, 9, 1], np.float64),
        gpu=tuple(None if rank == 5 else gpu for rank, gpu in enumerate(made.ranks.gpu)),
        phase=("backward",) * 7 + ("input",),
    )
    heat = replace(made.heat, base_ms=np.full_like(made.heat.base_ms, 200.0))
    return replace(made, ranks=ranks, heat=heat, findings=(*made.findings, SLOW, OVER, JOB))


RUN = run_of_8()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", list(range(8))),
        ("   ", list(range(8))),
        ("3", [3]),
        ("3-5", [3, 4, 5]),
        ("6-", [6, 7]),
        ("1, 7", [1, 7]),
        ("1 7 3..4", [1, 3, 4, 7]),
        ("rank 3-5", [3, 4, 5]),
        ("rank=0,6..", [0, 6, 7]),
        ("rank!=0-5", [6, 7]),
        ("99999", []),
        ("late>10", [5, 6]),
        ("late > 10 ms", [5, 6]),
        ("late>=10", [5, 6, 7]),
        ("late<0", [3]),
        ("late>0.01s", [5, 6]),
        ("late>=5%", [5, 6, 7]),
        ("late > 5 %", [5, 6]),
        ("late=5..10", [4, 7]),
        ("late=5..10%", [5, 7]),
        ("late=10", [4, 7]),
        ("loss=2.3", [0, 1, 2]),
        ("LATE>10 Host=NODE1", [5, 6]),
        ("late>10 host=node1 gpu<50 not lost", []),
        ("late>10 host=node1 gpu>50 not lost", [6]),
        ("gpu>0", [0, 1, 2, 3, 4, 6, 7]),
        ("not gpu>0", [5]),
        ("late>30 or lost", [2, 6]),
        ("late>30 | state=lost", [2, 6]),
        ("(late>30 or late<0) and node0", [3]),
        ("late>30 or late<0 node0", [3, 6]),
        ("not (late>30 or node0)", [4, 5, 7]),
        ("!lost !node1", [0, 1, 3]),
        ("node1", [4, 5, 6, 7]),
        ("node1, lost", [2, 4, 5, 6, 7]),
        ("node1 lost", []),
        ("host=node", []),
        ("host=nod*0", [0, 1, 2, 3]),
        ("host~^n.*1$", [4, 5, 6, 7]),
        ("host~node(0|9) late<0", [3]),
        ("(host~node0)", [0, 1, 2, 3]),
        ("host!~0", [4, 5, 6, 7]),
        ("~1$", [4, 5, 6, 7]),
        ('host="node0"', [0, 1, 2, 3]),
        ("phase=input", [7]),
        ("straggler", [6]),
        ("slow-node", [0, 1, 2, 3]),
        ("finding=slow_node,straggler", [0, 1, 2, 3, 6]),
        ("severity=critical", [2, 6]),
        ("heard>1min", []),
        ("power<0.001kW", []),
    ],
)
def test_what_it_means(wanted: str, expected: list[int]) -> None:
    assert complaint(RUN, wanted) == ""
    assert np.flatnonzero(fitting_ranks(RUN, wanted)).tolist() == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("phase=all-reduce", [0, 1]),
        ("phase=exposed", [0, 1]),
        ("phase~^all", [0, 1]),
        ("phase!=all-reduce", [2, 3, 4, 5, 6, 7]),
        ('phase="between phases",input', [2, 7]),
        ("phase=all_reduce", [0, 1]),
        ("phase=between-phases", [2]),
        ("phase=between_phases", [2]),
        ("phase=other", [2]),
        ("phase=my-eval", [3, 4]),
        ("phase=my_eval", [4]),
    ],
)
def test_a_phase_is_called_as_the_screen_says_it_or_as_the_probe_does(wanted: str, expected: list[int]) -> None:
    """The screen says all-reduce, and only `exposed` was understood."""
    assert RUN.ranks is not None
    phases = ("exposed", "exposed", "other", "my-eval", "my_eval", "backward", "backward", "input")
    run = replace(RUN, ranks=replace(RUN.ranks, phase=phases))
    assert complaint(run, wanted) == ""
    assert np.flatnonzero(fitting_ranks(run, wanted)).tolist() == expected


def test_the_phases_that_are_offered_are_those_that_the_screen_says() -> None:
    offered = completions("phase=", RUN)
    assert {"backward", "all-reduce", "barrier", "between-phases"} < {*offered}
    assert {"exposed", "other"}.isdisjoint(offered)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("late", "late needs a comparison, such as late>10"),
        ("late>", "late> needs a value behind it"),
        ("> 10", "'>' needs a field before it"),
        ("lat>5", "there is no field 'lat': did you mean late?"),
        ("late>ten", "'ten' is not a number; late is lateness, ms of a step"),
        ("late>5km", "'km' is no unit of late"),
        ("late>1,2", "late> takes one value"),
        ("late~5", "late is a number"),
        ("host<node1", "host is a word"),
        ("host~(", "host~( is not a regular expression"),
        ("state=lots", "there is no state 'lots': it is one of running"),
        ("finding=stragler", "there is no finding 'stragler'; there are straggler"),
        ("finding=xyz", "intermittent_straggler, slow_node, uneven_work, job_slower, "),
        ("latency>5", "there is no field 'latency': did you mean late?"),
        ("memory>5", "there is no field 'memory': did you mean rss?"),
        ("utilization>5", "there is no field 'utilization': did you mean gpu?"),
        ("xyz>5", "there is no field 'xyz'; there are late, rank, host, gpu, work, wait, state, finding, loss, step, "),
        ("xyz>5", ", pid, phase, severity"),
        ("5-3", "5-3 ends before it begins"),
        ("99999999999999999999", "is not a number"),
        ("nowhere", "no host, state or finding is called 'nowhere': there are running, stalled, "),
        ("nowhere", "unknown, node0, node1, rank_lost, "),
        ("nowhere", "; a field needs a comparison, as in late>10"),
        ("lossy", "did you mean loss? A field needs a comparison"),
        ("^node000[12]$", "a regular expression follows a ~"),
        ("(late>10", "a bracket is not closed"),
        ("late>10)", "')' closes nothing"),
        ("late>10 or", "the filter ends where"),
        ("not", "the filter ends where"),
        ("late=1..5%", ""),
        ("late=1ms..5%", "mixes a share of a step with a time"),
        ("rank=" + ",".join("1" * 20), "rank has more than 16 values"),
        ("lost " * 200, "a filter has 500 letters at most"),
    ],
)
def test_what_is_not_understood_is_named(wanted: str, said: str) -> None:
    assert said in complaint(RUN, wanted)
    assert bool(said) == bool(complaint(RUN, wanted))


def test_random_text_never_raises_anything_else() -> None:
    rng = random.Random(7)
    bits = [*NAMES, *"<>=!~()&|,.\"'-%\\[]^$*+?{}", *" \t\n", "..", "ms", "or", "not", "and", "10", "5-3", "node1",
            "\x00", "\x1b[31m", "é", "٣", "²", "𝟘", "\u202e", "1e999", "late>", "host~"]  # fmt: skip
    for _ in range(3000):
        text = "".join(rng.choice(bits) for _ in range(rng.randrange(14)))
        said = complaint(RUN, text)
        assert isinstance(said, str)
        with suppress(FilterError):  # and nothing else
            parse(text)
            assert fitting_ranks(RUN, text).shape == (8,)
            fitting_findings(RUN, text)
            fitting_hosts(RUN, text)
        completions(text, RUN)


def test_deep_brackets_do_not_reach_the_end_of_the_stack() -> None:
    assert complaint(RUN, "(" * 250 + "late>1" + ")" * 244) != ""
    assert complaint(RUN, "(" * 240 + "late>1" + ")" * 240) == ""
    assert complaint(RUN, "!" * 400 + "late>1") == ""


def test_a_share_of_a_step_needs_a_step() -> None:
    assert not fitting_ranks(replace(RUN, heat=None), "late>5%").any()


@pytest.mark.parametrize("wanted", ["late>100", "lateness=361", "late>100%", "late>100 late<362ms"])
def test_a_rank_that_is_late_now_and_then_fits_by_the_lateness_that_is_shown(wanted: str) -> None:
    assert np.flatnonzero(fitting_ranks(RARE, wanted)).tolist() == [33]
    assert fitting_hosts(RARE, wanted) == {4}
    assert [each.kind for each in fitting_findings(RARE, wanted)] == ["intermittent_straggler"]
    assert not fitting_ranks(replace(RARE, findings=()), wanted).any()


@pytest.mark.parametrize("wanted", ["host=n4", "n4", "late>-1000 host=n4", "host=node4"])
def test_a_host_may_be_called_as_the_heat_map_calls_it(wanted: str) -> None:
    shown = snapshot(Made(ranks=64, per_node=8))
    assert complaint(shown, wanted) == ""
    assert np.flatnonzero(fitting_ranks(shown, wanted)).tolist() == list(range(32, 40))
    assert "'n9'" in complaint(shown, "n9")


def test_a_finding_that_is_over_is_found_by_what_the_screen_calls_it() -> None:
    """`lost` found no finding of ranks that had come back, though the list said `lost`."""
    gone = next(each for each in RUN.findings if each.kind == "rank_lost")
    back = replace(RUN, findings=(replace(gone, ranks=(0,), cleared_at_step=900),))
    assert [each.kind for each in fitting_findings(back, "lost")] == ["rank_lost"]
    assert fitting_findings(back, "failed") == ()


def test_hosts_and_findings_follow_the_same_filter() -> None:
    kinds = {wanted: [each.kind for each in fitting_findings(RUN, wanted)] for wanted in ("", "late>30", "node0", "6")}
    assert "job_slower" in kinds[""]
    assert kinds["late>30"] == kinds["6"] == ["straggler", "job_slower"], "what concerns the run concerns every rank"
    assert set(kinds["node0"]) == {"rank_lost", "slow_node", "straggler", "job_slower"}, "a straggler is over: rank 1"
    assert fitting_findings(RUN, "late>999") == (), "as no rank fits"
    assert [each.kind for each in fitting_findings(RUN, "straggler 6")] == ["straggler"]
    assert [each.kind for each in fitting_findings(RUN, "severity=warning")] == ["slow_node", "job_slower"]
    assert fitting_hosts(RUN, "late>30") == {1}
    assert fitting_hosts(RUN, "not late>30") == {0, 1}
    assert fitting_hosts(RUN, "") == {0, 1}


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        ("uneven_work not 4", ["uneven_work"]),
        ("not 4", ["uneven_work", "slow_node", "job_slower"]),
        ("not 4-5", ["slow_node", "job_slower"]),
        ("node0 not 0", ["slow_node", "job_slower"]),
        ("not node0", ["uneven_work", "job_slower"]),
        ("not (4 or slow_node)", ["uneven_work", "job_slower"]),
        ("not uneven_work", ["slow_node", "job_slower"]),
    ],
)
def test_a_finding_fits_with_any_rank_that_fits_also_behind_a_not(wanted: str, kinds: list[str]) -> None:
    two = Finding(kind="uneven_work", severity="warning", summary="", ranks=(4, 5), nodes=("node1",))
    shown = replace(RUN, findings=(two, SLOW, JOB))
    assert [each.kind for each in fitting_findings(shown, wanted)] == kinds


@pytest.mark.parametrize("wanted", ["restarted", "finding=restarted_alone", "finding~alone$"])
def test_ranks_that_restarted_alone_are_found_by_what_the_screen_says_of_them(wanted: str) -> None:
    alone = Finding("monitor_degraded", "info", "", (3, 4), evidence={"restarted_alone": 2})
    holes = Finding("monitor_degraded", "info", "", (1,), evidence={"not_reporting": 1})
    shown = replace(RUN, findings=(holes, alone))
    assert complaint(shown, wanted) == ""
    assert np.flatnonzero(fitting_ranks(shown, wanted)).tolist() == [3, 4]
    assert fitting_findings(shown, wanted) == (alone,)
    assert completions("finding=re", shown) == ["restarted_alone"]
    assert completions("restar", shown) == ["restarted"]


def test_before_the_first_ranks_everything_fits() -> None:
    empty = replace(RUN, ranks=None, findings=())
    assert fitting_ranks(empty, "late>1").tolist() == []
    assert fitting_findings(empty, "late>1") == ()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lat", ["late"]),
        ("late>10 lo", ["loss", "lost"]),
        ("late>1", []),
        ("not nod", ["node0", "node1"]),
        ("late>10 st", ["steptime", "step", "state=", "stalled"]),
        ("host=", ["node0", "node1"]),
        ("host=node0,node", ["node0", "node1"]),
        ("(state=fi", ["finished"]),
        ("state = fi", ["finished"]),
        ("severity=", ["info", "warning", "critical"]),
        ("late", []),
    ],
)
def test_completion(typed: str, offered: list[str]) -> None:
    assert completions(typed, RUN) == offered
    if offered:
        assert completed(typed, offered[0]).endswith(offered[0])


@pytest.mark.parametrize("typed", ["", "late>10 ", "(", "not ", "late>10 or "])
def test_where_a_term_may_begin_the_fields_are_offered(typed: str) -> None:
    assert completions(typed, RUN)[:2] == ["rank", "late"]
    assert {"host=", "node1"} <= {*completions(typed, RUN)}


@pytest.mark.parametrize("typed", ["late>", "late> ", "late=1,"])
def test_where_a_value_is_wanted_no_field_is_offered(typed: str) -> None:
    assert completions(typed, RUN) == []


def test_a_completion_takes_the_place_of_what_was_begun() -> None:
    assert completed("late>10 host=no", "node0") == "late>10 host=node0"
