"""The two tiers of tests, and an environment in which no test meets what a shell, launcher or scheduler has set."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_LAUNCHERS = ("DDPMON", "TORCHELASTIC_", "TORCH_CPP_LOG", "SLURM_", "SSH_", "TEXTUAL")
_VARIABLES = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
    *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
    "PYTHONDONTWRITEBYTECODE",  # with it every process that a test starts, and every worker, compiles ddpmon again
}

# Files that start process groups of ranks, or servers that tests wait for, in the order in which they start: the
# longest first, so that the workers end at about the same time. They wait more than they compute, so the other files
# are spread evenly between them and take the cores meanwhile. Single live tests of other files carry the mark
# themselves.
LIVE = (
    "test_chaos",
    "commands/test_slurm",
    "commands/test_ssh_breaks",
    "test_live_clashes",
    "test_live_troubles",
    "test_across_hosts",
    "trainer/test_trainer_runs",
    "probe/test_probe_stalls",
    "test_observe",
    "recording/test_live_recording",
    "commands/test_live_run",
    "probe/test_probe_failures",
    "test_four_hosts",
    "trainer/test_trainer_resume",
    "trainer/test_trainer_variants",
    "probe/test_probe_machine",
    "probe/test_probe_shapes",
    "probe/test_probe_identity",
    "autoattach/test_run_live",
    "frameworks/test_frameworks",
    "probe/test_probe_sharded",
    "probe/test_probe_bits",
    "probe/test_host_share",
    "probe/test_probe_rendezvous",
    "probe/test_probe_harm",
    "test_external_store_live",
    "probe/test_probe_host",
    "probe/test_probe_phases",
    "probe/test_probe_trigger",
    "probe/test_probe_troubles",
    "probe/test_probe_buckets",
    "commands/test_ssh_network",
    "commands/test_kubernetes",
    "commands/test_ssh_password",
    "autoattach/test_inject",
    "autoattach/test_data_parallel",
    "sensors/test_live_gpus",
    "probe/test_probe_gpu",
)


def name(item: pytest.Item) -> str:
    """The test's file as `LIVE` has it."""
    return item.path.relative_to(HERE).with_suffix("").as_posix()


def places(files: Sequence[str]) -> dict[str, float]:
    """File -> where it stands in the order; `files` are given in the order of the collection."""
    live = [file for file in LIVE if file in files]
    others = [file for file in files if file not in LIVE]
    between = {file: (index + 0.5) * len(live) / len(others) for index, file in enumerate(others)}
    return {**{file: float(index) for index, file in enumerate(live)}, **between}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark live files, and put the files into their order."""
    for item in items:
        if name(item) in LIVE:
            item.add_marker("live")
    order = places([*dict.fromkeys(name(item) for item in items)])
    items.sort(key=lambda item: order[name(item)])


# A shell starts what it puts into the background with SIGINT ignored, and every process started from there inherits it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

for _name in list(os.environ):
    if _name.startswith(_LAUNCHERS) or _name in _VARIABLES:
        del os.environ[_name]
os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}  # whatever the terminal of the test run can
