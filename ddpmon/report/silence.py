"""Which ranks and hosts of a snapshot have fallen silent, for all views alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.silence import PAUSE_S, fallen_silent
from ddpmon.snapshot import Ranks, Snapshot

LATE_HOST_S = 8.0  # a host's word older than this is old: of many hosts each is read every six seconds
_ENDED = ("finished", "failed")
_TELL_WHY = ("finished", "failed", "killed", "cancelled", "restarting")  # states of a run whose end is known
_OTHER_HOLES = (
    "never_heard_of", "dropped_steps", "dropped_frames", "rejected_frames", "refused_frames", "set_aside"
)  # fmt: skip


def silent_ranks(ranks: Ranks) -> NDArray[np.bool_]:
    """[world] the ranks that have been silent for some seconds while others report; lost ones are among them."""
    silent = fallen_silent(ranks.age_s, np.zeros(len(ranks), np.bool_))
    silent[[rank for rank in np.flatnonzero(silent).tolist() if ranks.state[rank] in _ENDED]] = False
    return silent


def is_explained_by_end(kind: str, evidence: Mapping[str, float | int | str], state: str) -> bool:
    """Whether a finding says only that ranks are silent, and the run's state says how they ended.

    No end explains what else the monitor did not see, such as ranks that have never reported.
    """
    is_silence = kind == "monitor_degraded" and bool(evidence.get("not_reporting"))
    return state in _TELL_WHY and is_silence and not any(evidence.get(hole) for hole in _OTHER_HOLES)


def unheard_hosts(snapshot: Snapshot) -> set[int]:
    """The node numbers of the hosts of which nothing has come for some seconds.

    Hosts are read in turns. While nothing comes at all, as from a store that does not answer, they become old at
    different moments, which says nothing about them: silence counts from the last word of any, until all are old.
    """
    ages = {node.node: node.age_s for node in snapshot.nodes}
    newest = min((age for age in ages.values() if age is not None), default=0.0)
    heard_s = newest if PAUSE_S < newest < LATE_HOST_S else 0.0
    return {node for node, age in ages.items() if age is None or age - heard_s >= LATE_HOST_S}


def silent_hosts(snapshot: Snapshot) -> set[int]:
    """The node numbers of the hosts that are silent while others are not, or have a silent rank."""
    silent = set() if snapshot.ranks is None else set(np.flatnonzero(silent_ranks(snapshot.ranks)).tolist())
    hosts = unheard_hosts(snapshot)
    hosts = hosts if len(hosts) < len(snapshot.nodes) else set()
    return hosts | {node.node for node in snapshot.nodes if not silent.isdisjoint(node.ranks)}
