"""How far a job is by its own count of steps, in words."""

from __future__ import annotations

from ddpmon.format import age, count, known, plural
from ddpmon.snapshot import JobView


def throughput_unit(job: JobView) -> str:
    """`samples/s`, and of how many ranks where others have restarted alone: `samples/s of 6 ranks`."""
    return f"{job.throughput_unit} {part_of_ranks(job)}".rstrip()


def part_of_ranks(job: JobView) -> str:
    """`of 6 ranks`, whose samples are counted, where others have restarted alone; empty of all, and of no figure."""
    is_part = known(job.throughput) and job.throughput_ranks is not None and job.throughput_unit != "steps/s"
    return f"of {plural(job.throughput_ranks or 0, 'rank')}" if is_part else ""


def progress_words(job: JobView, *, brief: bool = False) -> str:
    """Such as "job step 300 of 1,000 (30 %), 12 min left"; empty where the job does not say its steps."""
    if job.job_step is None:
        return ""
    words = f"job step {count(job.job_step)}" if not brief else f"job {count(job.job_step)}"
    if job.job_total:
        words += f"/{count(job.job_total)}" if brief else f" of {count(job.job_total)}"
        words += "" if brief else f" ({100 * job.job_step / job.job_total:.0f} %)"
    return f"{words}, {age(job.eta_s)} left" if known(job.eta_s) else words
