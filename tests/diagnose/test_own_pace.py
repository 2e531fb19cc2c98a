"""Verdicts on simulated devices, by way of the probe's own log, replay and frames."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from device_job import Fault, Job, simulate
from device_play import watch

from ddpmon.diagnose.alert import at_or_above
from ddpmon.snapshot import Finding
from tests.table.marks import trace_of

STEPS, ONSET = 180, 60


def said(job: Job) -> list[Finding]:
    """Whatever lasted at the end of any tick, advice left out."""
    ticks = [*watch(trace_of(job), 0)]
    return [
        finding
        for tick in ticks
        for finding in tick.findings
        if finding.cleared_at_step is None and finding.kind != "advice"
    ]


def warnings(job: Job) -> list[Finding]:
    return [finding for finding in said(job) if at_or_above(finding.severity, "warning")]


@pytest.mark.parametrize("kernel_us", [2.5, 4.5, 20.0])
@pytest.mark.parametrize("item_every", [0, 1, 10])
def test_hosts_alike_or_slower_by_a_hair_are_no_warning(kernel_us: float, item_every: int) -> None:
    for host in (1.0, 1.02):
        fault = Fault((2,), host=host, onset=0)
        assert not warnings(Job(steps=STEPS, kernel_us=kernel_us, item_every=item_every, fault=fault))


def test_hosts_that_become_slower_together_blame_no_rank() -> None:
    """A phase that is seldom seen without a wait is known from before, when all hosts were faster."""
    slower = Fault((0, 1, 2, 3), host=1.3)
    assert not warnings(Job(noise=0.03, kernel_us=4.5, item_every=50, steps=200, fault=slower))


@pytest.mark.parametrize(("ranks", "item_every", "seed"), [(2, 50, 52), (4, 0, 54)])
def test_a_median_of_few_noisy_samples_names_nobody(ranks: int, item_every: int, seed: int) -> None:
    """It hardly moves from step to step, so that the ratio of two ranks shows none of the noise that it is wrong by."""
    pause_every = 0 if item_every else 50
    job = Job(ranks=ranks, noise=0.1, item_every=item_every, pause_every=pause_every, compiles=(90, 180))
    ticks = watch(simulate(job, range(seed, seed + 1)), 0)
    assert not [each for tick in ticks for each in tick.findings if at_or_above(each.severity, "warning")]


def test_copies_behind_the_reduction_are_nobodys_lateness() -> None:
    assert not warnings(Job(steps=STEPS, copies=400))


@pytest.mark.parametrize("item_every", [0, 1, 10])
def test_cost_follows_the_least_that_mending_saves(item_every: int) -> None:
    job = Job(steps=STEPS, item_every=item_every, fault=Fault((1,), host=1.3, onset=ONSET))
    trace, mended = trace_of(job), trace_of(job.mended())
    gain = float(100 * (1 - mended.step_ms(ONSET) / trace.step_ms(ONSET))[0])
    found = warnings(job)[-1]
    assert (found.kind, found.ranks) == ("straggler", (1,))
    assert float(found.evidence["launch_ms"]) > 0, "its GPU waits for its CPU"
    assert found.cost_pct is not None
    assert found.cost_pct - 3 <= gain <= max(found.cost_pct, float(found.evidence["cost_most_pct"])) + 3


def test_a_slow_device_in_a_job_that_its_hosts_pace_is_not_called_a_slow_host() -> None:
    found = warnings(Job(steps=STEPS, item_every=10, fault=Fault((1,), device=2.5, onset=ONSET)))[-1]
    assert found.ranks == (1,)
    assert "launched slowly" not in found.summary


@pytest.mark.parametrize("phase", ["input", "other"])
def test_a_late_host_whose_device_works_off_its_queue_meanwhile_keeps_its_phase(phase: str) -> None:
    """The device shows less of the delay in that phase than the host takes, and a little of it in others."""
    fault = Fault((0,), extra_ms=3.0, phase=phase)
    found = warnings(Job(ranks=2, noise=0.01, kernel_us=2.5, pause_every=50, fault=fault))
    assert {(finding.ranks, finding.phase) for finding in found} == {((0,), phase)}


@pytest.mark.parametrize("kernel_us", [2.5, 4.5])
def test_a_host_that_is_slower_throughout_is_late_in_several_phases(kernel_us: float) -> None:
    """Its device makes up for some of them while it reduces, and shows the lateness in the others."""
    found = warnings(Job(ranks=2, noise=0.03, kernel_us=kernel_us, item_every=10, fault=Fault((0,), host=1.1)))
    assert {(finding.ranks, finding.phase) for finding in found} == {((0,), "work")}
    assert "several phases" in found[-1].summary
