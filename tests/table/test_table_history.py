"""The lifetimes of findings over a table, whatever verdict they come from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.kinds import KindName
from ddpmon.table.history import History
from tests.table.tables import judged, rows_of, slow, text_of


class Buckets(Measures, frozen=True):
    """Of one rule of thumb."""


class Workers(Measures, frozen=True):
    """Of another."""


LATE = Alert("straggler", "info", Measures(), ranks=(2,), since_step=10, cost_pct=3.0)
ADVICE = Alert("advice", "info", measures=Buckets())


def heard(*ticks: Sequence[Alert]) -> tuple[Alert, ...]:
    """What is left of ticks of 20 steps."""
    history = History()
    for tick, said in enumerate(ticks, 1):
        history.hear(said, 20 * tick)
    return history.alerts()


def over(finding: Alert, step: int) -> Alert:
    return replace(finding, severity="info", cleared_at_step=step)


def test_one_that_is_over_has_the_severity_of_its_worst() -> None:
    worse = replace(LATE, severity="critical")
    (finding,) = heard([LATE], [worse], [LATE], [over(LATE, 77)], [over(LATE, 77)])
    assert finding == replace(LATE, severity="critical", cleared_at_step=77)


def test_one_that_lasts_has_the_severity_that_it_has_now() -> None:
    assert heard([replace(LATE, severity="critical")], [LATE]) == (LATE,)


def test_an_onset_or_a_rank_more_does_not_make_another_trouble() -> None:
    grown = replace(LATE, since_step=13, ranks=(2, 3), phase="input")
    assert heard([LATE], [grown]) == (grown,)


def test_one_that_vanishes_without_a_word_is_over_and_goes_on_if_it_comes_back() -> None:
    assert heard([LATE], []) == (replace(LATE, cleared_at_step=40),)
    assert heard([LATE], [], [LATE]) == (LATE,)
    later = replace(LATE, since_step=90)
    assert heard([LATE], [], [], [], [], [later]) == (later, replace(LATE, cleared_at_step=40))


def test_several_of_a_kind_are_kept_apart() -> None:
    other = replace(ADVICE, measures=Workers())
    for ticks in ([ADVICE, other], [other, ADVICE]), ([ADVICE, other], [other]):
        assert [type(one.measures) for one in heard(*ticks)] in ([Buckets, Workers], [Workers, Buckets])
    ended = heard([ADVICE, other], [over(other, 33), over(ADVICE, 34)])
    assert ended == (replace(ADVICE, cleared_at_step=34), replace(other, cleared_at_step=33))
    third = replace(LATE, ranks=(3,))
    found = heard([LATE, third], [third, over(LATE, 33)])
    assert found == (third, replace(LATE, cleared_at_step=33))


def test_one_that_was_raised_and_cleared_between_two_words_is_kept() -> None:
    assert heard([], [over(LATE, 31)], [over(LATE, 31)]) == (over(LATE, 31),)


@pytest.mark.parametrize("kind", ["rank_lost", "rank_failed", "hang", "uneven_inputs", "monitor_degraded"])
def test_what_a_table_cannot_show_is_not_said(kind: KindName) -> None:
    assert heard([replace(LATE, kind=kind)]) == ()


def test_a_late_rank_whose_rows_break_off_for_a_while_is_one_trouble() -> None:
    heading, *rows = rows_of(slow(steps=300), ("duration", "exposed"))
    cut = [row for row in rows if not (row.split(",")[1] == "2" and 140 <= int(row.split(",")[0]) < 200)]
    (finding,) = judged(text_of([heading, *cut])).findings
    assert (finding.ranks, finding.since_step, finding.cleared_at_step) == ((2,), 60, None)
