"""Bucket detail changes no bit of a training, or it is refused: two to six real ranks, each way that DDP reduces."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.probe.probe_ranks import Played, play

RANKS = 6
UNSURE = ("views", "views of kept gradients", "static views")  # whether DDP multiplies or divides there
NEVER = "a hook in C++"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("bits"), "scenes_bits", RANKS, watch=["refused"], also=["bit_for_bit"])


def test_losses_and_parameters_are_the_same_to_the_last_bit(played: Played) -> None:
    for rank in range(RANKS):
        same: dict[str, bool] = played.notes("bit_for_bit", rank)["same"]
        assert [setting for setting, equal in same.items() if not equal] == []
        assert sum("plain" in setting for setting in same) == 5 - max(0, rank - 1)


def test_detail_is_given_where_it_can_be(played: Played) -> None:
    detail: dict[str, bool] = played.notes("bit_for_bit")["detail"]
    for setting, given in detail.items():
        name, ranks = setting.rsplit(", ", 1)
        power_of_two = ranks in ("2 ranks", "4 ranks")
        assert given == (name != NEVER and (power_of_two or name not in UNSURE)), setting


def test_why_it_is_refused_is_said(played: Played) -> None:
    seen = played.runs["refused"]
    assert not seen.info.bucket_detail
    for rank in seen.ranks:
        (said,) = rank.frame.notes
        assert said.startswith("no bucket detail: with gradient_as_bucket_view")
