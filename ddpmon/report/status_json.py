"""The machine-readable status: schema version 1. Unknown is null, never zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from ddpmon.diagnose.pending import Pending
from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Process, ProcessFigures, TakenPort
from ddpmon.parts import Attempt, Failure, Stall
from ddpmon.report.attempt_sentences import how
from ddpmon.report.host_gpus import ours_of
from ddpmon.report.trace import collectives, frame_text, main_stack
from ddpmon.report.verdicts import figures_now, is_standing_still
from ddpmon.run.process_roles import ProcessRoles, owner_of
from ddpmon.schema import PHASES, RunInfo
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Coverage, Finding, JobView, NodeView, Ranks, ReplayView, RunView, Snapshot

Object = dict[str, Any]
COUNTS_OF_READINGS = {"reads", "slow_reads", "readings"}  # they tell the verdicts what is new
SCHEMA_VERSION = 1
RANK_FIGURES = ("step_ms", "work_ms", "exposed_ms", "allreduce_ms", "barrier_ms", "lateness_ms", "cpu_pct", "age_s")


def gpu_object(gpu: GpuFigures, ours: ProcessRoles) -> Object:
    """One GPU; each of its processes says its rank and its role in the run, null for a foreign one."""
    processes = None if gpu.processes is None else [_on_gpu(on, ours) for on in gpu.processes]
    return {**figures(gpu), "uuid": gpu.uuid or None, "processes": processes}


def _on_gpu(on: GpuProcess, ours: ProcessRoles) -> Object:
    return {**_who(on.process, ours), "memory": on.memory, "sm_pct": rounded(on.sm_pct), "kind": on.kind}


def _who(process: Process, ours: ProcessRoles) -> Object:
    return {
        "pid": process.pid,
        "user": process.user,
        "command": process.command,
        "rank": owner_of(process, ours.pids),
        "role": ours.role(process),
    }


def host_object(host: HostFigures, ours: ProcessRoles) -> Object:
    """One host, without its GPUs."""
    processes = [_on_host(used, ours) for used in host.processes]
    ports = [_port(port, ours) for port in host.ports]
    return {**figures(host), "processes": processes, "ports": ports}


def _on_host(used: HostProcess, ours: ProcessRoles) -> Object:
    return {**_who(used.process, ours), **{name: value for name, value in figures(used).items() if name != "process"}}


def _port(port: TakenPort, ours: ProcessRoles) -> Object:
    holder = None if port.process is None else _who(port.process, ours)
    return {"port": port.port, "wanted_for": port.wanted_for, "process": holder, "held": port.held}


def process_object(process: ProcessFigures | None) -> Object | None:
    """A rank's own process."""
    return None if process is None else figures(process)


def figures(struct: msgspec.Struct) -> Object:
    """All of a structure's fields; figures to five digits, what is not finite as null."""
    fields = {name: msgspec.to_builtins(getattr(struct, name)) for name in struct.__struct_fields__}
    return {name: _plain(value) for name, value in fields.items() if name not in COUNTS_OF_READINGS}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name not in COUNTS_OF_READINGS}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def rounded(value: Any) -> float | None:
    """Five significant digits; None for what is not a finite number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def status_object(snapshot: Snapshot) -> Object:
    """The snapshot as one JSON object; a pure function."""
    hosts = [(node, ours_of(snapshot.ranks, node)) for node in snapshot.nodes]
    return {
        "schema_version": SCHEMA_VERSION,
        "time": _iso(snapshot.taken_at),
        "link": {"state": snapshot.link.state, "message": snapshot.link.message},
        "run": _run(snapshot.run),
        "coverage": _coverage(snapshot.coverage),
        "job": _job(figures_now(snapshot), is_standing_still=is_standing_still(snapshot)),
        "monitor": {"cost_us_per_step": rounded(snapshot.job.monitor_us), "dropped": snapshot.job.dropped},
        "ranks": _ranks(snapshot.ranks, {rank: known for node, known in hosts for rank in node.ranks}),
        "nodes": [_node(node, known) for node, known in hosts],
        "findings": [finding_object(finding) for finding in snapshot.findings if finding.cleared_at_step is None],
        "pending": [_pending(pending) for pending in snapshot.pending],
        "notices": list(snapshot.notices),
        "recorded": None if snapshot.replay is None else _recorded(snapshot.replay),
    }


def _recorded(replay: ReplayView) -> Object:
    return {"seconds": rounded(replay.length), "notes": list(replay.notes)}


def _run(run: RunView | None) -> Object | None:
    if run is None:
        return None
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "world_size": run.world_size,
        "nodes": list(run.nodes),
        "backend": run.backend,
        "step": _count(run.step),
        "elapsed_s": None if run.elapsed_s is None else round(run.elapsed_s, 1),
        "source": run.source,
        "launch": run.launch or None,
        "restart": run.restart,
        "max_restarts": run.max_restarts,
        "attempts": [_attempt(attempt) for attempt in run.attempts],
        "parallel": run.parallel,
        "loss_from": run.loss_from or None,
        "samples_from": run.samples_from or None,
        "jobs": dict(run.jobs),
        "configuration": None if run.info is None else _configuration(run.info, run),
    }


def _configuration(info: RunInfo, run: RunView) -> Object:
    return {
        "command": info.command or None,
        "started_at": _iso(info.started_at),
        "host": info.host or None,
        "pid": info.pid,
        "device": info.device,
        "parameters": info.parameters,
        "gradient_bytes": info.gradient_bytes,
        "bucket_count": run.buckets,
        "bucket_sizes": list(run.bucket_sizes) or None,
        "buckets_rebuilt": run.buckets_rebuilt,
        "bucket_detail": info.bucket_detail,
        "settings": figures(info.settings),
        "versions": dict(info.versions),
    }


def _attempt(attempt: Attempt) -> Object:
    return {
        "run_id": attempt.run_id,
        "restart": attempt.restart,
        "ended_at": None if attempt.ended_at is None else _iso(attempt.ended_at),
        "step": _count(attempt.step),
        "failed": [{"rank": end.rank, "reason": end.reason or None} for end in attempt.failed],
        "failed_count": attempt.failed_count,
        "vanished": list(attempt.vanished),
        "vanished_count": attempt.vanished_count,
        "summary": how(attempt),
    }


def _coverage(coverage: Coverage | None) -> Object | None:
    if coverage is None:
        return None
    return {
        "expected": coverage.expected,
        "reporting": coverage.reporting,
        "oldest_age_s": rounded(coverage.oldest_age_s),
    }


def _job(job: JobView, *, is_standing_still: bool) -> Object:
    return {
        "standing_still": is_standing_still,
        "step_ms": rounded(job.step_ms),
        "throughput": rounded(job.throughput),
        "throughput_unit": job.throughput_unit,
        "throughput_ranks": job.throughput_ranks,
        "loss": _exact(job.loss),
        "sync_efficiency": rounded(job.sync_efficiency),
        "lost_to_waiting_pct": rounded(job.lost_to_waiting_pct),
        "allreduce_ms": rounded(job.allreduce_ms),
        "exposed_ms": rounded(job.exposed_ms),
        "busbw_gb_s": rounded(job.busbw_gb_s),
        "tokens_per_s": rounded(job.tokens_per_s),
        "job_step": job.job_step,
        "job_total": job.job_total,
        "eta_s": rounded(job.eta_s),
    }


def _ranks(ranks: Ranks | None, ours: Mapping[int, ProcessRoles]) -> list[Object]:
    if ranks is None:
        return []
    figures = {name: [rounded(value) for value in ranks.column(name).tolist()] for name in RANK_FIGURES}
    phases = {name: [rounded(value) for value in getattr(ranks, f"{name}_ms").tolist()] for name in PHASES}
    nobody = ProcessRoles({}, HostFigures(), ())
    return [_rank(ranks, rank, ours.get(rank, nobody), figures, phases) for rank in range(len(ranks))]


def _rank(
    ranks: Ranks, rank: int, ours: ProcessRoles, figures: dict[str, list[Any]], phases: dict[str, list[Any]]
) -> Object:
    state, gpu = ranks.state[rank], ranks.gpu[rank]
    return {
        "rank": rank,
        "host": ranks.host[rank] or None,
        "local_rank": _count(ranks.local_rank[rank]),
        "pid": _count(ranks.pid[rank]) or None,
        "state": None if state == "unknown" else state,
        "step": _count(ranks.step[rank]),
        "loss": _exact(ranks.loss[rank]),
        **{name: column[rank] for name, column in figures.items()},
        "phases_ms": {name: column[rank] for name, column in phases.items()},
        "gpu": None if gpu is None else gpu_object(gpu, ours),
        "process": process_object(ranks.process[rank]),
        "rss_bytes": _count(ranks.figures["rss_bytes"][rank]),
        "stall": _stall(ranks.stall[rank]),
        "failure": _failure(ranks.failure[rank]),
    }


def _stall(stall: Stall | None) -> Object | None:
    if stall is None:
        return None
    stack = main_stack(stall)
    return {
        "seconds": rounded(stall.seconds),
        "moves": stall.moves,
        "write_bytes_s": rounded(stall.write_bytes_s),
        "stack": [] if stack is None else [frame_text(frame) for frame in stack.frames],
        "collective": collectives(stall) or None,
        "device_phase": stall.device_phase or None,
        "device_error": stall.device_error or None,
        "graph_replay_s": rounded(stall.graph_replay_s),
    }


def _failure(failure: Failure | None) -> Object | None:
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "message": failure.message,
        "step": _count(failure.step),
        "traceback": list(failure.traceback),
    }


def _node(node: NodeView, ours: ProcessRoles) -> Object:
    return {
        "node": node.node,
        "host": node.host or None,
        "ranks": list(node.ranks),
        "age_s": rounded(node.age_s),
        **host_object(node.figures, ours),
        "gpus": [gpu_object(gpu, ours) for gpu in node.gpus],
        "cost_pct": rounded(node.cost_pct),
        "notes": list(node.notes),
    }


def finding_object(finding: Finding) -> Object:
    """One finding as scripts read it."""
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "ranks": list(finding.ranks),
        "nodes": list(finding.nodes),
        "phase": finding.phase,
        "cause": finding.cause,
        "since_step": _count(finding.since_step),
        "cost_pct": rounded(finding.cost_pct),
        "summary": finding.summary,
        "advice": advice_text(finding.advice),
        "since_is_bound": finding.since_is_bound,
        "evidence": {name: _evidence(value) for name, value in finding.evidence.items()},
    }


def _pending(pending: Pending) -> Object:
    return {
        "kind": pending.kind,
        "ranks": list(pending.ranks),
        "nodes": list(pending.nodes),
        "confirmations": pending.confirmations,
        "missing_s": rounded(pending.seconds),
    }


def _evidence(value: float | int | str) -> float | int | str | None:
    return value if isinstance(value, str | int) else rounded(value)


def _exact(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _count(value: Any) -> int | None:
    return None if value is None or not math.isfinite(value) or value < 0 else int(value)


def finding_of_run(snapshot: Snapshot, finding: Finding) -> Object:
    """One finding by itself, with the time of the snapshot and which run it is of."""
    run = snapshot.run
    named = ("id", "name", "step", "world_size", "source")
    of_run = None if run is None else {name: getattr(run, name) for name in named}
    ended = _count(finding.cleared_at_step)
    return {"time": _iso(snapshot.taken_at), "run": of_run, **finding_object(finding), "cleared_at_step": ended}


def _iso(unix: float) -> str:
    return datetime.fromtimestamp(unix, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
