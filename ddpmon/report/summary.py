"""One line to leave behind on stdout."""

from __future__ import annotations

from ddpmon.format import clean, clock, count, figure
from ddpmon.report.verdicts import calm_sentence, headline
from ddpmon.snapshot import Snapshot


def summary_line(snapshot: Snapshot) -> str:
    """`gpt-stdlib: running, step 1,204, 172 ms/step, 00:12:31; rank 5 (node1) is late ...`."""
    run = snapshot.run
    if run is None:
        return clean(f"no run was seen: {snapshot.link.message}" if snapshot.link.message else "no run was seen")
    facts = [run.state, f"step {count(run.step)}", f"{figure(snapshot.job.step_ms)} ms/step", clock(run.elapsed_s)]
    worst = headline(snapshot.findings)
    lost = {"gone": " (the store is gone)", "silent": " (the store does not answer)"}.get(snapshot.link.state, "")
    return clean(f"{run.name}: {', '.join(facts)}{lost}; {worst.summary if worst else calm_sentence(snapshot)}")
