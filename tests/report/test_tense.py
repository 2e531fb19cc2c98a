"""Every sentence in both tenses: `tenses.txt` has what is said while a finding lasts, and once it is over.

`python -m tests.report.test_tense` writes that file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.cause import FigureMeasures
from ddpmon.diagnose.contention.cpu import CpuPinnedMeasures
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.pause import GraphMeasures
from ddpmon.report import tense as tense_module
from ddpmon.report.sentences import SENTENCES, tell
from ddpmon.report.tense import during, tense
from ddpmon.report.wording import does
from tests.report import (
    test_advice_sentences,
    test_cpu_sentences,
    test_failure_sentences,
    test_gpu_sentences,
    test_hang_sentences,
    test_host_sentences,
    test_job_sentences,
    test_late_sentences,
    test_pause_sentences,
)
from tests.report.contention_alerts import because, contention

TENSES = Path(__file__).with_name("tenses.txt")
TABLES = (
    test_advice_sentences, test_cpu_sentences, test_failure_sentences, test_gpu_sentences, test_hang_sentences,
    test_host_sentences, test_job_sentences, test_pause_sentences,
)  # fmt: skip
ALERTS: list[Alert] = [row[1] for table in TABLES for row in table.ROWS]
ALERTS += [row[0] for row in test_late_sentences.SENTENCES.values()]
ALERTS += [  # forms that the tables leave out
    test_failure_sentences.lost(3, others_go_on=True),
    test_failure_sentences.lost(2, 3, others_go_on=True),
    contention("cpu_pinned", CpuPinnedMeasures("3", 1, 8)),
    Alert("hang", "warning", GraphMeasures(700.0, (0,), are_all=False, is_replaying=False, replay_s=20.0), (0,)),
]
FIGURES = [
    Alert("straggler", "info", FigureMeasures(figure, 32.0), (2,), ("node1",)) for figure in test_late_sentences.CAUSES
]


def over(alert: Alert) -> Alert:
    """The same once it is over."""
    return replace(alert, since_step=alert.since_step or 1100, cleared_at_step=1300)


def told() -> Iterator[str]:
    """All sentences in both tenses, and below those of contention what follows "because of" there."""
    for alert in [*ALERTS, *FIGURES]:
        yield alert.kind
        for when, each in (("now ", alert), ("then", over(alert))):
            yield f"  {when}  {tell(each).summary}"
            yield from (f"        because of {because(each)}" for _ in range(bool(because(each))))


def test_what_lasts_is_told_in_the_present_and_what_is_over_in_the_past() -> None:
    assert [*told()] == TENSES.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("alert", [alert for alert in ALERTS if not tell(alert).tells_moment], ids=str)
def test_a_sentence_that_names_no_moment_of_its_own_says_when_it_was(alert: Alert) -> None:
    then = tell(over(alert)).summary
    assert then != tell(alert).summary
    assert during(over(alert)) in then or "to 1,300" in then


def written(node: ast.expr) -> Iterator[str]:
    """The verb as it is written, or both of those that one is chosen of."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*written(node.body), *written(node.orelse))


def verbs() -> Iterator[tuple[str, str]]:
    """Each verb that a sentence has in two tenses, with the function that puts it into the past."""
    for file in Path(tense_module.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            name, place = node.func.id, {"tense": 1, "in_tense": 0, "does": 1}.get(node.func.id, -1)
            if place >= 0 and (name != "does" or len(node.args) == 3):
                yield from ((name, verb) for verb in written(node.args[place]))


@pytest.mark.parametrize(("by", "verb"), sorted({*verbs()}))
def test_every_verb_of_a_sentence_has_a_past(by: str, verb: str) -> None:
    done = over(ALERTS[0])
    for ranks in ((1,), (1, 2)) if by == "does" else ():
        assert does(ranks, verb, done) != does(ranks, verb)
    assert by == "does" or tense(done, verb) != verb


def test_every_class_of_measures_is_told_in_both_tenses() -> None:
    assert {type(alert.measures) for alert in [*ALERTS, *FIGURES]} == {*SENTENCES}


@pytest.mark.parametrize("alert", ALERTS, ids=str)
def test_what_is_over_asks_for_nothing_unless_it_tells_what_happened(alert: Alert) -> None:
    asked = tell(alert).advice if KINDS[alert.kind].happens else ""
    assert tell(over(alert)).advice == asked


if __name__ == "__main__":
    TENSES.write_text("".join(f"{line}\n" for line in told()), encoding="utf-8")
