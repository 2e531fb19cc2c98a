from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from trainer.__main__ import main
from trainer.checkpoint import prepare
from trainer.config import ConfigError, parse_args


def test_defaults_need_no_option() -> None:
    config = parse_args([])
    assert config.backend == "auto"
    assert config.fault == ()
    assert config.width % config.heads == 0


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        (("--batch", "-1"), "'-1'"),
        (("--steps", "many"), "'many'"),
        (("--lr", "nan"), "'nan'"),
        (("--lr", "inf"), "'inf'"),
        (("--bucket-cap-mb", "0"), "'0'"),
        (("--width", "10", "--heads", "4"), "--width 10"),
        (("--backend", "mpi"), "'mpi'"),
        (("--nosuch",), "--nosuch"),
        (("--text", "/no/such/folder"), "/no/such/folder"),
        (("--dump", "/no/such/folder/file"), "/no/such/folder"),
        (("--seed", "9999999999"), "9999999999"),
        (("--fault", "host:rank=4,ms=1", "--nproc", "4"), "rank 4"),
        (("--fault", "host:rank=1,ms=1"), "rank 1"),
        (("--fsdp",), "torchrun or --nproc"),
        (("--zero",), "torchrun or --nproc"),
        (("--dp", "--nproc", "2"), "--dp is one process"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    options: tuple[str, ...], bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    out, err = capsys.readouterr()
    assert not out
    assert bad in err
    assert err.count("\n") == 1


def test_only_one_rank_of_a_host_complains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["--nproc", "2"]) == 2
    assert not capsys.readouterr().err
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["--nproc", "2"]) == 2
    assert "torchrun" in capsys.readouterr().err


def test_data_parallel_is_refused_where_torchrun_starts_several_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["--dp"]) == 2
    assert "start it without torchrun, which starts 2 ranks" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "x"):
        with pytest.raises(ConfigError, match=str(path)):
            prepare(path)


@pytest.mark.parametrize("package", ["trainer", "ddpmon.trainer"])
def test_the_usage_is_the_command_that_was_typed(package: str) -> None:
    parser = importlib.import_module(f"{package}.config").build_parser()
    assert parser.format_usage().startswith(f"usage: python -m {package} [-h]")
