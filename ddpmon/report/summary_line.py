"""One line to leave behind on stdout."""

from __future__ import annotations

from ddpmon.format import clean, clock, count, figure, local_time
from ddpmon.report.past import how_ended
from ddpmon.report.verdicts import calm_sentence, figures_now, headline
from ddpmon.snapshot import Snapshot


def summary_line(snapshot: Snapshot) -> str:
    """`gpt-stdlib: running, step 1,204, 172 ms/step, 00:12:31; rank 5 (node1) is late ...`.

    A run that did not finish says who ended it and how. One whose end nobody knows is "not seen since step 1,204", with
    the reason. A moment of the past has its time behind the name.
    """
    run = snapshot.run
    if run is None:
        return clean(f"no run was seen: {snapshot.link.message}" if snapshot.link.message else "no run was seen")
    link = snapshot.link
    is_unseen = link.state == "silent" or (link.state == "gone" and run.state in ("running", "stalled", "lost"))
    stands = ["not seen since"] if is_unseen else [f"{run.state},"]
    facts = [
        *stands,
        f"step {count(run.step)}, {figure(figures_now(snapshot).step_ms)} ms/step, {clock(run.elapsed_s)}",
    ]
    reason = link.message.partition(";")[0] if is_unseen else how_ended(snapshot)
    why = f" ({reason})" if reason else ""
    worst = headline(snapshot.findings)
    replay = snapshot.replay
    is_past = replay is not None and replay.length - replay.t >= 1.0  # s: it does not stand at the last look
    name = f"{run.name} at {local_time(replay.wall)}" if replay is not None and is_past else run.name
    return clean(f"{name}: {' '.join(facts)}{why}; {worst.summary if worst else calm_sentence(snapshot)}")
