"""The table of all kinds of findings: what each one says, and how rules, screens, tables and documents treat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from ddpmon.schema import PHASES

KindName = Literal[
    "straggler",
    "intermittent_straggler",
    "slow_node",
    "uneven_work",
    "job_slower",
    "slow_network",
    "gc_pauses",
    "pause",
    "hang",
    "rank_failed",
    "rank_lost",
    "nonfinite_loss",
    "loss_jump",
    "uneven_inputs",
    "gpu_shared",
    "gpu_doubled",
    "gpu_leftover",
    "gpu_throttled",
    "gpu_errors",
    "pcie_degraded",
    "cpu_contention",
    "cpu_oversubscribed",
    "cpu_pinned",
    "cpu_throttled",
    "numa_misaffinity",
    "memory_pressure",
    "shm_low",
    "disk_low",
    "disk_slow",
    "nic_errors",
    "port_clash",
    "gpu_memory_growth",
    "gpu_memory_uneven",
    "monitor_degraded",
    "advice",
]
Subject = Literal["rank", "host", "job", "monitor"]
Measure = Literal["", "queue", "throttled", "clock"]

COMPUTES = frozenset({"forward", "backward", "optimizer", "work"})  # the phases in which a GPU may work
ANY_PHASE = frozenset({*PHASES, "work"})  # "work": several phases


class Kind(Struct, frozen=True):
    """One kind of finding, and everything that depends on the kind alone.

    Attributes:
        name: what `Finding.kind` holds.
        subject: whom it is about: single ranks, a host, the job as a whole, or the monitor itself.
        meaning: what a finding of this kind says, as the documents have it.
        stops_job: from this severity on it says that the job makes no progress; None: it never does.
        broken: above 0: something is broken rather than slow. Of equally severe findings the greater comes first.
        late: the ranks that it names are late, and a cause may explain it.
        slower: the job as a whole is slower than it was, and a cause may explain it.
        waited_for: the screen says that the time lost to waiting is lost for the ranks that it names.
        happens: it tells what happened at a moment, which is worth a look also when it is over.
        marks: as information it still marks the ranks and hosts that it names.
        in_tables: a table can show it, because it speaks of steps and losses, and not of processes or of the monitor.
        acts_on: the phases that it can make longer, as a cause of lateness; empty: it is no such cause.
        measure: the figure of a rank that tells how much of a lateness it carries, as a cause; empty: none does.
        precedence: of the causes that carry as much, the one with the greatest is named.
    """

    name: KindName
    subject: Subject
    meaning: str
    stops_job: Literal["info", "warning", "critical"] | None = None
    broken: int = 0
    late: bool = False
    slower: bool = False
    waited_for: bool = False
    happens: bool = False
    marks: bool = True
    in_tables: bool = False
    acts_on: frozenset[str] = frozenset()
    measure: Measure = ""
    precedence: int = 0

    @property
    def slows_gpu(self) -> bool:
        """Whether, as a cause, it makes a GPU compute longer, and nothing else."""
        return self.acts_on == COMPUTES

    @property
    def is_note(self) -> bool:
        """Whether it is a mere note as information, and never the first line: it accuses no rank and no host."""
        return self.subject in ("job", "monitor")


_SLOWNESS = (
    Kind("straggler", "rank", "every step waits for one rank", late=True, waited_for=True, in_tables=True),
    Kind(
        "intermittent_straggler",
        "rank",
        "some steps wait for one rank, or for several at once",
        late=True,
        waited_for=True,
        in_tables=True,
    ),
    Kind("slow_node", "host", "all ranks of one host are late", late=True, waited_for=True, in_tables=True),
    Kind("uneven_work", "job", "the ranks get unequal work", in_tables=True),
    Kind("job_slower", "job", "the whole run is slower than before", slower=True, in_tables=True),
    Kind("slow_network", "job", "the gradient transfer takes longer than before", slower=True, in_tables=True),
    Kind("gc_pauses", "job", "Python's garbage collector costs time", in_tables=True),
    Kind(
        "pause",
        "job",
        "an evaluation, a checkpoint or a rare long step takes time",
        happens=True,
        marks=False,
        in_tables=True,
    ),
)
_FAILURES = (
    Kind(
        "hang",
        "rank",
        "no step finishes: which rank never came, where it is, and who waits for it",
        stops_job="info",
        broken=5,
        waited_for=True,
    ),
    Kind(
        "rank_failed",
        "rank",
        "which rank failed first, with which exception, at which line",
        stops_job="info",
        broken=6,
        happens=True,
    ),
    Kind("rank_lost", "rank", "a rank is silent", stops_job="critical", broken=4),
    Kind("nonfinite_loss", "rank", "whose loss became NaN or infinite first", broken=2, happens=True, in_tables=True),
    Kind("loss_jump", "rank", "a loss jumped", happens=True, in_tables=True),
    Kind(
        "uneven_inputs",
        "rank",
        "the data of a rank ended before that of the others",
        stops_job="warning",
        broken=3,
        happens=True,
    ),
)
# Causes with the same measure carry the same share of a lateness. Of these, what others do to the rank (a quota, a
# foreign process) precedes how the ranks of the job are placed on the CPUs.
_CONTENTION = (
    Kind("gpu_shared", "host", "a foreign process uses a rank's GPU", acts_on=COMPUTES, precedence=4),
    Kind("gpu_doubled", "host", "two ranks use one GPU", acts_on=COMPUTES, precedence=3),
    Kind("gpu_leftover", "host", "an idle process of an earlier run holds memory of a rank's GPU"),
    Kind(
        "gpu_throttled",
        "host",
        "heat or a power limit lowers the clocks of a rank's GPU",
        acts_on=COMPUTES,
        measure="clock",
        precedence=5,
    ),
    Kind("gpu_errors", "host", "a GPU reports ECC or Xid errors", broken=1, happens=True),
    Kind("pcie_degraded", "host", "a GPU's PCIe link is slower than it can be", acts_on=ANY_PHASE - {"optimizer"}),
    Kind(
        "cpu_contention",
        "host",
        "foreign processes take a rank's cores",
        acts_on=ANY_PHASE,
        measure="queue",
        precedence=6,
    ),
    Kind(
        "cpu_oversubscribed",
        "host",
        "more threads and workers compute than there are usable CPUs",
        acts_on=ANY_PHASE,
        measure="queue",
        precedence=1,
    ),
    Kind(
        "cpu_pinned",
        "host",
        "too many ranks are pinned to the same CPUs",
        acts_on=ANY_PHASE,
        measure="queue",
        precedence=2,
    ),
    Kind(
        "cpu_throttled",
        "host",
        "a CPU quota stops a rank",
        acts_on=ANY_PHASE,
        measure="throttled",
        precedence=7,
    ),
    Kind("numa_misaffinity", "host", "a rank may not run on the NUMA node of its GPU", acts_on=ANY_PHASE),
    Kind("memory_pressure", "host", "a host or a container runs out of memory", acts_on=ANY_PHASE),
    Kind("shm_low", "host", "/dev/shm is too small or nearly full"),
    Kind("disk_low", "host", "a disk that the run writes to is nearly full"),
    Kind("disk_slow", "host", "a rank waits for a slow disk", acts_on=frozenset({"input", "other"})),
    Kind("nic_errors", "host", "a network interface has errors, or many packets are sent again"),
    Kind("port_clash", "job", "somebody else holds a port that the run wanted"),
)
_TORCH_MEMORY = (
    Kind("gpu_memory_growth", "rank", "the tensors of a rank take more and more device memory"),
    Kind("gpu_memory_uneven", "rank", "a rank needs more device memory than the others"),
)
_ABOUT_MONITOR = Kind("monitor_degraded", "monitor", "the monitor does not see the whole run", marks=False)
_ADVICE = Kind(
    "advice", "job", "a setting that may make the run faster, and by how much at most", marks=False, in_tables=True
)

KINDS: Mapping[KindName, Kind] = {
    kind.name: kind for kind in (*_SLOWNESS, *_FAILURES, *_CONTENTION, *_TORCH_MEMORY, _ABOUT_MONITOR, _ADVICE)
}
