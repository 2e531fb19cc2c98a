"""The search for the model of Horovod's optimizer disturbs no forward; a stand-in for the optimizer suffices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
import torch
from torch.nn.modules import module as modules

from ddpmon.autoattach import horovod
from ddpmon.autoattach.horovod import find_model
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


def test_the_hook_on_all_modules_is_gone_once_the_model_is_found() -> None:
    """With it no call of a module takes torch's short way."""
    model, other, found = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 2), list[torch.nn.Module]()
    find_model(_Optimizer(model.parameters(), 0.1), found.append)
    with torch.no_grad():
        model(torch.ones(1, 2))
    other(torch.ones(1, 2))
    assert len(modules._global_forward_pre_hooks) == 1
    model(torch.ones(1, 2))
    assert found == [model]
    assert not modules._global_forward_pre_hooks


def test_the_search_for_a_model_that_is_never_trained_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1.0]
    monkeypatch.setattr(horovod, "monotonic", lambda: now[0])
    model, other, found = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), list[torch.nn.Module]()
    find_model(_Optimizer(model.parameters(), 0.1), found.append)
    for _ in range(3):
        other(torch.ones(1, 2))
        now[0] += 200.0
    assert not modules._global_forward_pre_hooks
    (line,) = capsys.readouterr().err.splitlines()
    assert "no module has all parameters of Horovod's optimizer" in line
    model(torch.ones(1, 2))
    assert found == []
