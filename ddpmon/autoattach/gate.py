"""Lets all ranks of a training that runs already be watched from the same step on.

Steps have no numbers that a rank could look up, and the ranks are asked one after another. What all of them count
alike are the collectives that they have begun: the last rank that is asked names such a number some seconds ahead, in
the training's own store, and each rank begins with its first forward behind it. A thread asks the store, and the
training thread reads the numbers in its forwards: nothing that trains waits for another rank.

A round is one request to each rank. It ends with its start, or without one where a rank has not been asked in time:
then no rank is watched, and a later request begins the next round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

from ddpmon.autoattach.models import built
from ddpmon.probe.hooks import Pickled, without_effect
from ddpmon.probe.registration import say
from ddpmon.probe.run_life import launch

LIMIT_S = 300.0  # to ask the ranks of all hosts by hand
_AHEAD_READINGS = 15  # of the store, by each rank, between the naming of the start and the start itself
_AHEAD_FORWARDS = 8
_EVERY_S = 0.2  # between two readings of the store
_READINGS_PER_S = 2000.0  # by all ranks together: it is the training's own store
_NAMED = 8  # of the ranks that have not been asked, in a sentence
_waiting: list[Gate] = []


def is_waiting() -> bool:
    """Whether this rank has been asked, and has not begun."""
    return bool(_waiting)


class Gate:
    """Lets this rank begin behind a number of collectives that all ranks have agreed on.

    Args:
        models: what is to be watched then.
        group: its ranks begin together.
        counted: the groups whose collectives are counted.
    """

    def __init__(self, models: Sequence[torch.nn.Module], group: Any, counted: Sequence[Any]) -> None:
        self._start: int | None = None  # None before it is known
        self._is_over = False  # the round has ended without a start; the training thread takes the hooks out
        self._ranks, self._own = dist.get_process_group_ranks(group), dist.get_rank(group)
        self._counted = counted
        self._every_s = max(_EVERY_S, len(self._ranks) / _READINGS_PER_S)
        self._models = [ref(model) for model in models]  # the script may drop them before all ranks were asked
        self._seen: list[tuple[float, int]] = []  # the first and the last forward: when, and how many collectives
        self._forwards = 0
        self._hooks = [model.register_forward_pre_hook(self._before_forward, prepend=True) for model in models]

    def open_later(self) -> None:
        """Agree with the other ranks, on a thread of its own."""
        _waiting.append(self)
        threading.Thread(target=self._wait, name="ddpmon-inject", daemon=True).start()

    def _before_forward(self, _model: torch.nn.Module, _given: Any) -> None:
        """The forward of a model begins; never raises."""
        if not self._hooks:  # a copy of a model has kept its hook
            return
        try:
            self._look()
        except Exception as error:
            self._end(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    _before_forward._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`

    def __deepcopy__(self, _: object) -> Gate:
        return self

    def __reduce__(self) -> Pickled:
        return without_effect("_before_forward")

    def _look(self) -> None:
        if self._is_over:
            self._end()
            return
        now, start = self._collectives(), self._start
        before = self._seen[-1][1] if self._seen else now
        self._seen[1:] = [(time.monotonic(), now)]
        self._forwards += 1
        if start is None or now < start:
            return
        if before >= start:
            self._end("this rank is not watched: it learned too late when to begin")
            return
        models = [model for each in self._models if (model := each()) is not None]
        self._end()
        built(models)  # at the next forward

    def _collectives(self) -> int:
        """How many collectives this rank has begun; the same on all ranks at the same line of the script.

        Raises:
            RuntimeError: a backend does not count them.
        """
        return sum(group._get_sequence_number_for_group() for group in self._counted)

    def _end(self, reason: str = "") -> None:
        """Take the hooks out, on the training thread: a call of the model goes through them meanwhile."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._models = [], []
        _waiting.clear()
        if reason:
            say(reason)

    def _wait(self) -> None:
        """Take part in a round until it has ended, `LIMIT_S` at most."""
        try:
            self._take_part(time.monotonic() + LIMIT_S)
        except Exception as error:
            self._give_up()
            say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    def _give_up(self) -> None:
        self._is_over = True
        _waiting.clear()

    def _take_part(self, deadline: float) -> None:
        store = dist.distributed_c10d._get_default_store()
        key, number = f"ddpmon/inject/{launch().restart}/{self._ranks[0]}-{len(self._ranks)}", 0
        while store.check([f"{key}/{number}/start"]):
            number += 1
        key = f"{key}/{number}"
        asked = f"{key}/asked/{self._own}"
        is_again = store.check([asked])  # an error has ended this rank's part in the round
        store.set(asked, str(sorted(dist.get_world_size(group) for group in self._counted)))
        if not is_again and store.add(f"{key}/requests", 1) == len(self._ranks):
            self._name(store, key, self._start_or_reason(store, key, deadline))
        while not store.check([f"{key}/start"]):
            if time.monotonic() >= deadline:
                self._name(store, key, self._who_is_missing(store, key))
            time.sleep(self._every_s)
        start = store.get(f"{key}/start").decode().partition(" ")[2]
        if start.isdigit():
            self._start = int(start)
        else:
            self._give_up()

    def _name(self, store: Any, key: str, start: str) -> None:
        """Name the start, or the reason why there is none, unless another rank has; a reason is said here alone."""
        named = f"{self._own} {start}"
        if store.compare_set(f"{key}/start", "", named).decode() == named and not start.isdigit():
            say(f"no rank is watched: {start}")

    def _start_or_reason(self, store: Any, key: str, deadline: float) -> str:
        """The number of collectives some forwards and seconds ahead, at the pace of the forwards seen."""
        groups = {store.get(f"{key}/asked/{rank}") for rank in range(len(self._ranks))}
        if len(groups) > 1:
            return "the ranks are in different process groups, and have no count of collectives in common"
        while self._forwards < _AHEAD_FORWARDS:
            if time.monotonic() >= deadline:
                return f"rank {dist.get_rank()} has made {self._forwards} forwards since it was asked"
            time.sleep(_EVERY_S)
        (since, first), (until, last) = self._seen
        done = last - first
        ahead = done / max(until - since, 1e-3) * _AHEAD_READINGS * self._every_s
        return str(last + max(int(ahead), _AHEAD_FORWARDS * done // (self._forwards - 1), 1))

    def _who_is_missing(self, store: Any, key: str) -> str:
        """Who has not been asked."""
        own = range(len(self._ranks))
        missing = [self._ranks[rank] for rank in own if not store.check([f"{key}/asked/{rank}"])]
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        names = ", ".join(map(str, missing[:_NAMED]))
        return (
            f"of {len(self._ranks)} ranks these were not asked within {LIMIT_S:.0f} s, or could not be: {names}{more}; "
            "ask all ranks again with ddpmon inject, on every host"
        )
