"""A file that is replaced: by a whole one, or in its place where its folder allows nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ddpmon.report.new_file import replacing

MOUNTED_ALONE = """
import os, subprocess, sys
from pathlib import Path
from ddpmon.report.new_file import replacing
source, target = map(Path, sys.argv[1:])
subprocess.run(["mount", "--bind", source, target], check=True)
with replacing(target) as file:
    file.write(b"new")
"""


def may_mount() -> bool:
    """Whether this user may mount in a namespace of its own."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-Urm", "true"], capture_output=True).returncode == 0


def test_a_file_that_can_be_written_where_no_file_can_be_made_is_written_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = Path("/proc/self/comm")  # of this process, which every user may write, but not its folder
    before = name.read_text()
    try:
        with replacing(name) as file:
            file.write(b"replaced")
            assert name.read_text() == before, "it is written once it is whole"
        assert name.read_text() == "replaced\n"
        assert not [*tmp_path.iterdir()], "nothing is left behind"
    finally:
        name.write_text(before.strip())


@pytest.mark.skipif(not may_mount(), reason="this user may not mount anything")
def test_a_file_that_is_mounted_alone_is_written_itself(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    target.parent.mkdir()
    source.write_text("what is there, and is longer")
    target.touch()
    command = [sys.executable, "-c", MOUNTED_ALONE, str(source), str(target)]
    subprocess.run(["unshare", "-Urm", *command], check=True)
    assert source.read_text() == "new"
    assert [*target.parent.iterdir()] == [target], "nothing else is left behind"


@pytest.mark.parametrize(("folder", "why"), [("none", "No such file or directory"), ("file", "Not a directory")])
def test_an_error_names_the_file_what_is_wrong_with_its_folder_and_what_to_do(
    tmp_path: Path, folder: str, why: str
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / folder / "steps.csv"
    with pytest.raises(OSError, match="give a file in a folder that you can write to") as caught, replacing(path):
        pytest.fail("there is nothing to write")
    assert caught.value.filename == str(path)
    assert f"no file can be made in the folder {path.parent} ({why})" in str(caught.value)


def test_a_folder_that_vanishes_meanwhile_is_said_to_be_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "steps.csv"
    path.parent.mkdir()
    with pytest.raises(OSError, match=r"no file can be replaced in .*folder \(") as caught, replacing(path):
        shutil.rmtree(path.parent)
    assert caught.value.filename == str(path)
