"""Alerts of contention made by hand, for the tables of their sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.kinds import KindName
from ddpmon.report.sentences import SENTENCES, tell
from ddpmon.shell_command import advice_text

Row = tuple[str, Alert, str, str, str]  # its name, the alert, and its summary, advice and "because of"


def contention(kind: KindName, measures: Measures, ranks: tuple[int, ...] = (2,), host: str = "node0") -> Alert:
    """A contention on one host."""
    return Alert(kind, "info", ranks=ranks, nodes=(host,), measures=measures)


def because(alert: Alert) -> str:
    """What follows "because of" where this contention is the cause of a lateness."""
    return SENTENCES[type(alert.measures)](alert.measures, alert).because


def assert_said(alert: Alert, summary: str, advice: str, noun: str) -> None:
    """It is said in these words, alone and as a cause."""
    told = tell(alert)
    assert (told.summary, advice_text(told.advice), told.cause) == (summary, advice, None)
    assert because(alert) == noun


def assert_all_in_tables(
    rows: Sequence[Row], evidence: Sequence[tuple[Measures, Any]], classes: Collection[type[Measures]]
) -> None:
    """Every class of measures has a sentence and evidence in the tables; measures that are alike are equal."""
    assert {type(row[1].measures) for row in rows} == {type(measures) for measures, _ in evidence} == {*classes}
    assert all(hash(row[1].measures) == hash(replace(row[1].measures)) for row in rows)
