"""What rank 0 says of its own command: enough to know it again, and no secret."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from ddpmon.probe.about import command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "train.py", "--lr", "0.1"], "python train.py --lr 0.1"),
        (
            ["python", "train.py", "--wandb-key=1234", "--Token", "abc", "x"],
            "python train.py --wandb-key=... --Token ... x",
        ),
        (["python", "t.py", "data.password=abc"], "python t.py data.password=..."),
        (["python", "t.py", "--use-auth", "--lr", "1"], "python t.py --use-auth --lr 1"),
        (["python", "t.py", "redis://me:mine@db:6379/0"], "python t.py redis://...@db:6379/0"),
        (["python", "t.py", "redis://me:m@ine@db:6379/0"], "python t.py redis://...@db:6379/0"),
        (["python", "t.py", "--opts=api_key=abc"], "python t.py --opts=api_key=..."),
        (["python", "t.py", "https://db/x?a=1&token=abc"], "python t.py 'https://db/x?a=1&token=...'"),
        (["python", "t.py", '{"lr": 1, "api_key": "abc"}'], """python t.py '{"lr": 1, "api_key":...'"""),
        (["python", "-c", "x = 1; password = 'abc'"], "python -c 'x = 1; password =...'"),
        (["python", "a b.py"], "python 'a b.py'"),
    ],
)
def test_the_command_is_said_without_secrets(words: list[str], said: str) -> None:
    assert command(words) == said


def test_a_long_command_is_cut() -> None:
    assert len(command(["python", "x" * 10_000])) <= 256
