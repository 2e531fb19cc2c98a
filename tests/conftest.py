"""How the tests share two cores: those that train for real run one after the other, beside those that do not."""

from __future__ import annotations

import pytest

BESIDE = (
    "tests/checkup",
    "tests/commands/test_command_line",
    "tests/commands/test_diagnose",
    "tests/commands/test_ls",
    "tests/commands/test_slurm",
    "tests/commands/test_ssh",
    "tests/commands/test_status_text",
    "tests/diagnose",
    "tests/probe/test_engine",
    "tests/probe/test_replay",
    "tests/run",
    "tests/sensors",
    "tests/store",
    "tests/table/test_table_rows",
    "tests/test_freeze",
    "tests/test_fuzz",
    "tests/test_layers",
    "tests/test_schema",
    "tests/test_turns",
    "tests/trainer/test_trainer_compare",
    "tests/trainer/test_trainer_data",
    "tests/tui",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A file's tests stay together, for the sake of what they set up once."""
    file = item.nodeid.partition("::")[0]
    item.add_marker(pytest.mark.xdist_group(file if file.startswith(BESIDE) else "training"))
