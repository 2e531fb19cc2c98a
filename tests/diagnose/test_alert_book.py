"""The lives of alerts: what stays with one that is over, and what does not."""

from __future__ import annotations

from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Cause, Measures
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.late_policy import ALERTS

CAUSE = Cause(Measures(), (2,), "node0", certain=True, share=0.9)
LATE = Alert("straggler", "warning", Measures(), ranks=(2,), since_step=100)


def firing(book: AlertBook, key: int, alert: Alert = LATE) -> Life:
    """A life that is confirmed and described, with a cause that it mostly had."""
    lives = book.group("late ranks")
    for step in range(ALERTS.confirmations):
        lives.observe(key, step, high=True, low=False)
    (life,) = (life for life in lives if life.key == key)
    life.describe(alert)
    life.causes.cause = life.causes.recalled = CAUSE
    life.causes.explained, life.causes.lasts = 5, True
    return life


def test_every_life_has_an_id_of_its_own_and_its_alerts_carry_it() -> None:
    book = AlertBook()
    first, second = firing(book, 1), firing(book, 2)
    assert first.id != second.id
    assert [alert.id for alert in book.group("late ranks").firing] == [first.id, second.id]
    assert book.lives() == {first.id: first, second.id: second}


def test_what_is_over_keeps_the_cause_that_it_mostly_had() -> None:
    book = AlertBook()
    firing(book, 2)
    book.group("late ranks").resolve(2, 160)
    (over,) = book.resolved
    assert (over.cause, over.severity, over.cleared_at_step) == (CAUSE, "warning", 160)


def test_what_is_over_keeps_the_worst_severity_that_it_had_as_what_it_is() -> None:
    for kind, worst in (("straggler", "critical"), ("uneven_work", "info")):
        book = AlertBook()
        life = firing(book, 2, replace(LATE, severity="critical"))
        life.describe(replace(LATE, kind=kind, severity="info"))
        book.group("late ranks").resolve(2, 160)
        assert [over.severity for over in book.resolved] == [worst]


def test_a_cause_does_not_go_over_to_other_ranks_or_to_another_kind() -> None:
    for changed in (
        Alert("straggler", "info", Measures(), ranks=(), since_step=100),
        Alert("uneven_work", "info", Measures(), ranks=(2,), since_step=100),
        Alert("straggler", "warning", Measures(), ranks=(3,), since_step=100),
    ):
        book = AlertBook()
        firing(book, 2).describe(changed)
        book.group("late ranks").resolve(2, 160)
        (over,) = book.resolved
        assert over.cause is None
    book = AlertBook()
    firing(book, 2).describe(Alert("straggler", "critical", Measures(), ranks=(2,), since_step=90))
    book.group("late ranks").resolve(2, 160)
    assert book.resolved[0].cause == CAUSE


def test_what_was_never_described_leaves_nothing_behind() -> None:
    book = AlertBook()
    lives = book.group("contention")
    lives.begin(("node", "kind"))
    lives.resolve(("node", "kind"), 5)
    lives.begin(("node", "kind"))
    lives.drop(("node", "kind"))
    assert (book.resolved, lives.keys) == ([], [])


def test_resolved_advice_is_not_shown() -> None:
    book = AlertBook()
    lives = book.group("advice")
    for step in range(ALERTS.confirmations):
        lives.observe(0, step, high=True, low=False)
    for life in lives:
        life.describe(Alert("advice", "info", Measures()))
    lives.resolve(0, 9)
    assert lives.resolved
    assert book.resolved == []
