"""Cgroup limits: real v1 groups where root may make them, and v2 and containers as folders of files."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ddpmon.sensors.cgroup import Cgroups
from ddpmon.sensors.disks import FolderSensor
from ddpmon.sensors.process import ProcessSensor
from ddpmon.sensors.reading import NotYet
from tests.sensors.others import SPIN, program, running, until

V1 = Path("/sys/fs/cgroup")
MIB = 1 << 20
Group = Callable[[str, str], Path]


@pytest.fixture
def group() -> Iterator[Group]:
    """Makes groups of v1 controllers, one below the other, and removes them."""
    made: list[Path] = []
    mark = secrets.token_hex(4)

    def make(controller: str, name: str) -> Path:
        folder = V1 / controller / f"ddpmon-{mark}" / name
        if not (V1 / controller / "cgroup.procs").exists():
            pytest.skip("needs a cgroup v1 controller")
        try:
            for each in (folder.parent, folder):
                if not each.exists():
                    each.mkdir()
                    made.append(each)
        except OSError as error:
            pytest.skip(f"may make no cgroups here: {error.strerror}")
        return folder

    yield make
    for folder in reversed(made):
        until(lambda folder=folder: (folder / "cgroup.procs").read_text(), lambda pids: not pids)  # type: ignore[misc]
        folder.rmdir()


def put(pid: int, folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(pid))


def test_a_real_quota_and_what_it_costs(group: Group) -> None:
    inner = group("cpu", "inner")
    (inner.parent / "cpu.cfs_quota_us").write_text("2000")
    with running(program(then=SPIN)) as process:
        put(process.pid, inner)
        sensor = ProcessSensor(process.pid)
        assert sensor.read().quota_cpus == pytest.approx(0.02), "the group above is the tightest"
        found = until(sensor.read, lambda figures: (figures.throttled_pct or 0) > 40, pause_s=0.5)
        assert found.throttled_pct is not None
        assert found.throttled_pct <= 100
        (inner.parent / "cpu.cfs_quota_us").write_text("-1")
        free = sensor.read()
        assert (free.quota_cpus, free.throttled_pct) == (None, None)


def test_processes_in_one_group_share_its_quota_by_name(group: Group) -> None:
    one, other = group("cpu", "one"), group("cpu", "other")
    for folder, quota in ((one.parent, "150000"), (one, "50000"), (other, "50000")):
        (folder / "cpu.cfs_quota_us").write_text(quota)
    with running(program()) as first, running(program()) as second, running(program()) as third:
        for process, folder in ((first, one), (second, one), (third, other)):
            put(process.pid, folder)
        alone, same, apart = (ProcessSensor(process.pid).read().quotas for process in (first, second, third))
    assert sorted(alone.values()) == [0.5, 1.5]
    assert alone == same
    assert apart != alone
    assert {name for name in apart if name in alone} == {name for name, cpus in alone.items() if cpus == 1.5}


def test_a_quota_that_is_not_used_up_throttles_nobody(group: Group) -> None:
    folder = group("cpu", "roomy")
    (folder / "cpu.cfs_quota_us").write_text("90000")
    with running(program()) as process:
        put(process.pid, folder)
        sensor = ProcessSensor(process.pid)
        sensor.read()
        found = sensor.read()
        assert found.quota_cpus == pytest.approx(0.9)
        assert found.throttled_pct == 0.0


def test_a_real_memory_limit_page_cache_and_a_kill(group: Group, tmp_path: Path) -> None:
    if FolderSensor("test", str(tmp_path)).read().device is None:
        pytest.skip("the temporary folder is on no disk: its files stay in memory")
    folder = group("memory", "small")
    (folder / "memory.swappiness").write_text("0")  # else a host with swap lets the greedy one live
    (folder / "memory.limit_in_bytes").write_text(str(64 * MIB))
    greedy = "input(); block = bytearray(b'x') * (256 << 20)"
    filled = f"import os; file = open({str(tmp_path / 'file')!r}, 'wb'); file.write(bytes(24 << 20)); os.fsync(file)"
    holds = program("input()", "block = bytearray(b'x') * (16 << 20)", filled)
    with ExitStack() as stack:
        process = stack.enter_context(started_in(folder, holds))
        sensor = ProcessSensor(process)
        found = sensor.read()
        assert found.memory_limit == 64 * MIB
        assert found.memory_used is not None
        assert 16 * MIB <= found.memory_used < 36 * MIB, "the file's pages could be reclaimed"
        assert found.oom_kills == 0
        with pytest.raises(AssertionError, match="ended"):
            stack.enter_context(started_in(folder, greedy))
        until(sensor.read, lambda figures: figures.oom_kills == 1)


@contextmanager
def started_in(folder: Path, source: str) -> Iterator[int]:
    """A process that is put into a group before it does anything."""
    with running("print(flush=True)\nimport sys\n" + source) as process:
        put(process.pid, folder)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline(), "it has ended"
        yield process.pid


class Tree:
    """A made-up /proc and cgroup file system of one process."""

    def __init__(self, root: Path, membership: str, *mounts: str) -> None:
        self.root = root
        self.write("proc/7/cgroup", membership)
        self.write("proc/7/mountinfo", "\n".join(mounts))

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n")

    def group(self, path: str, **files: str) -> None:
        for name, text in files.items():
            self.write(f"{path}/{name.replace('__', '.')}", text)

    @property
    def cgroups(self) -> Cgroups:
        return Cgroups(7, str(self.root))


V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"


@pytest.fixture
def v2(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path, "0::/job/step/task", V2_MOUNT)
    base = "sys/fs/cgroup/job"
    stat = "usage_usec 9\nnr_periods 10\nnr_throttled 5\nthrottled_usec 1000"
    tree.group(
        base, cpu__max="300000 100000", cpu__stat=stat, memory__max=str(100 * MIB), memory__current=str(90 * MIB)
    )
    tree.group(base, memory__stat=f"anon 1\ninactive_file {10 * MIB}", memory__events="oom 1\noom_kill 4")
    tree.group(f"{base}/step", cpu__max="150000 100000", cpu__stat=stat)
    tree.group(f"{base}/step", memory__max=str(80 * MIB), memory__current=str(30 * MIB), memory__stat="inactive_file 0")
    tree.group(f"{base}/step/task", cpu__max="max 100000", memory__max="max")
    return tree


def test_v2_has_the_tightest_on_the_way_up(v2: Tree) -> None:
    cgroups = v2.cgroups
    assert cgroups.quota_cpus() == 1.5
    assert cgroups.memory() == (100 * MIB, 80 * MIB), "nearest to its limit, without the page cache"
    assert cgroups.oom_kills() == 0
    v2.group("sys/fs/cgroup/job", memory__events="oom 1\noom_kill 6")
    assert cgroups.oom_kills() == 2


def test_v2_throttling_is_since_the_last_reading_and_of_the_worst(v2: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups, now = v2.cgroups, 100.0
    monkeypatch.setattr("ddpmon.sensors.reading.monotonic", lambda: now)
    cgroups.quota_cpus()
    with pytest.raises(NotYet, match="once"):
        cgroups.throttled_pct()
    assert cgroups.throttled_pct() == 0
    now += 0.1
    v2.group("sys/fs/cgroup/job", cpu__stat="nr_throttled 5000\nthrottled_usec 9000000000")
    assert cgroups.throttled_pct() == 100, "time of several CPUs in all their periods"
    now += 0.5
    v2.group("sys/fs/cgroup/job", cpu__stat="nr_throttled 5001\nthrottled_usec 99000000000")
    assert cgroups.throttled_pct() == pytest.approx(20), "no longer than the period in which it happened"


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "0::/", V2_MOUNT)
    tree.group("sys/fs/cgroup", cpu__stat="nr_throttled 0")
    cgroups = tree.cgroups
    assert (cgroups.quota_cpus(), cgroups.throttled_pct(), cgroups.memory()) == (None, None, (None, None))


def test_controllers_of_v1_beside_an_empty_v2(tmp_path: Path) -> None:
    tree = Tree(
        tmp_path,
        "4:memory:/a\n1:cpu,cpuacct:/a b\n0::/",
        r"32 31 0:29 / /sys/fs/cgroup/cpu\040here rw - cgroup cgroup rw,cpuacct,cpu",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    )
    tree.group("sys/fs/cgroup/cpu here/a b", cpu__cfs_quota_us="25000", cpu__cfs_period_us="50000")
    tree.group("sys/fs/cgroup/memory/a", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="5")
    assert tree.cgroups.quota_cpus() == 0.5
    assert tree.cgroups.memory() == (None, None)


@pytest.mark.parametrize(
    ("membership", "mount_root"),
    [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/elsewhere", "/docker/abc"), ("/", "/")],
    ids=["bind mount of the own group", "a path that is not there", "a path outside", "namespace of its own"],
)
def test_in_a_container_the_topmost_visible_is_the_containers(tmp_path: Path, membership: str, mount_root: str) -> None:
    tree = Tree(tmp_path, f"0::{membership}", f"30 23 0:26 {mount_root} /sys/fs/cgroup ro - cgroup2 cgroup ro")
    tree.group("sys/fs/cgroup", cpu__max="200000 100000")
    assert tree.cgroups.quota_cpus() == 2


def test_a_group_that_cannot_be_seen_is_unknown_and_not_free(tmp_path: Path) -> None:
    outside = Tree(tmp_path / "outside", "0::/../other", V2_MOUNT)
    outside.group("sys/fs/cgroup", cpu__max="max 100000")
    with pytest.raises(NotYet, match="outside"):
        outside.cgroups.quota_cpus()
    unmounted = Tree(tmp_path / "unmounted", "4:memory:/a\n0::/a", "24 27 0:6 / /dev rw - devtmpfs devtmpfs rw")
    with pytest.raises(NotYet, match="visible"):
        unmounted.cgroups.memory()
    with pytest.raises(FileNotFoundError):
        Cgroups(8, str(tmp_path)).quota_cpus()
