"""Row 8: CUDA graphs: a capture beside the publisher, and a whole step that is captured and replayed.

Each part is a process of its own, since a capture that breaks leaves its process broken. `alone`: the training thread
captures in the strictest mode, without ddpmon. `capture`: meanwhile the publisher asks every 20 ms for events, some of
which the device has not passed. `control`: the same without what ddpmon tells the driver before; it shows that the part
could fail. `replay`: a whole step is captured and replayed for 14 s; no hook runs there, so what is said of such a
rank? All four run at the same time. On a GPU half a minute.

    python bench/gpu/row_graphs.py [--rehearse]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from course_device import Device
from course_figures import Figures, run_row
from course_job import Published, judge
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpmon.diagnose.kinds import KINDS
from ddpmon.snapshot import Finding

_PARTS = ("alone", "capture", "control", "replay")
_REPLAY_S, _REHEARSED_S = 14.0, 12.0  # a rank is stalled after 10 s
_ASK_S = 0.02
_BEHIND_MS = 400.0  # so long the events are not passed
_STEPS = 12
_PART_S = 60.0


class Job:
    """A small model and its steps."""

    def __init__(self, device: Device) -> None:
        self.monitor: Any = None
        net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))).to(device.at)
        self.ddp = DistributedDataParallel(net, device_ids=device.ids)
        self._optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-4)
        self._x = torch.randn(64, 256, device=device.at)

    def step(self) -> Any:
        """One step."""
        self._optimizer.zero_grad()
        loss = self.ddp(self._x).square().mean()
        loss.backward()
        self._optimizer.step()
        if self.monitor is not None:
            self.monitor.log(loss=loss.detach(), samples=64)
        return loss

    def steps(self, count: int) -> None:
        """Several."""
        for _ in range(count):
            self.step()


def capture(device: Device, part: str) -> str:
    """Capture beside a publisher that asks for events; returns what became of it."""
    if part == "alone":
        os.environ["DDPMON"] = "0"
    import ddpmon
    from ddpmon.probe import clock, publisher

    publisher.INTERVAL_S = _ASK_S
    if part == "control":
        clock.CudaClock.read_here = lambda self: torch.cuda.set_device(self._device)  # type: ignore[method-assign]
    job = Job(device)
    monitor = job.monitor = ddpmon.attach(job.ddp, name="graphs")
    job.steps(_STEPS)
    device.spin(_BEHIND_MS)
    job.steps(_STEPS // 2)
    y, said = torch.randn(256, 256, device=device.at), "captured"
    try:
        graph: Any = torch.cuda.CUDAGraph() if device.is_gpu else None
        around: AbstractContextManager[Any] = nullcontext()
        if graph is not None:
            around = torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="global")
        with around:
            for _ in range(20):
                y = y @ y
                time.sleep(0.05)
        if graph is not None:
            graph.replay()
        device.finish()
    except Exception as error:
        said = f"broken: {type(error).__name__}: {str(error).splitlines()[0]}"
    return said if monitor.enabled or part == "alone" else f"{said}; ddpmon stopped measuring"


def replay(device: Device) -> dict[str, Any]:
    """Capture a whole step and replay it; returns the rank's word and a watcher's."""
    import ddpmon

    own = torch.cuda.Stream() if device.is_gpu else None
    with nullcontext() if own is None else torch.cuda.stream(own):
        job = Job(device)
        monitor = job.monitor = ddpmon.attach(job.ddp, name="graphs")
        job.steps(_STEPS)
    device.finish()
    graph: Any = None
    if device.is_gpu:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                job.step()
        except Exception as error:
            return {"not captured": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    until = time.monotonic() + (_REPLAY_S if device.is_gpu else _REHEARSED_S)
    while time.monotonic() < until:
        if graph is not None:
            graph.replay()
            torch.cuda.synchronize()
        else:
            time.sleep(0.01)
    assembly = monitor._assembly
    if assembly is None:
        return {"state": "stopped measuring", "said": ""}
    draft = assembly.draft
    frame = draft.word(draft.state(), 0).whole
    said = judge([Published(draft.history_frame(), frame)], device)
    return {
        "state": frame.state,
        "phase": frame.phase,
        "step": frame.step,
        "dropped": frame.dropped_steps,
        "notes": "; ".join(frame.notes),
        "said": "; ".join(f"{each.severity} {each.kind}: {each.summary[:160]}" for each in said if _is_trouble(each)),
    }


def _is_trouble(finding: Finding) -> bool:
    """Whether it says that the job stands still."""
    return KINDS[finding.kind].stops_job is not None or finding.kind == "pause"


def play(part: str, rehearse: bool) -> None:
    """One part, in a process of its own; its last line is what it found, as JSON."""
    device = Device(rehearse)
    device.join()
    found = replay(device) if part == "replay" else {"capture": capture(device, part)}
    print(json.dumps(found), flush=True)
    os._exit(0)


def found_by(part: str, rehearse: bool) -> dict[str, Any]:
    """Run one part; {} if it died."""
    command = [sys.executable, __file__, "play", part, *(["--rehearse"] if rehearse else [])]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_PART_S, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return {}
    return found


def measure(figures: Figures, rehearse: bool) -> None:
    """Play the parts."""
    with ThreadPoolExecutor(len(_PARTS)) as pool:
        played = pool.map(lambda part: found_by(part, rehearse), _PARTS)
        found = dict(zip(_PARTS, played, strict=True))
    for part, words in found.items():
        figures.put({f"{part}: {what}": value for what, value in words.items()} or {part: "its process died"})
    how = {part: found[part].get("capture", "its process died") for part in _PARTS[:-1]}
    figures.say("; ".join(f"{part}: {became}" for part, became in how.items()))
    if how["alone"] != "captured":
        raise SystemExit(f"torch captures nothing here, without ddpmon: {how['alone']}")
    word = found["replay"]
    if "not captured" in word:
        figures.skip("whole-step replay", word["not captured"])
        word = {"said": ""}
    else:
        figures.say(f"whole-step replay: state {word.get('state')}, said: {word.get('said') or 'nothing'}")
    wrong = [] if how["capture"] == "captured" else [f"the capture: {how['capture']}"]
    if "critical" in word.get("said", "critical"):
        wrong.append("a replayed step is taken for trouble, or its process died")
    figures.conclude(not wrong, "; ".join(wrong) or "the capture holds, and nothing critical is said of replays")


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play(sys.argv[2], "--rehearse" in sys.argv)
    run_row(measure, __doc__)
