"""Compilation: a rank that compiles its model or a kernel finishes no step for minutes, and is not stuck."""

from __future__ import annotations

import re

from ddpmon.parts import StackFrame
from ddpmon.schema import RankFrame

LONG_S = 1800.0  # max-autotune of a large model takes 10 to 20 min; nothing is known to compile for longer
_CPU_PCT = 50.0  # of a core: LLVM and ptxas compute in one call for up to a minute, in which no stack moves
_WORKERS_PCT = 20.0  # of a core, in the compiler's own processes, which the training thread waits for
# Triton's own package: other packages keep their kernels in folders of that name, too.
_TRITON = r"(?<=-packages/)triton|triton(?=/(?:compiler|backends|runtime)/)"
_COMPILER = re.compile(rf"/(torch/_dynamo|torch/_inductor|{_TRITON})/(.+)")
# What is on the stack whenever compiled code runs, too.
_RUNTIME_FILES = re.compile(r"eval_frame\.py|external_utils\.py|cudagraph_trees\.py|output_code\.py|backends/\w+\.py")
_RUNTIME_FUNCTIONS = frozenset({"run", "forward", "__call__", "__getitem__", "<lambda>", "launch_metadata", "runner"})


def is_compiling(frame: RankFrame) -> bool:
    """Whether the training thread is in a compiler that makes progress: its stack moves, or the processes compute."""
    stall, process = frame.stall, frame.process
    if stall is None or not stall.stacks or not any(map(_is_compiler, stall.stacks[0].frames)):
        return False
    computes = process is not None and (
        (process.cpu_pct or 0.0) >= _CPU_PCT or (process.workers_cpu_pct or 0.0) >= _WORKERS_PCT
    )
    return stall.moves or computes


def _is_compiler(frame: StackFrame) -> bool:
    """Whether a line of a stack is one of a compiler at work, and not of what it has compiled."""
    found = None if frame.own else _COMPILER.search(frame.file.replace("\\", "/"))
    if found is None or frame.function.rpartition(".")[2] in _RUNTIME_FUNCTIONS:
        return False
    return found[1] == "triton" or not _RUNTIME_FILES.fullmatch(found[2])
