"""How a run came to its end, as a narrow terminal shows it."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ddpmon.parts import Failure
from ddpmon.report.verdicts import calm_sentence
from ddpmon.run.model import Run
from ddpmon.watcher.observer import Observer
from ddpmon.watcher.run_end import store_gone
from ddpmon.watcher.way import Fate
from tests.made_frames import columns, rank_frame, run_info
from tests.made_store import MadeStore

ROOM = 76  # cells of the sentence on a screen of 80
REFUSED = "no store at tcp://127.0.0.1:29482: Connection refused"


def ended(ranks: int, failed: Collection[int] = ()) -> Run:
    """A run of so many ranks, on a host with a long name, some of which have said that they failed."""
    run = Run(run_info(ranks, host="gpu-node-0017.cluster.example.org"))
    for rank in range(ranks):
        state = "failed" if rank in failed else "running"
        run.add_rank(rank_frame(rank, 1, columns([0], {"duration": [1.0]}), state=state), 0.0)
    return run


@pytest.mark.parametrize(
    ("ranks", "failed", "fate", "state", "said"),
    [
        (64, (), Fate("killed"), "killed", "the run was killed or crashed: rank 0 ended without a message (pid "),
        (2, (0,), None, "failed", "rank 1 disappeared without a message, rank 0 ended with an error"),
        (
            64,
            range(1, 64),
            None,
            "failed",
            "rank 0 disappeared without a message, ranks 1-63 ended with an error",
        ),
        (64, (5,), None, "failed", "63 ranks disappeared without a message, rank 5 ended with an error"),
        (
            2000,
            range(0, 2000, 3),
            None,
            "failed",
            "1,333 ranks disappeared without a message, 667 ranks ended with an error",
        ),
        (64, (), None, "lost", f"{REFUSED}; the run may go on"),
    ],
    ids=["killed", "two ranks", "one is mute", "one failed", "many of both", "nobody knows"],
)
def test_80_columns_have_room_for_who_ended_and_how(
    ranks: int, failed: Collection[int], fate: Fate | None, state: str, said: str
) -> None:
    found, sentence = store_gone(ended(ranks, failed), REFUSED, fate)
    assert found == state
    assert sentence[:ROOM].startswith(said)


def test_a_store_that_ends_before_it_is_known_who_ended_first_leaves_those_that_said_nothing() -> None:
    store = MadeStore(ranks=3)
    store.begin()
    observer = Observer(store.url)
    observer.tick()
    broken = Failure("RuntimeError", "[gloo] Connection closed by peer", 3)
    store.speak(2, 0, 2, state="failed", failure=broken)
    held = observer.tick()
    assert [finding.kind for finding in held.findings] == []
    assert [pending.kind for pending in held.pending] == ["rank_failed"]
    assert "which one is known within some seconds" in calm_sentence(held)
    store.close()
    last = observer.tick()
    observer.close()
    assert (last.link.state, last.pending) == ("gone", ())
    assert [(finding.kind, finding.ranks) for finding in last.findings] == [("rank_failed", (1,))]
