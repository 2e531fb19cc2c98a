"""The table of kinds against the sources that use it and the documents that describe it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from make_findings import FINDINGS, README, ROOT, pages

from ddpmon.diagnose.kinds import KINDS, KindName

CARRIERS = ("Alert", "Symptom", "blame")  # what takes a kind to the dashboard; the kind comes first


def emitted(source: str) -> Iterator[str]:
    """The kinds that are written out where a finding, or what becomes one, is made or changed."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        given = call.args[:1] if call.func.id in CARRIERS else []
        if call.func.id in (*CARRIERS, "replace"):
            given += [keyword.value for keyword in call.keywords if keyword.arg == "kind"]
        for value in given:
            both = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            yield from (str(one.value) for one in both if isinstance(one, ast.Constant))


def test_the_table_and_the_type_name_the_same_kinds() -> None:
    assert tuple(KINDS) == get_args(KindName)


def test_every_kind_is_emitted_and_every_emitted_kind_is_in_the_table() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "ddpmon" / "diagnose").rglob("*.py")]
    assert {kind for source in sources for kind in emitted(source)} == {*KINDS}


def test_an_emitted_kind_is_found_however_it_is_written() -> None:
    made = 'Alert("a", 1); Symptom(kind="b"); blame("c"); replace(x, kind="d" if y else "e")'
    assert [*emitted(made)] == ["a", "b", "c", "d", "e"]
    assert not [*emitted('Alert(kind=z); np.argsort(w, kind="stable"); other("f")')]


@pytest.mark.parametrize("path", [README, FINDINGS], ids=lambda path: path.name)
def test_the_tables_in_the_documents_are_those_of_the_code(path: Path) -> None:
    assert path.read_text("utf-8") == pages()[path], "run docs/make_findings.py"


def test_the_json_contract_lists_the_evidence_of_every_kind() -> None:
    _, _, evidence = (ROOT / "docs" / "json.md").read_text("utf-8").partition("### Evidence")
    rows = [line.split("|")[1] for line in evidence.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert {name for cell in rows for name in re.findall(r"`(\w+)`", cell)} == {*KINDS}


def test_the_cases_of_the_detection_bench_expect_kinds_of_the_table() -> None:
    pytest.importorskip("tomllib")  # since Python 3.11
    from detection_plan import read_cases

    cases = read_cases()
    expected = {kind for case in cases for injection in case.inject for kind in injection.expect}
    assert expected | {kind for case in cases for kind in case.natural} <= {*KINDS}
    assert expected
