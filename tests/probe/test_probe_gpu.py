"""On a GPU: phases in device time, losses copied behind the work, and no synchronisation."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from tests.probe.probe_ranks import STEPS, Played, play
from tests.probe.probe_stage import SLOW_S

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STARVING = ("starving", "starving_behind_the_device")
SCENES = ("spinning_in_forward", "quick", "with_buckets", "compiled", "in_half_precision", *STARVING)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("gpu"), "scenes_gpu", 1, watch=SCENES)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two ranks with Gloo, on one GPU if there is no more."""
    return play(tmp_path_factory.mktemp("shared"), "scenes_gpu", 2, watch=("one_of_two_spins",))


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_synchronises_the_device(played: Played, scene: str) -> None:
    """The scenes run under CUDA's synchronisation check, which raises: in our hooks it would end the measuring."""
    seen = played.runs[scene]
    assert (seen.info.backend, seen.info.device) == ("nccl", "cuda")
    assert seen.ranks[0].notes["enabled"]
    assert "internal error" not in played.output
    assert seen.ranks[0].of_device


def test_work_on_the_device_lands_in_its_phase_although_the_host_ran_ahead(played: Played) -> None:
    (rank,) = played.runs["spinning_in_forward"].ranks
    spin_ms = rank.notes["spin_ms"]
    assert min(rank.column("forward")) > spin_ms / 2
    for phase in ("input", "backward", "optimizer", "exposed", "other"):
        assert min(rank.column(phase)) < spin_ms / 2, phase
    (quick,) = played.runs["quick"].ranks
    assert min(quick.column("forward")) < spin_ms / 2


@pytest.mark.parametrize("scene", SCENES)
def test_losses_arrive_as_they_were_logged(played: Played, scene: str) -> None:
    (rank,) = played.runs[scene].ranks
    assert [rank.steps[step]["loss"] for step in range(STEPS)] == [0.0, 1.0, 2.0, 3.0]


def test_the_gpu_is_named(played: Played) -> None:
    (rank,) = played.runs["quick"].ranks
    assert rank.frame.gpu_uuid is not None
    assert rank.frame.gpu_uuid.startswith("GPU-")


def test_buckets_are_timed_on_the_device(played: Played) -> None:
    (rank,) = played.runs["with_buckets"].ranks
    assert rank.frame.buckets is not None
    assert sum(rank.frame.buckets.sizes) == rank.frame.gradient_bytes


def test_the_wait_for_data_is_input_only_where_the_device_stands_idle(played: Played) -> None:
    (starving,) = played.runs["starving"].ranks
    assert min(starving.column("input")) > 1e3 * SLOW_S / 2
    assert min(starving.column("forward")) < 1e3 * SLOW_S / 2
    (busy,) = played.runs["starving_behind_the_device"].ranks
    assert min(busy.column("forward")) > 1e3 * SLOW_S
    assert min(busy.column("input")) < 1e3 * SLOW_S / 2


def test_a_compiled_model_and_half_precision_are_measured_like_any_other(played: Played) -> None:
    for scene in ("compiled", "in_half_precision"):
        (rank,) = played.runs[scene].ranks
        assert min(rank.column("forward")) > 0
        assert min(rank.column("backward")) > 0


def test_of_two_ranks_on_one_gpu_the_spinning_one_is_waited_for(shared: Played) -> None:
    spinning, waiting = shared.runs["one_of_two_spins"].ranks
    spin_ms = spinning.notes["spin_ms"]
    assert min(spinning.column("forward")) > spin_ms / 2
    assert min(waiting.column("exposed")) > spin_ms / 4
    assert min(spinning.column("exposed")) < min(waiting.column("exposed"))
