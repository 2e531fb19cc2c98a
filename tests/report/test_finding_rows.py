"""Rows on findings: each kind has a name."""

from __future__ import annotations

from ddpmon.diagnose.kinds import KINDS
from ddpmon.report.finding_rows import NAMES


def test_every_kind_of_finding_has_a_name_in_lists() -> None:
    assert set(NAMES) == set(KINDS)
