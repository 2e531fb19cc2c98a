"""Ranks that ended with an exception: whose came first, and which failures only follow from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.waiting import QUEUED
from ddpmon.diagnose.wording import clean, does, format_ranks
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import RankFrame

Role = Literal["cause", "unknown", "interrupt", "echo"]
_BACKEND = {"DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError"}
_CARRIERS = {"RuntimeError", "ConnectionError", "ConnectionResetError", "ConnectionAbortedError", "TimeoutError"}
_ADVICE: dict[Role, str] = {
    "cause": "read its traceback; the errors of the other ranks follow from it",
    "unknown": "read its log: it did not report which exception ended it",
    "interrupt": "",
    "echo": "read the log of the rank that ended first, and the kernel's log (dmesg) of its host",
}
_LEFT = "make all ranks run the same number of steps: look for an exit, return or continue that only some of them reach"


_CARRIERS |= {"BrokenPipeError", "DistError", "OSError"}
_ECHO = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|gloo|nccl|timed? ?out|socket|remote peer|"
    r"process group",
    re.IGNORECASE,
)
_INTERRUPTS = {"KeyboardInterrupt", "SIGTERM", "SIGINT", "SignalException"}
_LINE = re.compile(r'File "([^"]*)", line (\d+), in (.+)')
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")


def role_of(frame: RankFrame) -> Role:
    """Whether a failed rank ended by itself, by an interrupt, or since another rank had gone."""
    failure = frame.failure
    if failure is None:
        return "unknown"
    kind = failure.kind.rsplit(".", 1)[-1]
    if kind in _INTERRUPTS or "SIGTERM" in failure.message:
        return "interrupt"
    echoes = kind in _BACKEND or (kind in _CARRIERS and _ECHO.search(failure.message) is not None)
    return "echo" if echoes else "cause"


def step_of(frame: RankFrame) -> int:
    """The last step that it had finished, -1 before the first."""
    return frame.failure.step if frame.failure is not None else frame.step


def error_of(frame: RankFrame, limit: int = 160) -> str:
    """Its exception and the message, at most `limit` characters of it."""
    failure = frame.failure
    if failure is None:
        return "an error that it did not report"
    kind, message = clean(failure.kind, 60), clean(failure.message, limit)
    return f"{kind}: {message}" if message else kind


def place_of(traceback: Sequence[str]) -> str:
    """The innermost line that is the user's own code, else the innermost; "" if there is none."""
    lines = "\n".join(traceback).split("\n")
    found = [(match, lines[at + 1 : at + 2]) for at, line in enumerate(lines) if (match := _LINE.search(line))]
    if not found:
        return ""
    own = [entry for entry in found if not _FOREIGN.search(entry[0][1])]
    match, following = (own or found)[-1]
    source = clean(following[0], 80) if following and not _LINE.search(following[0]) else ""
    name = match[1].replace("\\", "/").rsplit("/", 1)[-1]
    return f"{clean(name, 60)}:{match[2]} in {clean(match[3], 60)}{f': {source}' if source else ''}"


def find_failed(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all ranks that have failed: the first cause by step, then rank; the echoes as its consequence."""
    failed = {rank: run.states[rank].frame for rank in np.flatnonzero(run.standing.failed).tolist()}
    if not failed:
        return []
    order = sorted(failed, key=lambda rank: (step_of(failed[rank]), rank))
    by_role: dict[Role, list[int]] = {"cause": [], "unknown": [], "interrupt": [], "echo": []}
    for rank in order:
        by_role[role_of(failed[rank])].append(rank)
    if by_role["cause"]:
        return [_primary(failed, by_role["cause"], "cause")]
    if by_role["interrupt"]:
        return [_interrupted(run, failed, by_role["interrupt"])]
    vanished = _vanished(run, ages)
    if vanished and by_role["echo"]:
        return [_after_vanishing(run, failed, vanished, by_role["echo"])]
    if by_role["unknown"]:
        return [_primary(failed, by_role["unknown"], "unknown")]
    left = _left(run, failed[by_role["echo"][0]])
    return [_after_leaving(run, failed, left, by_role["echo"]) if left else _only_echoes(failed, by_role["echo"])]


def _vanished(run: Run, ages: NDArray[np.float64]) -> list[int]:
    """Ranks that were heard of once, are silent now, and never said that they end."""
    with np.errstate(invalid="ignore"):
        vanished: list[int] = np.flatnonzero(~run.standing.ended & (ages > SILENT_S)).tolist()
    return vanished


def _left(run: Run, echo: RankFrame) -> list[int]:
    """Ranks that had ended without an exception just where another could not go on."""
    steps, last = run.standing.step, step_of(echo)
    left: list[int] = np.flatnonzero(run.standing.finished & (steps <= last) & (steps >= last - QUEUED)).tolist()
    return left if 2 * len(left) <= run.rank_count else []  # most have simply come to the end


def _primary(failed: dict[int, RankFrame], causes: Sequence[int], role: Role) -> Finding:
    first = causes[0]
    frame = failed[first]
    traceback = frame.failure.traceback if frame.failure is not None else []
    where = place_of(traceback)
    followers = sorted(failed.keys() - set(causes))
    summary = f"rank {first} failed {_after(frame)}{f' at {where}' if where else ''}: {error_of(frame)}"
    if len(causes) > 1:
        alike = all(error_of(failed[rank]) == error_of(frame) for rank in causes[1:])
        summary += f"; {format_ranks(causes[1:])} {'in the same way' if alike else 'with other errors'}"
    if followers:
        summary += f"; {does(followers, 'follow')} from it"
    return _finding(failed, causes, role, summary, {"where": where} if where else {})


def _after(frame: RankFrame) -> str:
    return "before its first step" if step_of(frame) < 0 else f"after step {step_of(frame):,}"


def _interrupted(run: Run, failed: dict[int, RankFrame], ranks: Sequence[int]) -> Finding:
    everybody = len(failed) == run.info.world_size
    step = max(step_of(failed[rank]) for rank in ranks)
    on = "all ranks" if everybody and len(ranks) == len(failed) else format_ranks(ranks)
    return Finding(
        kind="rank_failed",
        severity="info" if everybody else "warning",
        summary=f"the run was interrupted after step {max(step, 0):,} ({error_of(failed[ranks[0]], 60)} on {on})",
        ranks=() if everybody else tuple(ranks),
        since_step=step + 1,
        evidence={"failed": len(failed), "exception": error_of(failed[ranks[0]])},
    )


def _after_vanishing(run: Run, failed: dict[int, RankFrame], vanished: list[int], echoes: list[int]) -> Finding:
    error = error_of(failed[echoes[0]])
    summary = f"{format_ranks(vanished)} disappeared without a message; {format_ranks(echoes)} then failed with {error}"
    lost = {rank: state.frame for rank in vanished if (state := run.ranks[rank]) is not None}
    return _finding(failed | lost, vanished, "echo", summary, {"exception": error})


def _after_leaving(run: Run, failed: dict[int, RankFrame], left: list[int], echoes: list[int]) -> Finding:
    their, them = ("its", "it") if len(left) == 1 else ("their", "them")
    gone = {rank: run.states[rank].frame for rank in left}
    error = error_of(failed[echoes[0]])
    summary = (
        f"{format_ranks(left)} ended {_after(gone[left[0]])} ({their} program exited, or {their} data ended), and "
        f"{format_ranks(echoes)} failed waiting for {them}: {error}"
    )
    found = _finding(failed | gone, left, "echo", summary, {"exception": error})
    return replace(found, advice=_LEFT)


def _only_echoes(failed: dict[int, RankFrame], echoes: list[int]) -> Finding:
    first = failed[echoes[0]]
    how = f"{_after(first)} with {error_of(first)}"
    summary = f"{format_ranks(echoes)} failed {how}: no rank reported why the connection broke"
    return _finding(failed, [], "echo", summary, {"exception": error_of(first), "step": step_of(first)})


def _finding(
    frames: dict[int, RankFrame], ranks: Sequence[int], role: Role, summary: str, more: dict[str, float | int | str]
) -> Finding:
    named = [frames[rank] for rank in ranks]
    first = named[0] if named else min(frames.values(), key=step_of)
    evidence: dict[str, float | int | str] = {"step": step_of(first), "exception": error_of(first, 400)}
    failure = first.failure
    if failure is not None and failure.traceback:
        lines = "\n".join(failure.traceback).split("\n")[-24:]
        evidence["stack"] = "\n".join("".join(c if c.isprintable() else " " for c in line[:200]) for line in lines)
    return Finding(
        kind="rank_failed",
        severity="critical",
        summary=summary,
        ranks=tuple(ranks),
        nodes=tuple(sorted({frame.host for frame in named})),
        since_step=step_of(first) + 1,
        evidence=evidence | more,
        advice=_ADVICE[role],
    )
