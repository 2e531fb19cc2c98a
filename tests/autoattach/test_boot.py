"""What `ddpmon run` leaves in Python processes, and what it does not; with a stand-in for torch.

Each test starts real interpreters, in the environment that `ddpmon run` gives to its command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from ddpmon.commands.run import environment_of
from tests.ranks import ROOT

BOOT = ROOT / "ddpmon" / "boot"
FINDERS = "[type(finder).__name__ for finder in sys.meta_path if type(finder).__name__ == '_Finder']"
SAYS = f"import json, os, sys; print(json.dumps([{FINDERS}, sys.path, 'ddpmon' in sys.modules]))"
WATCHING = ["_Finder"]
PARALLEL = '''
class DistributedDataParallel:
    """A stand-in."""
    def __init__(self, module):
        """Wrap."""
        if module is None:
            raise ValueError("no module")
        self.module = module
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package that has torch's names."""
    package = tmp_path / "torch" / "nn" / "parallel"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "distributed.py").write_text(PARALLEL)
    return tmp_path


def python(
    *arguments: str, path: Path | None = None, executable: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter below `ddpmon run`, with `path` on PYTHONPATH behind the boot folder."""
    return _run([executable, *arguments], path, environment_of(_environment(path) | variables, None))


def bare(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same without `ddpmon run`."""
    return _run([sys.executable, *arguments], path, _environment(path))


def _run(command: list[str], path: Path | None, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    folder = path or ROOT.parent
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def _environment(path: Path | None) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RANK")}
    return own | ({"PYTHONPATH": str(path)} if path else {})


def told(*arguments: str, **options: Any) -> Any:
    run = python(*arguments, **options)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout.splitlines()[-1])


def test_a_python_has_one_finder_and_the_path_that_it_would_have_without_us() -> None:
    found, path, has_ddpmon = told("-c", SAYS)
    assert found == WATCHING
    assert path == json.loads(bare("-c", SAYS).stdout)[1]
    assert not has_ddpmon


def test_so_has_a_module_and_a_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / "said.py").write_text(SAYS)
    assert told("-m", "said", path=tmp_path)[0] == WATCHING
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    assert told("-c", SAYS, executable=str(tmp_path / "env" / "bin" / "python"))[0] == WATCHING


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_so_has_a_child_of_multiprocessing(tmp_path: Path, method: str) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "def child():\n"
        f"    {SAYS.replace('; ', chr(10) + '    ')}\n"
        "if __name__ == '__main__':\n"
        f"    born = multiprocessing.get_context({method!r}).Process(target=child)\n"
        "    born.start(); born.join(); sys.exit(born.exitcode)\n"
    )
    assert told(str(script))[0] == WATCHING


def test_ddpmon_0_leaves_nothing() -> None:
    assert told("-c", SAYS, DDPMON="0")[0] == []


@pytest.mark.parametrize("flag", ["-E", "-I", "-S"])
def test_an_interpreter_that_ignores_its_environment_goes_on(flag: str) -> None:
    assert told(flag, "-c", SAYS)[0] == []


def test_the_users_sitecustomize_runs_and_is_the_one_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.marked = 'by the user'\n")
    code = (
        "import json, sys, sitecustomize\n"
        "print(json.dumps([sys.marked, sitecustomize.__file__, type(sys.meta_path[0]).__name__]))"
    )
    assert told("-c", code, path=tmp_path) == ["by the user", str(tmp_path / "sitecustomize.py"), "_Finder"]


def test_a_broken_sitecustomize_of_the_users_is_reported_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('broken')\n")
    run = python("-c", SAYS, path=tmp_path)
    assert (run.returncode, run.stderr) == (0, bare("-c", "pass", path=tmp_path).stderr)
    assert "broken" in run.stderr


def test_a_hooked_module_is_as_python_made_it(site: Path) -> None:
    code = (
        "import importlib, inspect, json, sys\n"
        "import torch.nn.parallel.distributed as found\n"
        "kind = found.DistributedDataParallel\n"
        "print(json.dumps([type(found.__loader__).__name__, vars(found.__loader__).keys() & {'exec_module'} == set(),\n"
        "    found.__spec__.name, 'A stand-in' in inspect.getsource(kind), str(inspect.signature(kind)),\n"
        "    kind.__init__.__doc__, importlib.reload(found) is found]))"
    )
    assert told("-c", code, path=site) == [
        "SourceFileLoader", True, "torch.nn.parallel.distributed", True, "(module)", "Wrap.", True,
    ]  # fmt: skip


BUILDS = "from torch.nn.parallel.distributed import DistributedDataParallel as D; D(1); D(2); print('trained')"


def test_without_ddpmon_in_its_environment_a_job_goes_on_and_says_so_once(site: Path) -> None:
    (site / "ddpmon.py").write_text("raise ImportError('not for this Python')\n")
    run = python("-c", BUILDS, path=site)
    assert (run.returncode, run.stdout) == (0, "trained\n")
    assert run.stderr.splitlines() == [
        f"ddpmon: nothing is watched: {sys.executable} cannot import ddpmon: not for this Python"
    ]
    assert python("-c", BUILDS, path=site, RANK="3").stderr == ""
    closed = python("-c", f"import sys; sys.stderr.close(); {BUILDS}", path=site)
    assert (closed.returncode, closed.stdout) == (0, "trained\n")


def test_an_error_of_the_constructor_is_the_users(site: Path) -> None:
    code = "from torch.nn.parallel.distributed import DistributedDataParallel as D; D(None)"
    run = python("-c", code, path=site)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "ValueError: no module"
    assert "ddpmon:" not in run.stderr


def test_the_boot_file_imports_nothing_that_python_has_not() -> None:
    code = "import json, sys; print(json.dumps([*sys.modules]))"
    more = {*told("-c", code)} - {*json.loads(bare("-c", code).stdout)}
    assert more <= {"sitecustomize"}
    assert len((BOOT / "sitecustomize.py").read_text().splitlines()) <= 100
