"""The callback that Lightning asks for, of packages that have only its names: `tests/frameworks` runs the real one."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType

import pytest

from ddpmon.autoattach import lightning

PACKAGE = "lightning.pytorch"
ASKS = "def ask(callbacks):\n    return callbacks()\n"


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its `ask` calls the entry point as a Trainer does."""
    package, module = ModuleType(PACKAGE), ModuleType(f"{PACKAGE}.trainer.call")
    vars(package)["Callback"] = type("Callback", (), {})
    exec(ASKS, vars(module))
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, PACKAGE, package)
    monkeypatch.setenv("DDPMON_RUN", "1")
    monkeypatch.setattr(lightning._Watch, "has_failed", False)
    return module


def test_the_callback_can_be_pickled_for_a_process_that_is_spawned(trainer: ModuleType) -> None:
    (callback,) = trainer.ask(lightning.callbacks)
    twin = pickle.loads(pickle.dumps(callback))
    assert isinstance(twin, sys.modules[PACKAGE].Callback)
    assert type(twin).__name__ == type(callback).__name__


def test_what_fails_in_it_is_said_once_and_not_raised(
    trainer: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (callback,) = trainer.ask(lightning.callbacks)

    def fails() -> None:
        raise AttributeError("no such name")

    monkeypatch.setattr(lightning, "_watched", fails)
    callback.on_train_batch_end(object(), object(), {})
    callback.on_validation_start()
    del sys.modules[PACKAGE].Callback
    assert trainer.ask(lightning.callbacks) == []
    assert capfd.readouterr().err.count("ddpmon: cannot read what this Lightning does (AttributeError") == 1
