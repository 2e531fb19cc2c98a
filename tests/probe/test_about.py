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
            "python train.py --wandb-key=... --Token ... ...",
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


SECRET = "S3cr3t"
SHAPED = ("hf_" + "aB3" * 11, "AKIA" + "Q7" * 8, "sk-proj-" + "x9_" * 9, "0123456789abcdef" * 2, "eyJ" + "hbGci9" * 6)


@pytest.mark.parametrize(
    "words",
    [
        ["--token=S3cr3t"],
        ["--password", "S3cr3t"],
        ["--password", "-S3cr3t"],
        ["--tok", "S3cr3t"],  # argparse takes the beginning of an option
        ["--keys", "1", "S3cr3t", "--lr", "1"],
        ["--token=", "S3cr3t"],
        ["-pS3cr3t"],
        ["-p", "S3cr3t"],
        ["KEY=S3cr3t"],
        ["HF_TOKEN=S3cr3t"],
        ["AWS_SECRET_ACCESS_KEY=ab/S3cr3t"],
        ["AWS_SESSION_TOKEN=S3cr3t"],
        ["--db-pass", "S3cr3t"],
        ["DB_PWD=S3cr3t"],
        ["wandb.api_key=S3cr3t"],
        ["+wandb={project:x,api_key:S3cr3t}"],
        ["--opts", "WANDB.API_KEY", "S3cr3t"],
        ["token", "S3cr3t"],
        ["redis://me:S3cr3t@db:6379/0"],
        ["redis://me:a/S3cr3t@db:6379/0"],
        ["--db=me:S3cr3t@db"],
        ["me:S3cr3t@db:5432/runs"],
        ["https://S3cr3t@github.com/me/it"],
        ["https://store/x?sv=1&sig=S3cr3t"],
        ["https://store/x?X-Amz-Signature=S3cr3t"],
        ["--slack-webhook", "https://hooks/services/S3cr3t"],
        ["https://hooks/token/S3cr3t"],
        ['{"auth": {"user": "me", "pw": "S3cr3t"}}'],
        ['{"token":', '"S3cr3t"}'],
        ['["token","S3cr3t"]'],
        ["-H", "Authorization: Bearer S3cr3t"],
        ["-H", "Authorization:", "Bearer", "S3cr3t"],
        ["--user", "me:S3cr3t"],
        ["-c", "login(token('S3cr3t'))"],
        ["-c", "import os; os.environ['HF_TOKEN'] = 'S3cr3t'"],
        ["--pem", "-----BEGIN PRIVATE KEY-----\nS3cr3t\n"],
        *([word] for word in SHAPED),
        *([f"--x={word}"] for word in SHAPED),
        ["wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLES3cr3t"],
        ["550e8400-e29b-41d4-a716-446655440000"],
    ],
)
def test_no_secret_is_said(words: list[str]) -> None:
    said = command(["python", "train.py", *words])
    assert said.startswith("python train.py")
    assert not any(secret in said for secret in (SECRET, *SHAPED, "446655440000"))


@pytest.mark.parametrize(
    "said",
    [
        "/home/user/venv/bin/python -u -m trainer --steps 600 --lr 3e-4 --amp",
        "python /opt/tokenizer/train.py model.width=128 trainer.devices=4",
        "python train.py --data /home/user/corpus/train-2024-part1.bin --config configs/gpt2-124m.yaml --host node0005",
        "python train.py --init_method tcp://10.0.0.1:29500 --to me@host:/data/x",
    ],
)
def test_the_rest_of_a_command_is_said_in_full(said: str) -> None:
    assert command(said.split()) == said


def test_a_long_command_is_cut() -> None:
    assert len(command(["python", "x" * 10_000])) <= 256
