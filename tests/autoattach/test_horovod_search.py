"""The search for the model of Horovod's optimizer disturbs no forward; a stand-in for the optimizer suffices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.autoattach.models import built


class _Optimizer(torch.optim.SGD):
    def synchronize(self) -> None:
        """What shows that it is Horovod's."""


class _Secretive(torch.nn.Linear):
    is_asked = False

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """They are kept back once it is asked to."""
        if self.is_asked:
            raise RuntimeError("not now")
        return super().parameters(recurse)


def test_a_model_that_does_not_show_its_parameters_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    model = _Secretive(2, 2)
    built(_Optimizer(model.parameters(), 0.1))
    model.is_asked = True
    for _ in range(3):
        assert model(torch.ones(1, 2)).shape == (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot watch this run (RuntimeError: not now)" in line
