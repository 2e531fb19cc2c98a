"""What each floor loads, seen in fresh interpreters: modules are found by walking, so new ones are covered."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import ddpmon

SCREEN = ("textual", "rich", "click")
WATCHERS = ("run", "diagnose", "table", "snapshot", "report", "watcher", "recording", "tui")
EVERY_MODULE = ["ddpmon", *sorted(found.name for found in pkgutil.walk_packages(ddpmon.__path__, "ddpmon."))]
REPORT = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"
REFUSE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(f"{name} must not be loaded here")
sys.meta_path.insert(0, Refuse())
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def floor(*names: str) -> list[str]:
    tops = tuple(f"ddpmon.{name}" for name in names)
    return [module for module in EVERY_MODULE if module in tops or module.startswith(tuple(f"{top}." for top in tops))]


def loaded_by(*modules: str) -> set[str]:
    """What a fresh interpreter has loaded after these: what none of them loads is not there."""
    command = [sys.executable, "-c", REPORT, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def loading_without(banned: str, *modules: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter's attempt to load these where the packages banned may not be loaded."""
    command = [sys.executable, "-W", "ignore", "-c", REFUSE, banned, *modules]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_both_sides_share_is_light() -> None:
    assert loaded_by("ddpmon", *floor("schema", "store", "sensors")).isdisjoint({*SCREEN, "numpy", "torch"})


def test_the_training_side_needs_neither_a_screen_nor_numpy() -> None:
    # torch loads numpy where there is one and does without where there is none: so there shall be none.
    done = loading_without(" ".join((*SCREEN, "numpy")), *floor("probe", "autoattach"))
    assert done.returncode == 0, done.stderr


def test_the_watchers_side_loads_no_torch() -> None:
    assert "torch" not in loaded_by(*floor(*WATCHERS))


def test_the_headless_half_loads_no_screen() -> None:
    assert loaded_by(*floor("run", "diagnose", "table", "snapshot", "report", "watcher", "recording")).isdisjoint(
        SCREEN
    )


def test_the_command_line_itself_loads_nothing_heavy() -> None:
    assert loaded_by("ddpmon.cli").isdisjoint({"textual", "rich", "numpy", "torch", "psutil"})


def test_these_checks_see_what_is_loaded() -> None:
    assert "numpy" in loaded_by("ddpmon.schema", "ddpmon.snapshot")
    assert "numpy must not be loaded" in loading_without("rich numpy", "ddpmon.schema", "ddpmon.snapshot").stderr
    assert {"ddpmon.schema", "ddpmon.store.discovery", "ddpmon.sensors.gpu", "ddpmon.snapshot"} <= {*EVERY_MODULE}
