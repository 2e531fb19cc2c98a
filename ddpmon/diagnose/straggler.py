"""Steady stragglers: ranks, and whole hosts, that every step waits for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.blame import Named, blame, with_command
from ddpmon.diagnose.cases import Case
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.measure import Numbers, Others, cost_pct, cost_window, hidden_ms
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.sustained import WINDOW, SteadyRule, onset
from ddpmon.diagnose.wording import does
from ddpmon.format import ms, pct
from ddpmon.run.medians import middle
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

_ONSET_STEPS = 2 * WINDOW  # an onset may still be corrected while this young
_FOR_GOOD = 50  # windows in a row
_ALL_LATE, _STILL_ALL_LATE = (0.05, 0.5), (0.025, 0.25)
_BY_DESIGN = 0.75
_MORE = 0.05
_STANDS_OUT, _MOST_OF_IT, _FEW = 1.5, 0.8, 16
_LISTED = 6  # ranks that are late too, by number; of more, how many they are
_LEAST_SHARE = 0.02  # of a step: less is exit skew and noise (docs/detection.md "Facts about synchronous steps")


class Stragglers:
    """Follows every rank and every host from tick to tick."""

    def __init__(self) -> None:
        self._ranks = SteadyRule()
        self._hosts = SteadyRule()
        self._come_and_go: set[int] = set()
        self._host_keys: dict[tuple[str, int], int] = {}  # a host's place changes as ranks come and go

    @property
    def cleared(self) -> list[Finding]:
        """The last findings that are over."""
        return [*self._ranks.cases.cleared, *self._hosts.cases.cleared]

    @property
    def suspects(self) -> set[int]:
        """The ranks whose lateness is confirmed, apart from those that come and go."""
        return {case.key for case in self._ranks.cases if case.key not in self._come_and_go}

    def update(self, run: Run, matrix: StepMatrix, intermittent: set[int]) -> list[Finding]:
        """Judge the steps that have come in since the last call.

        `intermittent` ranks are named as such: where their lateness was over once before, each further phase of it is
        not one more finding, unless it lasts.
        """
        steps = matrix.steps
        if len(matrix.who) < 2 or len(steps) < WINDOW:
            return []
        self._ranks.update(steps, matrix.ratios, matrix.who)
        by_rank = {case.key: case for case in self._ranks.cases}
        over_before = {rank for finding in self._ranks.cases.cleared for rank in finding.ranks}
        self._come_and_go = {key for key in intermittent & over_before & by_rank.keys() if _is_young(by_rank[key])}
        late_hosts = self._late_hosts(matrix)
        suspects = np.flatnonzero(np.isin(matrix.who, [*self.suspects]))
        of_hosts = np.flatnonzero(np.isin(matrix.host_of, [place for place, _ in late_hosts]))
        suspects = np.union1d(suspects, of_hosts)
        normal = Others(run, steps[-WINDOW:], _peers(matrix, suspects), own=matrix.own)
        for place, case in late_hosts:
            rows = np.flatnonzero(matrix.host_of == place)
            self._describe(run, matrix, case, matrix.host_ratios[place], rows, suspects, normal)
        spared = set(matrix.who[of_hosts].tolist())
        alone = [case for key, case in by_rank.items() if key not in spared | self._come_and_go]
        for case in alone:
            row = np.flatnonzero(matrix.who == case.key)
            self._describe(run, matrix, case, matrix.ratios[row[0]], row, suspects, normal)
        cases = [*(case for _, case in late_hosts), *alone]
        return [case.finding for case in cases if case.finding is not None]

    def _late_hosts(self, matrix: StepMatrix) -> list[tuple[int, Case]]:
        """Confirmed hosts of two ranks and more, each of which is late against the other hosts' ranks, by place."""
        if len(matrix.hosts) < 2:
            return []
        keys = [self._host_keys.setdefault(key, len(self._host_keys)) for key in matrix.host_keys]
        self._hosts.update(matrix.steps, matrix.host_ratios, np.array(keys, np.int64))
        for case in self._hosts.cases:  # one of its ranks may go on being late alone, and the host's median with it
            if case.finding is not None and case.high and not _all_late(matrix, keys.index(case.key), *_STILL_ALL_LATE):
                self._hosts.cases.clear(case.key, int(matrix.steps[-1 - WINDOW // 2]))
        cases = [(keys.index(case.key), case) for case in self._hosts.cases]
        return [
            (place, case) for place, case in cases if case.finding is not None or _all_late(matrix, place, *_ALL_LATE)
        ]

    def _describe(
        self,
        run: Run,
        matrix: StepMatrix,
        case: Case,
        ratios: NDArray[np.float32],
        rows: I64,
        suspects: I64,
        normal: Others,
    ) -> None:
        """Write the finding of a confirmed case; while it fades, the last clear word on it stands.

        One that came and went between two calls is described as it was when it was confirmed.
        """
        steps = matrix.steps
        if case.finding is not None and not case.high:
            return
        if not case.high:
            steps = steps[: int(np.searchsorted(steps, case.confirmed_at or 0, side="right"))]
            normal = Others(run, steps[-WINDOW:], _peers(matrix, suspects), own=matrix.own)
        window = slice(len(steps) - WINDOW, len(steps))
        if case.finding is None or (case.confirmed_at or 0) + _ONSET_STEPS > int(steps[-1]):
            since, bound = _onset(steps, ratios, case.confirmed_at or 0)
        else:
            since, bound = case.finding.since_step or 0, case.finding.since_is_bound
        numbers = normal.compare(run, matrix.who[rows])
        if numbers["excess_ms"] < _LEAST_SHARE * middle(matrix.job("duration")[window]):
            return
        numbers["ratio"] = middle(ratios[window])
        at = cost_window(steps, since)
        hidden = 0.0 if bound else hidden_ms(matrix, since, at, numbers["excess_ms"])
        numbers |= {"hidden_ms": hidden} if hidden > 0 else {}
        lost = 1 - hidden / numbers["excess_ms"]
        numbers["cost_pct"] = lost * cost_pct(matrix, rows, suspects, at)
        if matrix.own is not None:
            numbers["cost_most_pct"] = lost * cost_pct(matrix, rows, suspects, at, at_most=True)
        who = (matrix.who[rows], matrix.hosts[matrix.host_of[rows[0]]])
        found = _finding(case, who, (since, bound), numbers)
        worst = _worst(matrix, rows, normal)
        beside = np.setdiff1d(suspects, rows)
        few = 0 < beside.size <= _FEW  # more would tell nothing, and each costs a look at all ranks
        alone = lost * cost_pct(matrix, rows, rows, at) if few else numbers["cost_pct"]
        blamed = found.cost_pct is not None and found.kind != "uneven_work"
        aside = _aside(matrix, numbers, worst, beside, alone) if blamed else ""
        case.finding = with_command(replace(found, summary=found.summary + aside), run)


def _onset(steps: I64, ratios: NDArray[np.float32], confirmed_at: int) -> tuple[int, bool]:
    """Since when; one that has become worse since it was confirmed was there before."""
    since, bound = onset(steps, ratios[: len(steps)])
    if since <= confirmed_at:
        return since, bound
    count = int(np.searchsorted(steps, confirmed_at, side="right"))
    return onset(steps[:count], ratios[:count])


def _worst(matrix: StepMatrix, rows: I64, normal: Others) -> tuple[int, float]:
    """Of several rows that of the rank that is latest, and by how many ms."""
    window = matrix.work[rows][:, np.searchsorted(matrix.steps, normal.steps)]
    excess = np.median(window - normal.normal["work"], axis=1)
    return int(rows[excess.argmax()]), float(excess.max())


def _aside(matrix: StepMatrix, numbers: Numbers, worst: tuple[int, float], beside: I64, alone: float) -> str:
    """What else a reader must know of the figures: who of a host stands out, and who else is late."""
    row, by = worst
    stands_out = by > _STANDS_OUT * numbers["excess_ms"]
    said = f" Rank {matrix.who[row]} is the latest of them, by {ms(by)}." if stands_out else ""
    if alone >= _MOST_OF_IT * numbers["cost_pct"]:
        return said
    saves = f"{pct(alone)} %" if alone > 0 else "nothing yet"
    others = does(matrix.who[beside].tolist(), "are") if beside.size <= _LISTED else f"{beside.size} other ranks are"
    return f"{said} Fixing it alone saves {saves}; {others} late too."


def _is_young(case: Case) -> bool:
    """Whether a rank known to come and go has not been late for so long without a break that it is late for good."""
    return case.finding is None and case.high < _FOR_GOOD


def _all_late(matrix: StepMatrix, host: int, least: float, share: float) -> bool:
    """Whether each of the host's ranks (two at least) is late by `least` of the work of the other hosts' ranks.

    And, one in eight excepted, by `share` of what the host is late by: where one rank is late by far more than another,
    it is not the host.
    """
    own = matrix.host_of == host
    window = matrix.work[:, -WINDOW:]
    others = float(np.median(window[~own]))
    excess = np.sort(np.median(window[own], axis=1) - others)
    count = len(excess)
    return bool(count >= 2 and excess[0] > least * others and excess[count // 8] > share * float(np.median(excess)))


def _peers(matrix: StepMatrix, suspects: I64) -> I64:
    """Who is normal: those whom nobody suspects, or all if there is nobody else."""
    left: I64 = np.delete(matrix.who, suspects)
    return left if left.size else matrix.who


def _finding(case: Case, who: tuple[I64, str], since: tuple[int, bool], numbers: Numbers) -> Finding:
    ranks, host = who
    evidence = {**numbers, "window_steps": WINDOW}
    if len(ranks) > 1:
        named = Named("slow_node", f"all {len(ranks)} ranks of {host}", "work", "are late", "them", "this host")
    else:
        named = Named("straggler", f"rank {ranks[0]} ({host})", "works", "is late", "it")
    found = blame(named, case, (tuple(ranks.tolist()), host), since, "a step", evidence)
    return _by_design(found, numbers) or found


def _by_design(found: Finding, numbers: Numbers) -> Finding | None:
    """A rank that is given more samples than the others is not slow: that is uneven work, known and wanted."""
    more = numbers["samples_ratio"] - 1
    if not more >= max(_MORE, _BY_DESIGN * (numbers["ratio"] - 1)):
        return None
    return replace(
        found,
        kind="uneven_work",
        severity="info",
        cause=None,
        summary=f"{found.summary} It gets {numbers['samples_ratio']:.2f} times the samples of the others.",
        advice="give every rank the same batch size, or one in proportion to its speed",
    )
