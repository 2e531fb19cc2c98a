"""The thresholds of the rules on late ranks and hosts, each with its unit and its reason.

Sections that are named stand in docs/detection.md unless another page is given. "Chosen" means that the value has not
been measured by itself. docs/measured/accuracy.md and docs/measured/gpu.md measure how all of them work together.
"""

from __future__ import annotations

from msgspec import Struct


class AlertPolicy(Struct, frozen=True):
    """When an alert is confirmed, when it is over, and how severe it is.

    Attributes:
        confirmations: judgements in a row that must say yes. The calibration of the steady rule was made with three
            ("Calibrations"); each one more delays every verdict by one judgement.
        clear_judgements: judgements in a row that must clearly say no before an alert is over. Chosen, not measured:
            they are twenty steps where each step is judged, and 200 where every tenth is.
        warning_pct: percent of the job's time from which a cost is a warning. Below about 4 % normal variation wins
            ("Sources of the thresholds").
        critical_pct: percent of the job's time from which a cost is critical. Chosen ("Sources of the thresholds").
        keep_ratio: a severity is kept until the cost is below this part of its threshold, so that a cost at the edge
            does not change it at every tick. Chosen, not measured: 4 % and 16 % of the job's time.
        kept_resolved: resolved alerts of a group that are shown, the newest. Chosen, not measured: more make the list
            longer. The steady rule also knows from these who has been late before.
    """

    confirmations: int = 3
    clear_judgements: int = 20
    warning_pct: float = 5.0
    critical_pct: float = 20.0
    keep_ratio: float = 0.8
    kept_resolved: int = 10


ALERTS = AlertPolicy()


class SustainedPolicy(Struct, frozen=True):
    """When a rank or a host that works longer than the others, step after step, is named ("Steady stragglers").

    Attributes:
        warm_up_steps: first steps of a run that are never judged: they compile, autotune and rebuild the buckets.
        window_steps: steps of one judgement ("Calibrations"). The standard error of a median of twenty is 28 % of the
            noise. A longer window takes longer to see a straggler, a shorter one widens the threshold.
        floor_ratio: work over that of the others from which a rank is late, however quiet the run is. 10 % is the
            effect size that the studies agree on ("Sources of the thresholds").
        noise_errors: standard errors of the window's median that the ratio must exceed. Every rank is judged at
            every step, so three named innocent ranks once or twice in 1,000 steps where ranks share cores, and 4.5
            named none ("Calibrations"). The rule on the job's own pace uses the same number.
        high_step_ratio: ratio above which a single step counts as long, of a rank and of the job. Chosen with
            `steady_share`: half of the excess of `floor_ratio`.
        steady_share: share of steps in which a rank must be late to be steadily late, and the job slower to be slower.
            Own calibration ("Sources of the thresholds"). A rank or group that is late less often belongs to the rules
            on some of the steps.
        noise_ranks: about how many ranks the typical noise is taken of. Chosen to bound the computation in large runs:
            the noise of the others is typical, so that of some of them suffices.
        onset_clip_excess: times the present excess that one step counts to the onset's CUSUM at most. Without a limit
            near the excess, a step that is long by chance before the onset of a small lateness is taken for the onset.
            Own calibration ("Calibrations"): a higher limit loses more of these onsets than it gains of ranks whose
            lateness differs from step to step.
        onset_least_share: excess that the CUSUM takes for the present level at least. Chosen, not measured: the
            sum's cap is in proportion to it, so at 0 the onset would always be the last step.
    """

    warm_up_steps: int = 20
    window_steps: int = 20
    floor_ratio: float = 1.10
    noise_errors: float = 4.5
    high_step_ratio: float = 1.05
    steady_share: float = 0.6
    noise_ranks: int = 64
    onset_clip_excess: float = 2.0
    onset_least_share: float = 0.01

    @property
    def verdict_steps(self) -> int:
        """Steps that the earliest verdict takes: a window, and one more step for each further confirmation."""
        return self.window_steps + ALERTS.confirmations - 1


SUSTAINED = SustainedPolicy()


class StragglerPolicy(Struct, frozen=True):
    """How steady stragglers and late hosts are described ("Steady stragglers").

    Attributes:
        onset_windows: windows after its confirmation in which an onset may still be corrected. Chosen, not measured:
            two windows later a window holds late steps only.
        for_good_windows: windows in a row after which a rank that was known to come and go is late for good. Chosen,
            not measured: fewer report each longer phase of such a rank as a new straggler.
        least_share: share of a step that an excess must have. Below 2 % it is exit skew and noise ("Facts about
            synchronous steps").
        host_late_share: share of the others' work by which each rank of a late host must be late. Chosen, not measured.
        host_alike_share: share of the host's own lateness by which its ranks must be late. Chosen, not measured: where
            one rank is late by far more than another, it is not the host.
        host_still_late_share, host_still_alike_share: the same for a host that has been named. They are chosen at half,
            so that a host at the edge is not named again and again.
        host_share: share of a host's ranks from which the host is meant. Chosen, not measured: on a host of eight ranks
            one may differ.
        given_more_share: share of samples that a rank must have more than the others to have uneven work. Chosen.
        by_design_share: part of its lateness that these samples must make up, to be its reason. Chosen, not measured:
            a lower share excuses ranks that are slow as well.
        stands_out_ratio: times what the host is late by from which its latest rank is mentioned. Chosen, not measured.
        alone_share: part of the cost from which fixing this rank alone needs no figure of its own. Chosen.
        beside_ranks: late ranks up to which that figure is computed. Chosen, not measured: more would tell nothing, and
            each costs a pass over all ranks.
    """

    onset_windows: int = 2
    for_good_windows: int = 50
    least_share: float = 0.02
    host_late_share: float = 0.05
    host_alike_share: float = 0.5
    host_still_late_share: float = 0.025
    host_still_alike_share: float = 0.25
    host_share: float = 7 / 8
    given_more_share: float = 0.05
    by_design_share: float = 0.75
    stands_out_ratio: float = 1.5
    alone_share: float = 0.8
    beside_ranks: int = 16


STRAGGLER = StragglerPolicy()


class LatenessPolicy(Struct, frozen=True):
    """How a lateness is measured: its phase, its agreement with the waits, its cost ("Agreement and phase", "Cost").

    Attributes:
        cost_steps: newest steps since the onset that a cost is summed over. Chosen, not measured: more steps make the
            cost steadier, fewer make it follow a change sooner.
        sampled_ranks: ranks that are asked what is normal, of more. Chosen to bound the computation in large runs.
        most_share: share of the excess that a phase must hold to be named, or a cause to be certain. Chosen: most of
            it, with room for noise ("Sources of the thresholds").
        waits_share: share of the excess that must be missing from the rank's waits, so that the others wait for it.
            Chosen, not measured: a higher share leaves more stragglers unattributed.
        tells_share: share of the excess that the phases on record, or garbage collection, must hold to explain it.
            Chosen, not measured: from half on nothing else holds more.
        heavy_ratio: times what a rank is usually late by, above which all of a step's lateness counts. Chosen, not
            measured: a lower ratio counts more of the ordinary scatter as lateness.
        hidden_share: share of the excess by which the transfer must have become shorter to hide it. Chosen, not
            measured: less may be chance.
        usual_transfer_steps: steps before the onset that the usual transfer is the median of. Chosen, not measured.
        host_as_long_ratio: host time over the device's from which the launches set the pace of a phase. Chosen, not
            measured: a ratio of 1 would leave no room for noise.
    """

    cost_steps: int = 100
    sampled_ranks: int = 256
    most_share: float = 0.8
    waits_share: float = 0.5
    tells_share: float = 0.5
    heavy_ratio: float = 3.0
    hidden_share: float = 0.25
    usual_transfer_steps: int = 50
    host_as_long_ratio: float = 0.9


LATENESS = LatenessPolicy()


class IntermittentPolicy(Struct, frozen=True):
    """When a rank that is late in some of the steps is named ("Intermittent stragglers").

    Fields with `rare_` stand for those without it in every window but the shortest: what is rare must be large.

    Attributes:
        confirmations: judgements that must say yes. Chosen, not measured: each one holds a guard against chance.
        windows_steps: steps of a judgement, each window twice the one before. The longer ones see what is rarer.
        every_steps: steps from one judgement to the next. Chosen to save time: a verdict comes up to four steps later.
        saved_share: share of the job's time that fixing the rank, or the group, must save. The what-if formula gave
            57.4 % for an injected slow worker, and 1.0 % or less for healthy groups ("Sources of the thresholds").
        hit_share, rare_hit_share: part of a typical step by which the longest rank must exceed the next. The first also
            holds for a pair, where the slow one must exceed its own median by it. Chosen.
        often_share, rare_often_share: share of a window's steps in which the rank must be that late. Chosen.
        fewest_steps: late steps below which no window is judged. Chosen, not measured: fewer may be coincidence.
        clip_ratio, rare_clip_ratio: times the typical step that a step counts at most, so that one huge step proves
            nothing. Chosen, not measured.
        chance, rare_chance: probability of so many late steps by chance, below which the rank is named. Chosen, not
            measured: it must be small because every rank is judged every five steps.
        most_ranks: ranks that are named at most, and at most half of all. Chosen, not measured.
        quiet_steps: steps without a late one after which it is over at the earliest. Chosen, not measured.
        quiet_gaps: mean gaps without a late step after which it is over. Chance by itself leaves about four.
        kept_gaps: newest gaps that the mean is taken of. Chosen, not measured: fewer make the mean noisier.
        described_steps: newest late steps that measures and cost are of. Chosen, as `LATENESS.cost_steps`.
        large_quantile: quantile of a rank's gaps to the next that tells how late it is if it is really late. Chosen.
        real_share: part of that below which a late step is noise. A rank that is late is so by much the same. Chosen.
    """

    confirmations: int = 1
    windows_steps: tuple[int, ...] = (50, 100, 200, 400)
    every_steps: int = 5
    saved_share: float = 0.05
    hit_share: float = 0.10
    rare_hit_share: float = 0.4
    often_share: float = 0.10
    rare_often_share: float = 0.03
    fewest_steps: int = 6
    clip_ratio: float = 2.0
    rare_clip_ratio: float = 5.0
    chance: float = 1e-5
    rare_chance: float = 1e-4
    most_ranks: int = 8
    quiet_steps: int = 30
    quiet_gaps: int = 6
    kept_gaps: int = 30
    described_steps: int = 100
    large_quantile: float = 0.75
    real_share: float = 0.5


INTERMITTENT = IntermittentPolicy()


class TogetherPolicy(Struct, frozen=True):
    """When ranks that are late in the same steps are named ("Ranks that are late together").

    Attributes:
        windows_steps: steps of a judgement, the shorter window first. Chosen, not measured.
        least_ranks: ranks that a run must have, so that half of them can be a group of two.
        long_share: part of the typical step by which a step, or a rank in it, must be longer. Chosen, not measured.
        mostly_share: share of the long steps in which a rank, and of the group that in a step, must be late. Chosen.
        as_late_share: part of the last rank's lateness by which the others of the group must be late. Chosen.
    """

    windows_steps: tuple[int, ...] = (50, 200)
    least_ranks: int = 4
    long_share: float = 0.25
    mostly_share: float = 0.7
    as_late_share: float = 0.5


TOGETHER = TogetherPolicy()


class HiddenPacePolicy(Struct, frozen=True):
    """When a rank is said to set the pace though nothing shows what the others need ("Own pace on devices").

    Attributes:
        window_steps: steps of a judgement. Chosen, not measured.
        every_steps: steps from one judgement to the next. Chosen, not measured.
        worth_pct: percent of the job's time that fixing it may save: twice what is a warning.
        nothing_pct: percent that fixing it saves for certain, at most: less than anything that is reported.
        mostly_share: share of the window's steps in which its host must be close to its device. Chosen, not measured.
    """

    window_steps: int = 50
    every_steps: int = 10
    worth_pct: float = 10.0
    nothing_pct: float = 1.0
    mostly_share: float = 0.8


HIDDEN_PACE = HiddenPacePolicy()


class OwnPacePolicy(Struct, frozen=True):
    """How the own pace of a rank on a device is known (docs/gpu.md "Own pace"), over `SUSTAINED.window_steps`.

    Attributes:
        in_step_share, in_step_ms: lead up to which a host is in step with its device: part of a step, and at least so
            many ms, since a kernel starts about 10 µs behind its launch.
        far_ahead_share: lead, as part of a step, from which the device finds all kernels launched. Chosen.
        mostly_share: share of the steps from which a host counts as in step, as far ahead, or as close to its device.
            Chosen: the majority.
        clean_share: part of an interval that a wait may overlap: at most the smallest excess that is reported.
        tiny_ms: the least that this part is taken of. A shorter interval is a few launches, whose share means nothing.
        enough_samples: clean samples from which their median is the host's time. Chosen: of two, each moves the median.
        noise_every_steps: steps from one look at the scatter of the samples to the next. Chosen to save time.
        sample_errors: standard errors by which the median of few samples may be off. Two: 95 %.
        few_samples_ratio: times the longest of fewer samples that the host needs at most. Chosen, not measured.
        newest_samples: values whose median shows at once that a host, or a device, has become slower. Chosen.
        slowed_ratio: times its newest samples that a phase may take now before that is no noise. 10 %, as for a
            straggler: less is noise of one sample and of the medians of five.
        outlier_ratio: times the median that a value counts at most in a typical mean. Chosen, not measured.
        queue_ms: host time of a phase from which its launches may fill the launch queue, so that a host waits for its
            own device and looks slow: the queue holds 1,024, and a launch through torch takes 5 µs or more.
        new_kernels_share: change of the kernels' time that a new shape of the work explains and noise does not. Chosen.
    """

    in_step_share: float = 0.02
    in_step_ms: float = 0.03
    far_ahead_share: float = 0.25
    mostly_share: float = 0.5
    clean_share: float = 0.02
    tiny_ms: float = 0.02
    enough_samples: int = 3
    noise_every_steps: int = 5
    sample_errors: float = 2.0
    few_samples_ratio: float = 1.1
    newest_samples: int = 5
    slowed_ratio: float = 1.10
    outlier_ratio: float = 3.0
    queue_ms: float = 5.0
    new_kernels_share: float = 0.25


OWN_PACE = OwnPacePolicy()


class CausePolicy(Struct, frozen=True):
    """When a machine's figures or its contention explain a lateness ("Causes"). `LATENESS.most_share` makes it certain.

    Attributes:
        some_share: share of the excess from which a cause is likely. Chosen, not measured.
        near_steps, near_ms: how long before the lateness a reason may begin: the larger of both. Chosen, not measured.
        after_steps, after_ms: how much later than the lateness a reason may be noticed: the larger of both. A host is
            heard once a second; five seconds are chosen, and seven are too late.
        met_share: share of a job's ranks that a reason must act on to slow the whole job. Chosen: half of them.
        stopped_pct: percent of the time that a quota must stop a thread for longer than usual, so that its waiting for
            a CPU is the quota's doing, too. Chosen, not measured.
        sampled_ranks: how many ranks at most tell for the others. Chosen to bound the computation in large runs.
    """

    some_share: float = 0.3
    near_steps: int = 20
    near_ms: float = 10_000.0
    after_steps: int = 3
    after_ms: float = 5_000.0
    met_share: float = 0.5
    stopped_pct: float = 2.0
    sampled_ranks: int = 64

    def near(self, step_ms: float) -> float:
        """How many steps before its effect a reason may begin."""
        return max(self.near_steps, self.near_ms / max(step_ms, 1e-3))

    def after(self, step_ms: float) -> float:
        """How many steps after its effect a reason may be noticed."""
        return max(self.after_steps, self.after_ms / max(step_ms, 1e-3))


CAUSE = CausePolicy()


class CalmPolicy(Struct, frozen=True):
    """When the work of ranks of whom nobody is named counts as even, for the sentence of a run without findings.

    Attributes:
        uneven_pct: percent by which the median work of a rank may lie from that of all ranks. It is the excess of
            `SustainedPolicy.floor_ratio`, from which a rank that works longer is late: a rank within it is not.
    """

    uneven_pct: float = 10.0


CALM = CalmPolicy()
