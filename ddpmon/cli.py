"""The command line. Everything heavy is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import Annotated, TypeVar

import typer

from ddpmon import __version__
from ddpmon.commands.diagnose_help import DIAGNOSE_HELP
from ddpmon.commands.plain import leave

C = TypeVar("C", bound=Enum)
TARGET_HELP = (
    "tcp://HOST:PORT or redis://HOST of the run's store, or the name or id (or its beginning) of a run on this host "
    "or in the store of DDPMON_STORE. Without it: the only run there is."
)
SSH_HELP = "Look on this host, through the system's ssh: finds the run there and tunnels to it."
STORE_HELP = (
    "tcp://HOST:PORT or redis://HOST of a store, whose runs are listed. "
    "Without it: the runs on this host, and in the store of DDPMON_STORE."
)
SLURM_HELP = "Look on the nodes of this Slurm job."


class FailOn(str, Enum):
    """Severities to fail on."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Fault(str, Enum):
    """Where the demo's slow rank loses its time."""

    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    HOST = "host"


def _choices(kind: type[C]) -> str:
    return f"<{'|'.join(choice.value for choice in kind)}>"


def _one_of(kind: type[C]) -> Callable[[str | C], C]:
    """Read one of the choices; a wrong one is named in one plain sentence, which Typer's own way does not give."""

    def read(word: str | C) -> C:
        try:
            return kind(word)
        except ValueError:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(choice.value for choice in kind)}.") from None

    return read


app = typer.Typer(
    help="Which rank of a PyTorch DistributedDataParallel run is late, in which phase, since when, at what cost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Target = Annotated[str | None, typer.Argument(help=TARGET_HELP, show_default=False)]
SshHost = Annotated[str | None, typer.Option("--ssh", metavar="[USER@]HOST", help=SSH_HELP, show_default=False)]
FailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        parser=_one_of(FailOn),
        metavar=_choices(FailOn),
        help="Exit 1 on a finding of this severity or worse.",
        show_default=False,
    ),
]
SlurmJob = Annotated[str | None, typer.Option("--slurm", metavar="JOBID", help=SLURM_HELP, show_default=False)]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ddpmon {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def watch(
    target: Target = None,
    interval: Annotated[float, typer.Option(min=0.25, max=10, help="Seconds between two looks.")] = 1.0,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")] = False,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Show a run live; without a name, --ssh or --slurm, waits for one that has not started yet.

    DDPMON_SSH is the ssh command with its options, DDPMON_REMOTE the ddpmon command of the other host.
    """
    from ddpmon.commands.watch import watch as command

    leave(command(target, interval, ascii_only, ssh, slurm))


@app.command()
def ls(
    target: Annotated[str | None, typer.Argument(help=STORE_HELP, show_default=False)] = None,
    ssh: Annotated[
        str | None,
        typer.Option("--ssh", metavar="[USER@]HOST", help="The runs on this host instead.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Do not read the runs' frames, only that they are there.")
    ] = False,
) -> None:
    """List the runs that can be reached, and how to watch each.

    Exit codes: 0 there are some, 2 usage, 3 there is none or it cannot be reached.
    """
    from ddpmon.commands.ls import ls as command

    leave(command(target, ssh, as_json, brief))


@app.command()
def status(
    target: Target = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    fail_on: FailOnOption = None,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Print how a run is doing, once.

    Exit codes: 0 read, 1 a finding at or above --fail-on, 2 usage, 3 no run found or its store is unreachable.
    """
    from ddpmon.commands.status import status as command

    leave(command(target, as_json, fail_on.value if fail_on else None, ssh, slurm))


@app.command(help=DIAGNOSE_HELP)
def diagnose(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A file, or - for standard input.", show_default=False)],
    marks: Annotated[bool, typer.Option("--marks", help="TABLE has one row a mark, as made from traces.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    fail_on: FailOnOption = None,
) -> None:
    """Judge a table made from logs."""
    from ddpmon.commands.diagnose import diagnose as command

    leave(command(table, as_json, fail_on.value if fail_on else None, of_marks=marks))


@app.command()
def doctor(
    nproc: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Ranks planned on a host.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the rendezvous; MASTER_PORT or 29500.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check, before a run, what would hurt it: GPUs, CPUs, memory, ports, network, versions.

    This host alone, or all hosts of a run: torchrun ... -m ddpmon.doctor, srun python -m ddpmon.doctor.

    Exit codes: 0 clean (under a launcher: or warnings), 1 warnings, 2 the run would fail.
    """
    from ddpmon.commands.doctor import doctor as command

    leave(command(nproc, port, as_json))


@app.command()
def demo(
    nproc: Annotated[int, typer.Option(min=2, max=64, help="Ranks to train with.")] = 4,
    fault: Annotated[
        Fault,
        typer.Option(
            parser=_one_of(Fault),
            metavar=_choices(Fault),
            help="Where one rank is made to lose time, from step 60 on.",
        ),
    ] = Fault.INPUT,
    steps: Annotated[
        int | None,
        typer.Option(min=120, help="Steps to train; without it 180, or 600 in a terminal.", show_default=False),
    ] = None,
    fake_gpus: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, help="Give the ranks simulated GPUs, so many in all; needs a C compiler.", show_default=False
        ),
    ] = None,
) -> None:
    """Train for real with one slow rank and watch it being named.

    Without a terminal it prints status lines and exits 0 if the slow rank was named, 1 otherwise.
    """
    from ddpmon.commands.demo import demo as command

    leave(command(nproc, fault.value, steps, fake_gpus))


@app.command()
def simulate(
    ranks: Annotated[int, typer.Option(help="How many ranks.")] = 64,
    hosts: Annotated[int | None, typer.Option(help="On how many hosts; without it, 8 ranks a host.")] = None,
    scenario: Annotated[
        str,
        typer.Option(help="healthy, straggler, intermittent, slow-node, hang, churn, clash, or mixed."),
    ] = "mixed",
    store: Annotated[str | None, typer.Option(help="Publish into this store; without it, host one.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so long; without it, on Ctrl-C.")] = None,
    step_ms: Annotated[float, typer.Option(help="What a step takes.")] = 500.0,
    history_hours: Annotated[float, typer.Option(help="Pretend that the run has gone on for so long.")] = 0.0,
    processes: Annotated[int | None, typer.Option(help="How many processes publish; without it, 2.")] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 0,
) -> None:
    """Publish a simulated run, to try the dashboard at any size; it is labelled as simulated."""
    from ddpmon.commands.simulate import simulate as command

    leave(
        command(
            store,
            ranks=ranks,
            hosts=-(-ranks // 8) if hosts is None else hosts,
            scenario=scenario,
            seconds=seconds,
            step_ms=step_ms,
            hours=history_hours,
            processes=min(2, max(ranks, 1)) if processes is None else processes,
            seed=seed,
        )
    )


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()
