"""What each floor loads, seen in fresh interpreters: modules are found by walking, so new ones are covered."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import ddpmon

SCREEN = ("textual", "rich", "typer")
WATCHERS = ("run", "diagnose", "table", "snapshot", "observe", "tui")
EVERY_MODULE = ["ddpmon", *sorted(found.name for found in pkgutil.walk_packages(ddpmon.__path__, "ddpmon."))]
REPORT = "import importlib, sys; importlib.import_module(sys.argv[1]); print(*sys.modules)"
REFUSE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"{name} must not be loaded here")
sys.meta_path.insert(0, Refuse())
importlib.import_module(sys.argv[1])
"""


def floor(*names: str) -> list[str]:
    tops = tuple(f"ddpmon.{name}" for name in names)
    return [module for module in EVERY_MODULE if module in tops or module.startswith(tuple(f"{top}." for top in tops))]


def loaded_by(module: str) -> set[str]:
    command = [sys.executable, "-c", REPORT, module]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("module", ["ddpmon", *floor("schema", "store", "sensors")])
def test_what_both_sides_share_is_light(module: str) -> None:
    assert loaded_by(module).isdisjoint({*SCREEN, "numpy", "torch"})


@pytest.mark.parametrize("module", floor("probe"))
def test_the_training_side_needs_neither_a_screen_nor_numpy(module: str) -> None:
    # torch loads numpy where there is one and does without where there is none: so there shall be none.
    subprocess.run([sys.executable, "-W", "ignore", "-c", REFUSE, module, *SCREEN, "numpy"], check=True)


@pytest.mark.parametrize("module", floor(*WATCHERS))
def test_the_watchers_side_loads_no_torch(module: str) -> None:
    assert "torch" not in loaded_by(module)


@pytest.mark.parametrize("module", floor("run", "diagnose", "table", "snapshot", "observe"))
def test_the_headless_half_loads_no_screen(module: str) -> None:
    assert loaded_by(module).isdisjoint(SCREEN)


def test_the_command_line_itself_loads_nothing_heavy() -> None:
    assert loaded_by("ddpmon.cli").isdisjoint({"textual", "rich", "numpy", "torch", "psutil"})


def test_these_checks_see_what_is_loaded() -> None:
    assert "numpy" in loaded_by("ddpmon.snapshot")
    refused = subprocess.run(
        [sys.executable, "-c", REFUSE, "ddpmon.snapshot", "numpy"], capture_output=True, text=True, check=False
    )
    assert "numpy must not be loaded here" in refused.stderr
    assert {"ddpmon.schema", "ddpmon.store.discovery", "ddpmon.sensors.gpu", "ddpmon.snapshot"} <= {*EVERY_MODULE}
