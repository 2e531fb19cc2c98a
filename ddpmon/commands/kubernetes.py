"""Where a job of Kubernetes runs, and which runs its pods hold: asked with kubectl, and read through its tunnel."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from ddpmon.commands.listing import Listed, Listing
from ddpmon.commands.port_forward import PortForward
from ddpmon.commands.remote import ask, last_line, remote_command, run_bounded
from ddpmon.commands.way import Seen
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import Target
from ddpmon.store.tcp_connection import knock
from ddpmon.watcher.way import Fate

_LIMIT_S, _KNOCK_S = 20.0, 3.0
_MOST_BYTES = 64 << 20  # of a list of pods: 4,000 of 16 kB
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)  # of a job and of a namespace (RFC 1123)
_LABELS = (  # that a job's controller gives its pods: JobSet and TrainJob, PyTorchJob, Job
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
)
_INDICES = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
_MOST_ASKED = 8  # pods of which rank 0 is looked for, the lowest numbers first
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class _Metadata(Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Status(Struct, frozen=True):
    phase: Phase = "Unknown"
    reason: str = ""


class Pod(Struct, frozen=True):
    """A pod as `kubectl get pods -o json` prints it, as far as it matters here."""

    metadata: _Metadata
    status: _Status = _Status()

    @property
    def order(self) -> tuple[bool, int, str]:
        """Masters first, and then by the number in the job: rank 0 is mostly in the first."""
        labels = {**self.metadata.annotations, **self.metadata.labels}
        index = next((labels[name] for name in _INDICES if labels.get(name, "").isdigit()), "0")
        return labels.get("training.kubeflow.org/replica-type") == "worker", int(index), self.metadata.name


class _Pods(Struct, frozen=True):
    items: Annotated[list[Pod], Meta(max_length=1 << 16)]


class KubernetesJob:
    """The pods of a job: found by the labels of JobSet, TrainJob, PyTorchJob or Job.

    Args:
        name: the job's, behind its namespace and a slash where that is not the one of kubectl's context.

    Raises:
        TargetError: this is no name of a job.
    """

    def __init__(self, name: str) -> None:
        namespace, _, job = name.rpartition("/")
        if not _NAME.fullmatch(job) or (namespace and not _NAME.fullmatch(namespace)) or name.startswith("/"):
            raise TargetError(f"{name!r} is not a job: --k8s takes [NAMESPACE/]JOB, such as team/gpt")
        self.name, self.options = f"the pods of {name}", f"--k8s {name} "
        self._given, self._job, self._namespace = name, job, [f"--namespace={namespace}"] if namespace else []
        self._pods: dict[str, str] = {}  # run -> the pod whose ddpmon lists it
        self._forward: PortForward | None = None

    def look(self) -> Seen:
        """Ask Kubernetes for the job's pods, and those that run for runs."""
        pods = self._find()
        words, running = self._words(pods), [pod for pod in pods if pod.status.phase == "Running"]
        if not running:
            outcome = _outcome(pods)
            nothing = "its run has not started" if outcome is None else "there is nothing to watch in its pods"
            return Seen(Listing(runs=[]), f"{words}; {nothing}", None if outcome is None else Fate(outcome, words))
        return Seen(self.listing(running, "--brief"), f"{words}, and there is no run in them yet")

    def runs(self, *arguments: str) -> list[Listed]:
        """The runs in the pods, as `ddpmon ls` with these arguments lists them."""
        running = [pod for pod in self._find() if pod.status.phase == "Running"]
        return self.listing(running, *arguments).runs if running else []

    def listing(self, pods: list[Pod], *arguments: str) -> Listing:
        """The runs of the first pod that has one; none where no pod has.

        Raises:
            StoreUnavailable: no pod has a run, and one of them cannot be asked.
        """
        trouble: StoreUnavailable | None = None
        for pod in pods[:_MOST_ASKED]:
            name = pod.metadata.name
            command = ["kubectl", "exec", *self._namespace, name, "--", "sh", "-c", remote_command(*arguments)]
            try:
                found = ask(command, f"pod {name}")
            except StoreUnavailable as error:
                trouble = trouble or error
                continue
            self._pods.update({run.id: name for run in found.runs})
            if found.runs:
                return found
        if trouble is not None:
            raise trouble
        return Listing(runs=[])

    def reach(self, store: Target, run: Listed | None, *, attended: bool) -> Target:  # noqa: ARG002 (nobody is asked)
        """The store itself where it answers, as inside the cluster, or a tunnel of kubectl through its pod."""
        if store.redis is not None or (not store.host.startswith("127.") and _answers(store)):
            return store
        pod = self._pods.get(run.id) if run is not None else next(iter(self._pods.values()), None)
        if pod is None:
            pod = min(self._find(), key=lambda each: each.order).metadata.name
        self.close()
        self._forward = PortForward([*self._namespace, f"pod/{pod}"], pod, store)
        return self._forward.open()

    def trouble(self) -> str:
        """Why kubectl's tunnel is down."""
        return "" if self._forward is None else self._forward.trouble()

    def refusal(self) -> str:
        """Why the pod could not connect to the store."""
        return "" if self._forward is None else self._forward.refusal()

    def close(self) -> None:
        """End the tunnel."""
        if self._forward is not None:
            self._forward.close()
            self._forward = None

    def _find(self) -> list[Pod]:
        """The job's pods, the one with rank 0 as a rule first.

        Raises:
            StoreUnavailable: kubectl is not there or fails, or there is no such job.
        """
        for label in _LABELS:
            said = _kubectl("get", "pods", *self._namespace, f"--selector={label}={self._job}", "--output=json")
            try:
                pods = msgspec.json.decode(said, type=_Pods).items
            except msgspec.DecodeError:
                raise StoreUnavailable("the answer of kubectl get pods cannot be read here") from None
            if pods:
                return sorted(pods, key=lambda pod: pod.order)
        raise StoreUnavailable(
            f"Kubernetes has no pod of a job {self._given}: it has not started or was deleted, or is in another "
            "namespace or cluster (kubectl config get-contexts)"
        )

    def _words(self, pods: list[Pod]) -> str:
        """How it stands: "job gpt has 4 pods: 3 Running, 1 Pending"."""
        counts = Counter(pod.status.phase for pod in pods).most_common()
        reasons = {pod.status.reason for pod in pods if pod.status.reason}
        why = f" ({', '.join(sorted(reasons)[:4])})" if reasons else ""
        several = f"{len(pods)} pods" if len(pods) > 1 else "1 pod"
        return f"job {self._given} has {several}: {', '.join(f'{n} {phase}' for phase, n in counts)}{why}"


def _outcome(pods: list[Pod]) -> Literal["finished", "failed"] | None:
    """How the job has ended; None where a pod may still start."""
    phases = {pod.status.phase for pod in pods}
    if phases == {"Succeeded"}:
        return "finished"
    return "failed" if phases <= {"Succeeded", "Failed"} else None


def _answers(store: Target) -> bool:
    try:
        knock(store.host, store.port, _KNOCK_S)
    except OSError:
        return False
    return True


def _kubectl(*arguments: str) -> bytes:
    """What kubectl prints.

    Raises:
        StoreUnavailable: it is not there, fails, or does not answer within bounds.
    """
    if shutil.which("kubectl") is None:
        raise StoreUnavailable("kubectl is not installed here: --k8s needs a host where kubectl reaches the cluster")
    done = run_bounded(["kubectl", *arguments], "kubectl", _LIMIT_S, "a list of pods", _MOST_BYTES)
    if done.returncode:
        raise StoreUnavailable(f"kubectl failed: {last_line(done.stderr)}")
    return done.stdout
