"""What is built from this tree, without the network: only `ddpmon` is importable from it, and nothing is missing."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import ddpmon

pytest.importorskip("setuptools", "77")
ROOT = Path(__file__).parents[1]
SOURCES = ("ddpmon", "trainer", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
SEEN = "import sys, ddpmon.trainer.__main__ as main; print(main.__file__, 'trainer' in sys.modules, sep='\\n')"


def copy_of_the_tree(folder: Path) -> Path:
    """A copy to build from: a build writes into its tree."""
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


def build(kind: str, tree: Path, folder: Path) -> Path:
    """Build an "sdist" or a "wheel" of `tree` into `folder`, as a frontend does without isolation."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def files_of(package: Path) -> set[str]:
    """Every file of a package in this tree, by the name that it has in a wheel."""
    found = set[str]()
    for folder, _, names in os.walk(package, followlinks=True):
        if "__pycache__" not in folder:
            found |= {str(Path(folder, name).relative_to(package.parent)) for name in names if name[0] != "."}
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return build("sdist", copy_of_the_tree(folder / "tree"), folder)


@pytest.fixture(scope="module", params=["tree", "sdist"])
def wheel(request: pytest.FixtureRequest, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as it is built from a checkout and from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    if request.param == "tree":
        return build("wheel", copy_of_the_tree(folder / "tree"), folder)
    with tarfile.open(sdist) as archive:
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        archive.extractall(folder, **safely)
    return build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


def test_a_wheel_puts_ddpmon_alone_on_the_import_path(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert tops == {"ddpmon", f"ddpmon-{ddpmon.__version__}.dist-info"}


def test_a_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("ddpmon/")}
    assert held == files_of(ROOT / "ddpmon")
    assert {"ddpmon/py.typed", "ddpmon/trainer/__main__.py", "ddpmon/tui/app.tcss"} <= held
    assert not [name for name in held if name.endswith(".c")], "nothing is compiled where ddpmon is installed"


def test_a_wheel_tells_of_its_version_and_licence(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        about = f"ddpmon-{ddpmon.__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{about}/METADATA"))
        assert f"{about}/licenses/LICENSE" in archive.namelist()
    assert metadata["Version"] == ddpmon.__version__
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_trainer_of_a_wheel_needs_no_checkout(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", SEEN]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(tmp_path / "installed/ddpmon/trainer/__main__.py"), "False"], done.stderr


def test_a_source_distribution_holds_no_tests_and_no_pictures(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "ddpmon/trainer/__main__.py"} <= {*names}
    assert not [name for name in names if name.startswith(("tests", "bench", "docs")) or name.endswith(".png")]
