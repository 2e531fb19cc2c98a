"""The thresholds of the rules on the hosts of a run (ddpmon/diagnose/contention), one class for each family of rules.

docs/findings.md "Contention" says what the findings mean to a user. The limits that `ddpmon doctor` and the hosts
screen use, too, are in ddpmon/run/limits.py. A frame of a host is published once a second. A reading is one time that
a sensor has been read. A round is one row of the figures of all ranks' processes, about one a second.
"""

from __future__ import annotations

from msgspec import Struct


class ContentionPolicy(Struct, frozen=True):
    """How much evidence begins and ends a contention (docs/findings.md "Contention").

    Attributes:
        confirming_readings: readings in a row that must show a contention before it is reported, and that must not
            show it before it is over. Two readings can be one sudden value, such as a daemon that works for a second.
            Three is chosen, not measured. Each further reading delays the report by 1 s for figures of the ranks, by
            2 s or more for disks and foreign processes, and by 10 s for PCIe links.
        sufficient_readings: readings that suffice where one is proof: errors that a GPU has counted, processes that
            the kernel has killed, a port that is taken, and growth that was judged over several rounds already.
        clearing_frames: frames of a host in a row that must not show a contention before it is over, about 10 s. A
            contention that comes and goes within that time stays one contention. Chosen, not measured: a smaller
            value reports such a contention again and again, and a larger one shows it longer after its end.
        unread_frames: frames of a host in a row for which a foreign process on a GPU stands while its sensor tells
            nothing, about a minute. Chosen, not measured: a smaller value ends and begins the contention with every
            gap, and a larger one shows it longer after an end that nobody has seen.
    """

    confirming_readings: int = 3
    sufficient_readings: int = 1
    clearing_frames: int = 10
    unread_frames: int = 60


class ReadingPolicy(Struct, frozen=True):
    """How long it takes at least until there is a new reading, which is told beside a contention that is pending.

    Attributes:
        frame_s: seconds between two frames of a rank or a host, and between two readings of what has no slower sensor.
        processes_s: seconds between two readings of the foreign processes (ddpmon/sensors/busiest.py). Where a reading
            takes more than 0.2 % of that time, they are further apart.
        disk_s: seconds between two readings of a disk (ddpmon/sensors/sampler.py).
        link_s: seconds between two readings of a PCIe link, which is read every tenth time.
    """

    frame_s: float = 1.0
    processes_s: float = 2.0
    disk_s: float = 2.0
    link_s: float = 10.0


class HistoryPolicy(Struct, frozen=True):
    """How long the figures of the ranks' processes are kept, and what of them is usual.

    Attributes:
        round_gap_s: seconds of the watcher's clock between two rounds at least. Ranks publish every second and a
            watcher may look more often. The value is chosen, not measured: a gap above 1 s can skip every other frame
            of the ranks, and a much smaller one fills the kept rounds with figures that are not new.
        recent_rounds: rounds that are kept whole, about 10 s. The figures that explain a lateness are means over them
            (docs/detection.md "Causes"). Chosen, not measured: fewer rounds give a noisier mean, and more mix in what
            was before the lateness. It must not be below `GrowthPolicy.quick_rounds`.
        stride_rounds: of so many rounds one is kept for minutes. Chosen, not measured: a smaller value keeps a shorter
            time at the same memory.
        long_rows: rounds that are kept for minutes. With `stride_rounds` they hold 8 min and take 1.2 kB a rank.
            Chosen, not measured: more rows remember a longer past, for slow growth and for what is usual, and take more
            memory.
        fastest_share: share of the kept rounds, those with the fastest steps, whose median is what is usual. A trouble
            that lasted a while makes steps slow and must not become the measure of the next one. Chosen, not
            measured: a larger share lets shorter troubles in, and a smaller one leaves fewer values for the median.
    """

    round_gap_s: float = 0.9
    recent_rounds: int = 10
    stride_rounds: int = 10
    long_rows: int = 48
    fastest_share: float = 0.25


class GrowthPolicy(Struct, frozen=True):
    """When a rank whose memory grows is named.

    The growth must show in the rank and in the memory that is left, which the page cache does not touch. Growth before
    the end of the warm-up does not count.

    Attributes:
        quick_rounds: rounds in a row in each of which quick growth must rise, about 7 s. Chosen, not measured: a
            single jump of a second or two does not last for so many, and with more of them less time is left when the
            rank is named. A rank that grew towards its limit was named after 8 s (docs/measured/accuracy.md
            "Contention").
        quick_left_s: quick growth is reported if the memory is full within so many seconds. Chosen, not measured: a
            few seconds of growth say little about a later time, so a larger value reports growth that ends by itself.
        quick_rise_bytes: the least quick growth over all of its rounds. Less is not told from noise. Chosen, not
            measured.
        slow_rows: kept rounds over which slow growth is judged at least, 2 min at a `stride_rounds` of 10. Chosen, not
            measured: with fewer of them the verdict comes earlier and rests on less.
        slow_left_s: slow growth is reported if the memory is full within so many seconds. Chosen, not measured: a
            larger value also reports growth that a shorter run survives.
        slow_rise_bytes: the least slow growth over the kept rounds. Less is not told from noise. Chosen, not measured.
        slow_parts: equal parts of the kept rounds. Slow growth must rise from each part to the next. One jump, or
            growth that has ended, does not rise in every part. Chosen, not measured.
        least_rise_share: share of the mean rise from part to part that each rise must reach. Chosen, not measured: 1
            would demand a perfectly even growth, and 0 would admit one jump beside a slight growth.
        imminent_s: growth is critical if the memory is full within so many seconds. Chosen, not measured: it is half
            of `quick_left_s`, so quick growth is a warning before it is critical.
    """

    quick_rounds: int = 7
    quick_left_s: float = 120.0
    quick_rise_bytes: int = 8 << 20
    slow_rows: int = 12
    slow_left_s: float = 3600.0
    slow_rise_bytes: int = 64 << 20
    slow_parts: int = 4
    least_rise_share: float = 0.5
    imminent_s: float = 60.0


class CpuPolicy(Struct, frozen=True):
    """When a rank is short of CPU time, and when foreign processes are the reason.

    Attributes:
        wait_pct: percent of the time from which a rank waits for a CPU: its training thread is ready to run and has
            none. Alone on its core it hardly waits. Chosen, not measured.
        any_wait_pct: the same, summed over all threads of the process, so it may exceed 100. Threads that the step does
            not wait for count, too. The value, twice `wait_pct`, is chosen, not measured.
        throttled_pct: percent of the time from which a CPU quota that stops a rank is reported. Chosen, not measured.
            It equals `wait_pct`, and a thread that a quota stops loses time as one that waits for a CPU does.
        crowd_share: share of the ranks with the same CPUs that must wait before these ranks are said to crowd
            themselves. A single one that waits is not the crowd's doing. The value, half, is chosen, not measured.
        raised_points: percentage points by which a rank must wait longer than the other ranks, or than is usual for it
            itself, before foreign processes are blamed. Chosen, not measured: a wait that all ranks always have is
            due to the ranks themselves.
        clear_wait_pct: percent of the time from which a wait needs neither of these comparisons, if the ranks' own
            threads would fit on their CPUs. It finds foreign processes that were there before the run. The value,
            twice `wait_pct`, is chosen, not measured.
        least_taken_pct: percent of a core from which one foreign process counts. The sampler of the host lists none
            that uses less (ddpmon/sensors/busiest.py), so a lower value would change nothing for a process that can
            only run on the ranks' CPUs. Chosen, not measured: a larger value misses the sum of many small processes.
    """

    wait_pct: float = 5.0
    any_wait_pct: float = 10.0
    throttled_pct: float = 5.0
    crowd_share: float = 0.5
    raised_points: float = 5.0
    clear_wait_pct: float = 10.0
    least_taken_pct: float = 5.0


class GpuPolicy(Struct, frozen=True):
    """When a GPU's clock or link is too slow, and when an idle process on it is left over from an earlier run.

    Attributes:
        loaded_pct: utilisation in percent from which the clock of a GPU can be compared. An idle GPU lowers its clock
            to save power. The value is chosen, not measured.
        low_clock_ratio: ratio to the peers' median clock below which a clock is low. From this ratio to its own
            maximum on, no clock is low. Work of a fixed number of cycles takes 11 % longer at 0.9 (docs/detection.md
            "Causes"), which is about the 10 % from which a rank is a straggler (docs/detection.md "Sources of the
            thresholds"). The value is chosen, not measured.
        width_load_pct: utilisation in percent from which a PCIe link with fewer lanes than possible is reported.
            Chosen, not measured: 0 would also report idle GPUs, and a larger value misses GPUs that often wait for
            their input.
        generation_load_pct: utilisation in percent from which a lower PCIe generation is reported. GPUs lower it to
            save power while they are idle, so it is judged under high load only. The value is chosen, not measured.
        generation_frames: frames in a row that must show a lower PCIe generation if the host does not count the
            readings of the link. A link is read every tenth time only, so ten frames in a row repeat one or two
            readings. The load is new in every frame and must last for all of them.
        leftover_readings: readings in a row in which a process must be idle before it is taken for one that an
            earlier run has left. A process that works now and then must not be called left over, so there are more
            than `ContentionPolicy.confirming_readings`. The value is chosen, not measured.
    """

    loaded_pct: float = 50.0
    low_clock_ratio: float = 0.9
    width_load_pct: float = 20.0
    generation_load_pct: float = 80.0
    generation_frames: int = 10
    leftover_readings: int = 8


class MemoryPolicy(Struct, frozen=True):
    """When memory that is nearly full is critical, who is named for it, and when shared memory is too small.

    Attributes:
        brim_share: used share of a limit of memory, of a host or a cgroup, from which a shortage is critical. A
            shortage is reported from `ddpmon.run.limits.FULL` on, 95 %. The value is chosen, not measured.
        culprit_share: share of the host's memory from which the foreign process with the most memory is named. Chosen,
            not measured: a smaller value names a process that matters little, and a larger one names none where
            several hold the memory together.
        shm_brim_share: free share of /dev/shm below which a shortage is critical, if processes below the ranks may
            pass batches through it. Such a run ends with a bus error when /dev/shm is full. The value is chosen, not
            measured.
        shm_docker_bytes: total size of /dev/shm up to which it is too small for DataLoader workers. 64 MiB is what
            Docker gives to a container without `--shm-size`.
    """

    brim_share: float = 0.98
    culprit_share: float = 0.1
    shm_brim_share: float = 0.02
    shm_docker_bytes: int = 64 << 20


class DiskPolicy(Struct, frozen=True):
    """When a disk is nearly full or slow.

    Attributes:
        brim_free_bytes: free bytes below which a low disk is critical. Chosen, not measured: the size of the run's
            checkpoints is not known, and a run with larger ones fails while the finding is still a warning.
        written_bytes: a disk with nothing but data that is read counts as low only if so much less is free than at
            the most, since such a disk may be nearly full for good. Chosen, not measured: a smaller value takes the
            small files of other users for a disk that fills.
        busy_pct: percent of the time from which a disk is busy. It is no proof, because a disk that serves several
            requests at once can be busy all the time and fast. So `wait_ms` must be reached, too. The value is
            chosen, not measured.
        wait_ms: milliseconds that a request waits from which a busy disk is slow. Chosen, not measured: a disk that
            answers sooner is not reported, however busy it is.
        slower_ratio: ratio to the usual wait from which a disk is slower than usual. A disk that is always as slow
            explains no new lateness. The value is chosen, not measured.
        waits_kept: waits whose median is the usual one, each from a reading while no rank is late in `input` or
            `other`. At one reading in 2 s they hold about 2 min. Chosen, not measured: with fewer of them a short
            trouble becomes the usual wait.
        fewest_waits: waits from which on that median is known, about 20 s. With fewer a disk is judged without it,
            and not during the first pass over the data, when no cache helps. Chosen, not
            measured.
    """

    brim_free_bytes: int = 512 << 20
    written_bytes: int = 256 << 20
    busy_pct: float = 80.0
    wait_ms: float = 50.0
    slower_ratio: float = 3.0
    waits_kept: int = 64
    fewest_waits: int = 10


class NetworkPolicy(Struct, frozen=True):
    """When a network interface loses packets, and when a host sends too many TCP segments again.

    The counters of an interface count from the start of the host, so only their growth is trouble.

    Attributes:
        window_frames: newest frames of a host in which the growth of its counters is judged, about 10 s. Chosen, not
            measured: over a longer window the finding lasts longer after the last error.
        growing_frames: frames of the window in which a counter must have grown. One burst, however large, is over.
            The value is chosen, not measured.
        least_drops: dropped packets in the window from which drops count. Errors have no such limit. Chosen, not
            measured: a smaller value reports the few drops of an interface that works.
        retransmit_ratio: ratio to the median of the other hosts from which the rate of TCP segments that are sent
            again is high. What is usual for a network is known from the other hosts only. The value is chosen, not
            measured.
    """

    window_frames: int = 10
    growing_frames: int = 3
    least_drops: int = 100
    retransmit_ratio: float = 3.0


class TorchMemoryPolicy(Struct, frozen=True):
    """When the device memory of torch's tensors grows, and when a rank needs more of it than the others.

    Attributes:
        growth_window_s: seconds that a rank's growth is given for: ten times `FLOOR_S` of `probe/torch_memory.py`.
            Where the memory wavers and does not grow, the least values of eleven half minutes rise ten times in a row
            by chance once in 40 million (11!).
        growth_bytes: the least growth in these seconds. 64 MiB are 18 GiB a day, which fill a GPU of 24 GB before a
            usual run of a day has ended. Computed, not measured.
        imminent_s: growth is critical if the GPU is full within so many seconds: there is just time for a checkpoint.
            Chosen, not measured.
        first_step: from this step on peaks are compared: the optimizer has made its state, and the allocator has its
            blocks. The value of the warm-up (docs/findings.md "What is measured").
        fewest_ranks: so many ranks must be known. Of two nobody can say which one is unusual.
        uneven_bytes: by so much a peak must exceed the median of the others. Less lies within what batches of unequal
            lengths make. Chosen, not measured.
        uneven_share: and by this part of it, since 1 GiB is little on a full GPU of 80 GB. Chosen, not measured.
        recent_s: for so many seconds a peak and a retry count after they were seen: as long as growth is judged over.
            Chosen, not measured.
    """

    growth_window_s: float = 300.0
    growth_bytes: int = 64 << 20
    imminent_s: float = 600.0
    first_step: int = 20
    fewest_ranks: int = 3
    uneven_bytes: int = 1 << 30
    uneven_share: float = 0.1
    recent_s: float = 300.0


CONTENTION = ContentionPolicy()
READING = ReadingPolicy()
HISTORY = HistoryPolicy()
GROWTH = GrowthPolicy()
CPU = CpuPolicy()
GPU = GpuPolicy()
MEMORY = MemoryPolicy()
TORCH_MEMORY = TorchMemoryPolicy()
DISK = DiskPolicy()
NETWORK = NetworkPolicy()
