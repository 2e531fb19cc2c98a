"""Steady stragglers: ranks, and whole hosts, that every step waits for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.blame import blame
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.late_policy import STRAGGLER, SUSTAINED
from ddpmon.diagnose.measure import LateMeasures, Others, Whom, cost_pct, cost_window, hidden_ms
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.sustained import SteadyRule, onset
from ddpmon.diagnose.tick import Tick
from ddpmon.run.medians import middle, middles
from ddpmon.run.model import Run
from ddpmon.run.rings import I64


class Stragglers:
    """Follows every rank and every host from tick to tick."""

    def __init__(self, book: AlertBook) -> None:
        self._ranks, self._hosts = SteadyRule(book.group("late ranks")), SteadyRule(book.group("late hosts"))
        self._intermittent = book.group("intermittent")
        self._come_and_go: set[int] = set()
        self._host_keys = book.host_keys

    @property
    def suspects(self) -> set[int]:
        """The ranks whose lateness is confirmed, apart from those that come and go."""
        return {life.key for life in self._ranks.lives if life.key not in self._come_and_go}

    @property
    def host_names(self) -> dict[int, str]:
        """Key of a host in its group of lives -> the host's name."""
        return {key: host for (host, _), key in self._host_keys.items()}

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in since the last call.

        Intermittent ranks are named as such: where their lateness was over once before, each further phase of it is
        not one more alert, unless it lasts.
        """
        run, matrix, intermittent = tick.run, tick.steps, {*self._intermittent.keys}
        steps = matrix.steps
        if len(matrix.ranks) < 2 or len(steps) < SUSTAINED.window_steps:
            return []
        self._ranks.update(steps, matrix.ratios, matrix.ranks, matrix.job("noise"))
        by_rank = {life.key: life for life in self._ranks.lives}
        over_before = {rank for alert in self._ranks.lives.resolved for rank in alert.ranks}
        self._come_and_go = {key for key in intermittent & over_before & by_rank.keys() if _is_young(by_rank[key])}
        late_hosts = self._late_hosts(matrix)
        suspects = np.flatnonzero(np.isin(matrix.ranks, [*self.suspects]))
        of_hosts = np.flatnonzero(np.isin(matrix.host_of, [place for place, _ in late_hosts]))
        suspects = np.union1d(suspects, of_hosts)
        normal = Others(run, steps[-SUSTAINED.window_steps :], _peers(matrix, suspects), own=matrix.own)
        for place, life in late_hosts:
            rows = np.flatnonzero(matrix.host_of == place)
            self._describe(run, matrix, life, matrix.host_ratios[place], rows, suspects, normal)
        spared = set(matrix.ranks[of_hosts].tolist())
        alone = [life for key, life in by_rank.items() if key not in spared | self._come_and_go]
        for life in alone:
            row = np.flatnonzero(matrix.ranks == life.key)
            self._describe(run, matrix, life, matrix.ratios(slice(None), row)[0], row, suspects, normal)
        lives = [*(life for _, life in late_hosts), *alone]
        return [life.alert for life in lives if life.alert is not None]

    def _late_hosts(self, matrix: StepMatrix) -> list[tuple[int, Life]]:
        """Confirmed hosts of two ranks and more, each of which is late against the other hosts' ranks, by place."""
        if len(matrix.hosts) < 2:
            return []
        keys = [self._host_keys.setdefault(key, len(self._host_keys)) for key in matrix.host_keys]
        ratios = matrix.host_ratios
        self._hosts.update(matrix.steps, lambda part: ratios[:, part], np.array(keys, np.int64), matrix.job("noise"))
        for life in self._hosts.lives:  # one of its ranks may go on being late alone, and the host's median with it
            if life.alert is not None and life.high and not _all_late(matrix, keys.index(life.key), still=True):
                self._hosts.lives.resolve(life.key, int(matrix.steps[-1 - SUSTAINED.window_steps // 2]))
        lives = [(keys.index(life.key), life) for life in self._hosts.lives]
        return [
            (place, life) for place, life in lives if life.alert is not None or _all_late(matrix, place, still=False)
        ]

    def _describe(
        self,
        run: Run,
        matrix: StepMatrix,
        life: Life,
        ratios: NDArray[np.float32],
        rows: I64,
        suspects: I64,
        normal: Others,
    ) -> None:
        """Write the alert of a confirmed life; while it fades, the last clear word on it stands.

        One that came and went between two calls is described as it was when it was confirmed.
        """
        steps = matrix.steps
        if life.alert is not None and not life.high:
            return
        if not life.high:
            steps = steps[: int(np.searchsorted(steps, life.confirmed_at or 0, side="right"))]
            normal = Others(run, steps[-SUSTAINED.window_steps :], _peers(matrix, suspects), own=matrix.own)
        window = slice(len(steps) - SUSTAINED.window_steps, len(steps))
        late = normal.compare(run, _whom(matrix, rows))
        if late.excess_ms < STRAGGLER.least_share * middle(matrix.job("duration")[window]):
            return
        late = replace(late, ratio=middle(ratios[window]), latest=_latest(matrix, rows, normal, late))
        since = _since(steps, ratios, life)
        late = _with_cost(matrix, late, rows, suspects, since, cost_window(steps, since[0]))
        life.describe(_alert(life, since, replace(late, window_steps=SUSTAINED.window_steps)))


def _since(steps: I64, ratios: NDArray[np.float32], life: Life) -> tuple[int, bool]:
    """The onset, and whether it is only a bound; that of an old life stands."""
    open_until = (life.confirmed_at or 0) + STRAGGLER.onset_windows * SUSTAINED.window_steps
    if life.alert is None or open_until > int(steps[-1]):
        return _onset(steps, ratios, life.confirmed_at or 0)
    return life.alert.since_step or 0, life.alert.since_is_bound


def _onset(steps: I64, ratios: NDArray[np.float32], confirmed_at: int) -> tuple[int, bool]:
    """Since when; one that has become worse since it was confirmed was there before, at least from the first step."""
    since, bound = onset(steps, ratios[: len(steps)])
    if since <= confirmed_at:
        return since, bound
    count = int(np.searchsorted(steps, confirmed_at, side="right"))
    return onset(steps[:count], ratios[:count]) if count else (int(steps[0]), True)


def _whom(matrix: StepMatrix, rows: I64) -> Whom:
    """One rank, or all ranks of a host."""
    host = matrix.hosts[matrix.host_of[rows[0]]]
    return Whom(_ranks(matrix, rows), host, len(rows) if len(rows) > 1 else None)


def _with_cost(
    matrix: StepMatrix, late: LateMeasures, rows: I64, suspects: I64, since: tuple[int, bool], at: I64
) -> LateMeasures:
    """What it costs at the places `at` on record: with what the transfer hides, and with who else is late."""
    hidden = 0.0 if since[1] else hidden_ms(matrix, since[0], at, late.excess_ms)
    lost = 1 - hidden / late.excess_ms
    cost = lost * cost_pct(matrix, rows, suspects, at)
    most = None if matrix.own is None else lost * cost_pct(matrix, rows, suspects, at, at_most=True)
    late = replace(late, hidden_ms=hidden if hidden > 0 else None, cost_pct=cost, cost_most_pct=most)
    beside = np.array(sorted({*suspects.tolist()} - {*rows.tolist()}), np.int64)
    if not 0 < beside.size <= STRAGGLER.beside_ranks:
        return late
    alone = lost * cost_pct(matrix, rows, rows, at)
    if alone >= STRAGGLER.alone_share * cost:
        return late
    return replace(late, alone_pct=alone, beside=_ranks(matrix, beside))


def _latest(matrix: StepMatrix, rows: I64, normal: Others, late: LateMeasures) -> tuple[int, float] | None:
    """Of several ranks the one that stands out, and by how many ms it is late."""
    window = matrix.work[rows][:, np.searchsorted(matrix.steps, normal.steps)]
    excess = middles(window - normal.normal["work"])
    by = float(excess.max())
    return (int(matrix.ranks[rows[excess.argmax()]]), by) if by > STRAGGLER.stands_out_ratio * late.excess_ms else None


def _ranks(matrix: StepMatrix, rows: I64) -> tuple[int, ...]:
    return tuple(matrix.ranks[rows].tolist())


def _is_young(life: Life) -> bool:
    """Whether a rank known to come and go has not been late for so long without a break that it is late for good."""
    return life.alert is None and life.high < STRAGGLER.for_good_windows


def _all_late(matrix: StepMatrix, host: int, *, still: bool) -> bool:
    """Whether each of the host's ranks (two at least) is late by a share of the work of the other hosts' ranks.

    Most of the ranks must also be late by a share of what the host is late by. Both shares are lower for a host that is
    `still` named as late.
    """
    least = STRAGGLER.host_still_late_share if still else STRAGGLER.host_late_share
    share = STRAGGLER.host_still_alike_share if still else STRAGGLER.host_alike_share
    own = matrix.host_of == host
    window = matrix.work[:, -SUSTAINED.window_steps :]
    others = middle(window[~own])
    excess = np.sort(middles(window[own]) - others)
    excepted = int((1 - STRAGGLER.host_share) * len(excess))
    enough = len(excess) >= 2 and excess[0] > least * others
    return bool(enough and excess[excepted] > share * middle(excess))


def _peers(matrix: StepMatrix, suspects: I64) -> I64:
    """Who is normal: those whom nobody suspects, or all if there is nobody else."""
    left: I64 = np.delete(matrix.ranks, suspects)
    return left if left.size else matrix.ranks


def _alert(life: Life, since: tuple[int, bool], late: LateMeasures) -> Alert:
    kind: KindName = "straggler" if late.whom.of_host is None else "slow_node"
    found = blame(kind, life, (late.whom.host,), since, late)
    return replace(found, kind="uneven_work", severity="info") if _is_by_design(late) else found


def _is_by_design(late: LateMeasures) -> bool:
    """Whether a rank is given more samples than the others: then it is not slow, and the uneven work is wanted."""
    more = late.samples_ratio - 1
    return more >= max(STRAGGLER.given_more_share, STRAGGLER.by_design_share * ((late.ratio or 0.0) - 1))
