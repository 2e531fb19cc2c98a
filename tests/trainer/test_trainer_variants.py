"""`python -m trainer compare`: what it measures on real ranks, its table and its picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.ranks import start
from tests.trainer.trainer_runs import ENVIRONMENT, TINY, dump
from trainer.__main__ import main
from trainer.compare import differ
from trainer.variants import Measured
from trainer.variants_chart import svg, table

ALONE = Measured("one process", 1, 32, [100.0, 100.0, 130.0])
PAIR = Measured("DDP, 2 ranks", 2, 32, [50.0, 62.5, 70.0], [4.0, 5.0, 9.0], [0.5, 0.25, 0.75])


def test_the_table_tells_speedup_and_efficiency_against_one_process() -> None:
    head, _, *rows = table([ALONE, PAIR]).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")][:5] == [
        "variant", "ranks", "step, ms (quartiles)", "samples/s", "speedup",
    ]  # fmt: skip
    assert rows == [
        "| one process | 1 | 100.0 (100.0 to 115.0) | 320 | 1.00 | 100 % | - | - |",
        "| DDP, 2 ranks | 2 | 62.5 (56.2 to 66.2) | 512 | 1.60 | 80 % | 5.00 | 0.50 |",
    ]


def test_the_picture_has_a_bar_for_each_variant() -> None:
    picture = ElementTree.fromstring(svg([ALONE, PAIR]))
    words = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert "512/s, x 1.60" in words
    _, alone, pair = (element for element in picture.iter() if element.tag.endswith("rect"))
    assert float(pair.get("width", 0)) == pytest.approx(1.6 * float(alone.get("width", 0)), rel=1e-3)


def test_variants_are_measured_on_real_ranks(tmp_path: Path) -> None:
    log, picture = tmp_path / "log", tmp_path / "picture.svg"
    options = ["compare", "--nproc=2", "--rounds=1", "--steps=1", "--samples=4", "--only=FSDP", f"--svg={picture}"]
    assert start("trainer", options, log, ENVIRONMENT, tmp_path).wait() == 0, log.read_text()
    rows = [line.split(" | ") for line in log.read_text().splitlines() if line.startswith("| ")]
    names = ["one process", "FSDP2"]
    assert [row[0].removeprefix("| ") for row in rows[2:]] == names
    assert all(float(row[4]) > 0 for row in rows[2:])
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_views_of_buckets_and_a_static_graph_change_no_bit(tmp_path: Path) -> None:
    plain = dump(tmp_path, "plain", 2, "--steps=3")
    assert differ(plain, dump(tmp_path, "settings", 2, "--steps=3", "--bucket-view", "--static-graph")) is None


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        (("compare", "--samples=7"), "--samples 7 cannot be divided"),
        (("compare", "--only=nothing"), "--only nothing"),
        (("compare", "--svg=/no/such/folder/file"), "/no/such/folder"),
        (("compare", "--nproc=1"), "'1'"),
        ((*TINY, "--fsdp", "--dump=file"), "--checkpoint and --dump"),
        ((*TINY, "--keep-workers"), "--keep-workers needs --workers"),
        ((*TINY, "--dp", "--nproc=2"), "--dp is one process"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    options: tuple[str, ...], bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    said = capsys.readouterr()
    assert not said.out
    assert bad in said.err
    assert said.err.count("\n") == 1
