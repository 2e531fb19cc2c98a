"""Four hosts with one rank each in network namespaces, trained by torchrun over Gloo, watched from a fifth one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from across import Job, torchrun
from network import network, why_not
from watcher import Seen, watching

pytest.importorskip("torch")

HOSTS, WATCHER, LATE, STRAGGLER_FROM = 4, 4, 3, 30
EVEN = ("--fault=forward:rank=0+1+2+3,ms=30", "--fault=backward:rank=0+1+2+3,ms=30")  # ranks sleep, not fight for cores
SLOW = f"--fault=input:rank={LATE},ms=80,from={STRAGGLER_FROM}"
MODEL = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32")
JOB = Job(HOSTS, 1, ["-m", "trainer", "--name=four", "--steps=100000", *MODEL, *EVEN, SLOW])

why = why_not()
pytestmark = pytest.mark.skipif(bool(why), reason=why)


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Seen, Seen]]:
    """What a watcher saw once the straggler was named, and what one saw that came then."""
    folder = tmp_path_factory.mktemp("four")
    job = replace(JOB, environment={"XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)})
    with network(HOSTS + 1) as net, torchrun(net, folder, job):
        url = f"tcp://{net.address(0)}:29480"
        try:
            with watching(net.enter(WATCHER), url, folder / "watcher.log") as watcher:
                first = watcher.until(named)
            with watching(net.enter(WATCHER), url, folder / "late.log") as watcher:
                yield first, watcher.until(lambda seen: seen["history"] and named(seen))
        except TimeoutError as error:
            pytest.fail(f"{error}\n{''.join(path.read_text()[-2000:] for path in folder.glob('*.log'))}")


def named(seen: Seen) -> bool:
    status = seen["status"]
    late = [found for found in status["findings"] if (found["kind"], found["ranks"]) == ("straggler", [LATE])]
    return bool(late) and status["coverage"]["reporting"] == HOSTS and len(status["nodes"]) == HOSTS


def test_four_hosts_are_named_and_each_tells_of_itself(looks: tuple[Seen, Seen]) -> None:
    for seen in looks:
        status = seen["status"]
        assert status["run"]["nodes"] == ["host0", "host1", "host2", "host3"]
        assert [(rank["host"], rank["local_rank"]) for rank in status["ranks"]] == [(f"host{i}", 0) for i in range(4)]
        assert [(node["host"], node["ranks"]) for node in status["nodes"]] == [(f"host{i}", [i]) for i in range(4)]
        assert all(node["cpu_count"] for node in status["nodes"]), "each host's frame has come"


def test_the_slow_rank_is_named_with_its_host(looks: tuple[Seen, Seen]) -> None:
    for seen in looks:
        (found,) = [found for found in seen["status"]["findings"] if found["kind"] == "straggler"]
        assert (found["ranks"], found["nodes"], found["phase"]) == ([LATE], ["host3"], "input")
        assert abs(found["since_step"] - STRAGGLER_FROM) <= 20


def test_who_comes_late_has_the_history(looks: tuple[Seen, Seen]) -> None:
    first, last = looks[1]["history"]
    assert first == 0
    assert last > STRAGGLER_FROM
