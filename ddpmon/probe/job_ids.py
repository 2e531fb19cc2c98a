"""What schedulers and launchers call the job of this process, so that a run can be found by that."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from ddpmon.parts import wire_text

_VARIABLES = {"slurm": "SLURM_JOB_ID", "torchelastic": "TORCHELASTIC_RUN_ID", "skypilot": "SKYPILOT_TASK_ID"}


def job_ids(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Who names the job -> its name there: "slurm", "torchelastic", "pod", "skypilot"; only those that there are.

    A task of a Slurm array is called as squeue calls it, such as 4711_3. A pod is called as its host is.
    """
    found = {who: wire_text(environment[name]) for who, name in _VARIABLES.items() if environment.get(name)}
    if (array := environment.get("SLURM_ARRAY_JOB_ID")) and (task := environment.get("SLURM_ARRAY_TASK_ID")):
        found["slurm"] = wire_text(f"{array}_{task}")
    if environment.get("KUBERNETES_SERVICE_HOST"):
        found["pod"] = wire_text(environment.get("POD_NAME") or socket.gethostname())
    if found.get("torchelastic") == "none":  # what torchrun calls a job without --rdzv-id
        del found["torchelastic"]
    return found
