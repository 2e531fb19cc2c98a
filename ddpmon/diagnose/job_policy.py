"""The thresholds of the rules on the job as a whole: its pace, uneven work, pauses, losses, and advice.

Every field has its unit in its name. "Chosen, not measured" says that no source is known for a value.
"""

from __future__ import annotations

from msgspec import Struct


class PacePolicy(Struct, frozen=True):
    """When the job is slower than it was, or its network is (docs/detection.md "The run against its own past").

    Attributes:
        baseline_steps: usable steps of the baseline, and of the longer window that is compared with it. Chosen, not
            measured: a longer baseline is surer, and delays the first verdict.
        rise_ratio: level against the baseline from which a rise over `baseline_steps` counts, and from which the job is
            slower for the same number of samples. 10 % is the size from which a change is real (docs/detection.md
            "Sources of the thresholds", "verify by 10 %").
        steep_ratio: the same for the shorter window of the steady rule, so that a large rise is seen sooner. Chosen,
            not measured: a smaller value finds every wandering of the job's pace.
        cusum_slack_sigmas: k of the CUSUM, in robust standard deviations of the baseline: what a value may be above the
            baseline without adding to the sum. With `cusum_alarm_sigmas` it gives 4.6e7 values between two false alarms
            of Gaussian noise (docs/detection.md "Calibrations", CUSUM); 0.5 would give 19,000.
        cusum_alarm_sigmas: h of the CUSUM, in the same unit: the sum above which it raises an alarm.
        cusum_most_sigmas: the most that the sum can be. Each value like the baseline takes `cusum_slack_sigmas` from
            it, so after thirty such values a rise is over for the sum, however long it lasted, and the next one is
            another. That it is thirty is chosen, not measured.
        clip_sigmas: what one value counts at most, above and below the baseline. One value adds at most three, so an
            alarm takes at least three high values: real noise has heavy tails. The delays in docs/detection.md
            "Calibrations" are measured with it.
        least_noise_share: the least scatter that the baseline is given, of its median. Without it a series that hardly
            varies makes every small change an alarm. The value is chosen, not measured.
        explained_share: the part of a rise from which one thing explains it: the transfer, which makes it a slow
            network alone, or a phase, which is then named. Most of it, with room for noise (docs/detection.md "Sources
            of the thresholds", 80 % of the excess).
        network_least_pct: percent of a step by which the transfer must have risen. Chosen, not measured: it is also the
            size below which a lateness is noise (docs/detection.md "Facts about synchronous steps", fact 3).
        spread_share: the part of a rise from which the spread of the ranks' work accounts for it. A network is slow
            only if the spread has risen by no more than this part of the transfer's rise (docs/detection.md "Facts
            about synchronous steps", fact 4); a longer step is waiting if the spread has risen by this part of it or
            more. One half is chosen, not measured.
        risen_quantile: quantile of the values since the onset, of the last `baseline_steps` at most, that stands for
            the level of the rise. At 0.75 it is that level as long as no more than three quarters of the values have
            come down again. A smaller value loses the level sooner; the value is chosen, not measured.
        passing_ms: what a rise must have cost the job in total to be more than information. Chosen so that a slow
            moment of the machine raises no warning. A limit on how long a rise has lasted (10 s) left 0.5 warnings in
            1,000 steps of four ranks that compute on two cores, against 1.3 with this one; with this one a large rise
            warns sooner (docs/measured/accuracy.md "Real trainings").
        led_share, led_steps: if one rank worked longest in this share of at least so many of the last steps that are
            longer than before, these do not show that the job is slower: that rank is late, and about to be named. Of
            two ranks that take turns at random one leads so often by chance with a probability of 0.8 % in 8 steps,
            and of 0.04 % in 20.
    """

    baseline_steps: int = 50
    rise_ratio: float = 1.10
    steep_ratio: float = 1.20
    cusum_slack_sigmas: float = 1.0
    cusum_alarm_sigmas: float = 8.0
    cusum_most_sigmas: float = 30.0
    clip_sigmas: float = 4.0
    least_noise_share: float = 0.01
    explained_share: float = 0.8
    network_least_pct: float = 2.0
    spread_share: float = 0.5
    risen_quantile: float = 0.75
    passing_ms: float = 3000.0
    led_share: float = 0.9
    led_steps: int = 8


PACE = PacePolicy()


class UnevenWorkPolicy(Struct, frozen=True):
    """When the ranks' work is uneven and nobody in particular is late (docs/detection.md "Uneven work").

    Attributes:
        window_steps: steps of one judgement. Chosen, not measured: with fewer, a rank that is last now and then holds a
            larger part of the imbalance by chance.
        every_steps: steps from one judgement to the next. Chosen, not measured: fewer make the judgements that confirm
            an alert more alike.
        least_imbalance_share: imbalance, of 1, from which it is reported; it is over below half of that. Chosen,
            not measured; it is also the size from which a change is real (docs/detection.md "Sources of the
            thresholds").
        own_share: the part of the imbalance that one rank may hold beyond an equal share. With more than that it is
            somebody in particular: persistence, not size, tells a bad rank from uneven work (docs/detection.md "Facts
            about synchronous steps", fact 5). One half is chosen, not measured.
    """

    window_steps: int = 50
    every_steps: int = 5
    least_imbalance_share: float = 0.10
    own_share: float = 0.5


UNEVEN_WORK = UnevenWorkPolicy()


class PastPausePolicy(Struct, frozen=True):
    """Which pauses that are over are reported (docs/findings.md "pause").

    Attributes:
        worth_pct: percent of the recorded time from which pauses are reported for as long as they are on record.
            Chosen, not measured.
        lately_steps: for so many steps after its last occurrence a pause is reported whatever it cost. Chosen, not
            measured.
        pause_ratio: a step is a pause by itself if one rank holds the others up for so many times the median step.
            Chosen, not measured: a smaller value reports single long steps, which are normal.
        pause_ms: and for at least so long, since ten steps of a fast job are nothing. Chosen, not measured.
        stall_ratio: from so many times the median step on a step is a stall. Shorter than a pause, stalls are reported
            for what they cost together. Chosen, not measured.
        stall_ms: and from so long on, for the same reason as `pause_ms`. Chosen, not measured.
        fewest_stalls: stalls of one rank from which they are reported together. Chosen, not measured.
        stalls_pct: percent of the recorded time that they must cost together. Chosen, not measured; it is also the cost
            below which nothing is a warning (docs/detection.md "Sources of the thresholds").
        stalls_share: the most steps, of those since the first stall, that may hold one. A rank that is late more often
            comes and goes and does not pause. The rule on intermittent stragglers judges from one step of ten on in its
            shortest window, and from 3 % in longer ones. Chosen, not measured.
        most_long_steps: so many of the newest long steps are looked at, which bounds the work of one judgement. At most
            2,048 steps are on record, and what is long in more than one of ten is no pause.
        most_ranks: so many ranks are reported, those that held the others up for the longest. It bounds the number of
            alerts. Chosen, not measured.
        blinding_share: the part of the steps, since the first pause of a name that one rank has, from which these
            pauses keep the ranks from being compared. The same value from which a named phase of the typical rank is
            part of its work (docs/detection.md "Usable steps"); the steps with one rank's phase are left out instead.
    """

    worth_pct: float = 1.0
    lately_steps: int = 50
    pause_ratio: float = 10.0
    pause_ms: float = 500.0
    stall_ratio: float = 3.0
    stall_ms: float = 100.0
    fewest_stalls: int = 3
    stalls_pct: float = 5.0
    stalls_share: float = 0.1
    most_long_steps: int = 256
    most_ranks: int = 4
    blinding_share: float = 0.4


PAST_PAUSES = PastPausePolicy()


class GcPolicy(Struct, frozen=True):
    """When Python's garbage collector costs the job time (docs/findings.md "gc_pauses").

    Attributes:
        window_steps: usable steps of a judgement. Chosen, not measured: in fewer steps, rare collections never make up
            `fewest_pauses`.
        info_pct: percent of the time of these steps that the job would have saved, from which it is reported. Chosen,
            not measured.
        fewest_pauses: so many steps must hold a pause. Chosen, not measured: with a smaller value a single collection
            in a short record is reported.
        pause_share: a step holds a pause if the job would have saved this part of the median step. Chosen, not
            measured; it is also the size below which a lateness is noise (docs/detection.md "Facts about synchronous
            steps", fact 3).
        pause_ms: and at least so long, so that short collections in a fast job do not count. Chosen, not measured.
        most_ranks: so many ranks are named, worst first. It bounds what is shown. Chosen, not measured.
    """

    window_steps: int = 500
    info_pct: float = 1.0
    fewest_pauses: int = 3
    pause_share: float = 0.02
    pause_ms: float = 1.0
    most_ranks: int = 8


GC = GcPolicy()


class LossPolicy(Struct, frozen=True):
    """When a loss has jumped, and how long one that was not finite stays a warning (docs/findings.md "loss_jump").

    Attributes:
        baseline_values: logged values before a jump that it is compared with; after so many normal ones in a row it is
            over. Chosen, not measured: more of them follow a falling loss more slowly, so the limit stays higher.
        enough_values: the least of these that make a baseline. Chosen, not measured.
        lasting_values: logged values in a row that must be above the limit: a single bad batch is no jump. Chosen, not
            measured.
        rise_ratio: by how many times the size of the median a value must exceed it. With 4.0 a loss that is positive
            must be five times what it was. Chosen, not measured.
        rise_sigmas: and by how many robust standard deviations of the baseline, for losses near zero or below it, whose
            median tells nothing of their size. Chosen, not measured.
        least_rise: and by how much at least, in the unit of the loss: a loss that has been exactly zero has neither
            size nor scatter. Chosen, not measured.
        block_values: so many logged values are judged at once, against the same baseline. Chosen, not measured: with
            more of them the baseline of the last ones is older; with fewer a long record takes longer to judge.
        fresh_steps: for so many steps after the last loss that was not finite it stays a warning, if finite ones have
            come since; after that it is information. Chosen, not measured.
    """

    baseline_values: int = 50
    enough_values: int = 20
    lasting_values: int = 3
    rise_ratio: float = 4.0
    rise_sigmas: float = 10.0
    least_rise: float = 1e-6
    block_values: int = 25
    fresh_steps: int = 200


LOSSES = LossPolicy()


class AdvicePolicy(Struct, frozen=True):
    """From which figures on a setting is proposed (docs/findings.md "Advice").

    Attributes:
        window_steps: usable steps whose medians the advice rests on. Chosen, not measured.
        every_steps: steps from one judgement to the next. Chosen, not measured: the figures are medians and change
            slowly.
        notable_share: the part of a step that input or transfer must take. Chosen, not measured: a smaller value
            proposes settings that gain little.
        large_share: the same for advice that changes the training (fewer reductions, larger batches), which must be
            worth more. Chosen, not measured.
        small_bucket_bytes: a bucket with fewer bytes than this is small. Chosen, not measured.
        compressible_bytes: gradients of a reduction with at least so many bytes are worth sending in half precision.
            Chosen, not measured.
        splittable_bytes: a single bucket with at least so many bytes can be split. Chosen, not measured: the proposal
            is in whole MiB.
        many_buckets: from so many buckets on larger ones are proposed. Chosen, not measured.
        usual_buckets: so many buckets a proposed size makes, and all but one of them are taken to overlap with
            backward. Chosen, not measured: more of them promise a larger gain.
        slow_link_gb_s: bus bandwidth in GB/s below which the network between hosts is slow: what a network of 10 Gbit/s
            carries.
        full_memory_share: the part of a GPU's memory from which it is nearly full. Chosen, not measured.
    """

    window_steps: int = 50
    every_steps: int = 10
    notable_share: float = 0.10
    large_share: float = 0.25
    small_bucket_bytes: int = 4 << 20
    compressible_bytes: int = 4 << 20
    splittable_bytes: int = 2 << 20
    many_buckets: int = 8
    usual_buckets: int = 4
    slow_link_gb_s: float = 1.25
    full_memory_share: float = 0.85


ADVICE = AdvicePolicy()
