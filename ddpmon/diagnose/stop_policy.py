"""The thresholds of the rules on a job that has stopped, or that is not seen whole.

Every field has its unit in its name. "Chosen, not measured" says that no source is known for a value. When a rank is
silent or lost is decided in `run/model.py`.
"""

from __future__ import annotations

from msgspec import Struct


class StallPolicy(Struct, frozen=True):
    """When a job stands still, and what its ranks can be asked then (docs/design.md "Stalls").

    Attributes:
        patience_s: no step has finished for at least so long. The ranks' own watchdogs have the same value
            (`probe/watchdog.py`). Own choice; Mycroft (SOSP 2025) detects 90 % of its stops within 15 s
            (docs/detection.md "Sources of the thresholds"). A rank that has replayed no graph for as long has
            stopped replaying.
        patience_steps: median steps for which none has finished either, since a job with long steps is silent for
            long. The watchdogs have the same value. Chosen, not measured.
        untold_s: what a rank did in so many seconds before it fell silent it may not have told: a rank publishes once a
            second. That it is two seconds is chosen, not measured: a larger value blames a silent rank that stopped for
            the same reason as the others.
        just_came_s: a rank that has been in its phase for less is not stuck there. What it last reported of its stack,
            of its collectives and of its GPU is up to 5 s old, because the watchdog looks every 5 s (docs/detection.md
            "Who stopped the job").
        queued_steps: steps that a host may have queued for its GPU, and ranks that differ by as much have stopped for
            the same reason (docs/gpu.md "Hangs by the phase of the device"). The launches of a few steps fill the
            driver's queue. That it is eight is chosen, not measured.
    """

    patience_s: float = 10.0
    patience_steps: int = 10
    untold_s: float = 2.0
    just_came_s: float = 6.0
    queued_steps: int = 8


STALL = StallPolicy()


class HangPolicy(Struct, frozen=True):
    """When a job that stands still is a hang that names ranks, and when a critical one (docs/findings.md "hang").

    Attributes:
        first_step_s: while no rank has finished a step, a hang is information for so long: loading, compiling and the
            first rendezvous take their time. Chosen, not measured.
        first_step_host_s: with GPUs so much more for each host after the first: all ranks of NCCL's bootstrap meet at
            one address. The value is chosen, not measured.
        soon_s: so long after the limit of patience the ranks are waited for that have not told where they stand: the
            others notice a moment after the first rank that they stand still. Chosen, not measured: with less time
            nobody, or the wrong rank, is named while the culprit's stack is on its way.
        goes_on_s: after so long a rank is named although it has just come to its phase. A rank that enters its phase
            again and again would otherwise hide a hang for good. Chosen, not measured.
    """

    first_step_s: float = 300.0
    first_step_host_s: float = 2.0
    soon_s: float = 5.0
    goes_on_s: float = 60.0


HANG = HangPolicy()


class OngoingPausePolicy(Struct, frozen=True):
    """Which stall is no hang, and for how long (docs/findings.md "pause").

    Attributes:
        usual_s: a pause under way is information for so long. Chosen, not measured: an evaluation that nobody named is
            a warning after it.
        usual_ratio: times the longest earlier pause of its name for which it is information, too: an evaluation may
            take longer than the last, and not many times as long. Chosen, not measured.
        critical_s: seconds from which a pause that is no longer information is critical. Chosen, not measured.
        compilation_most_s: a compilation that makes progress is information for so long, and so is a first step on GPUs
            while a rank visibly makes progress. Tuning of a large model with max-autotune takes 10 to 20 min, and
            nothing is known to compile for longer.
        compiler_cpu_pct: percent of a core that the process of a rank uses while it compiles without a moving stack:
            LLVM and ptxas compute in one call for up to a minute. The value is chosen, not measured.
        compiler_workers_cpu_pct: percent of a core that its child processes use, in which a compiler works while the
            training thread waits. Chosen, not measured.
        writes_bytes_s: bytes a second that a process must write to disks to be seen at work: a checkpoint does, and a
            log does not. Chosen, not measured; docs/findings.md "hang" says which writers are missed.
    """

    usual_s: float = 60.0
    usual_ratio: float = 5.0
    critical_s: float = 600.0
    compilation_most_s: float = 1800.0
    compiler_cpu_pct: float = 50.0
    compiler_workers_cpu_pct: float = 20.0
    writes_bytes_s: float = 8e6


ONGOING_PAUSE = OngoingPausePolicy()


class UnevenInputsPolicy(Struct, frozen=True):
    """When the end of a rank's data explains why the job stands still (docs/findings.md "uneven_inputs").

    Attributes:
        gap_batches: the most batches by which the rank's loader may have ended before those of the others. The ranks
            differ by the batches of one step at most, which accumulation makes several; beyond so many another loader
            has ended, such as that of an evaluation. That it is 64 is chosen, not measured.
    """

    gap_batches: int = 64


UNEVEN_INPUTS = UnevenInputsPolicy()


class CoveragePolicy(Struct, frozen=True):
    """When the monitor says that it does not see the whole run (docs/findings.md "monitor_degraded").

    Attributes:
        first_frames: frames of the rank that has sent most, after which a rank that was never heard is missing. A rank
            publishes once a second, so this is half a minute for ranks that start later. Chosen, not measured.
        lately_s: what was lost, and who published as whom, is reported for so long. Chosen, not measured.
        warning_share: the part of the ranks that must be absent for a warning. Chosen, not measured.
        outlived_s: seconds and a usual step by which the others' last steps must be newer than the last word of lost
            ranks to show that these take part. Frames come once a second, and those of many ranks are read at every
            other tick, so that a last word is at most 3 s older than the rank's end; 2 s are left for a late frame.
            Chosen, not measured.
    """

    first_frames: int = 30
    lately_s: float = 60.0
    warning_share: float = 0.2
    outlived_s: float = 5.0


COVERAGE = CoveragePolicy()
