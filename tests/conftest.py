"""How the tests share two cores: those that train for real run one after the other, beside those that only compute."""

from __future__ import annotations

import pytest

COMPUTING = ("tests/checkup", "tests/diagnose", "tests/run", "tests/tui", "tests/test_layers", "tests/test_schema")


def pytest_itemcollected(item: pytest.Item) -> None:
    """A file's tests stay together, for the sake of what they set up once."""
    file = item.nodeid.partition("::")[0]
    item.add_marker(pytest.mark.xdist_group(file if file.startswith(COMPUTING) else "real"))
