"""The command line. Everything heavy is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import gc
import math
import os
import sys
import traceback
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, TypeVar

import typer

from ddpmon import __version__
from ddpmon.commands.console import BROKEN, GC_THRESHOLDS, USAGE, leave, open_streams
from ddpmon.commands.diagnose_help import DIAGNOSE_HELP

C = TypeVar("C", bound=Enum)
N = TypeVar("N", int, float)
TARGET_HELP = (
    "The run: its name or id, or the beginning of either, on this host or in the store of DDPMON_STORE; or the address "
    "of its store, tcp://HOST:PORT or redis://HOST. Default: the only run."
)
SSH_HELP = "Find the run on this host and reach it through an ssh tunnel."
STORE_HELP = (
    "The store whose runs are listed, tcp://HOST:PORT or redis://HOST. "
    "Default: the runs on this host and in the store of DDPMON_STORE."
)
SLURM_HELP = "Find the run on the hosts of this Slurm job."
GUARD_TARGETS_HELP = (
    "The runs: names or ids, or the beginning of either, addresses of stores, or of a Redis server with all its runs. "
    "Default: all runs on this host and in the store of DDPMON_STORE."
)
ON_FINDING_HELP = "Run this with sh for each message, with the message as one line of JSON on its standard input."
WEBHOOK_HELP = "Post each message to this address. Default: DDPMON_WEBHOOK, which no other user of the host can read."
SCENARIO_HELP = "healthy, straggler, intermittent, slow-node, hang, churn, clash, or mixed."


class FailOn(str, Enum):
    """Severities to fail on."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Fault(str, Enum):
    """Where the slow rank of the demo loses time."""

    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    HOST = "host"


def _choices(kind: type[C]) -> str:
    return f"<{'|'.join(choice.value for choice in kind)}>"


def _one_of(kind: type[C]) -> Callable[[str | C], C]:
    """A parser of one of the choices, which names a wrong one in one sentence; Typer's own message does not."""

    def read(word: str | C) -> C:
        try:
            return kind(word)
        except ValueError:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(choice.value for choice in kind)}.") from None

    return read


def _number(kind: type[N], least: float, most: float) -> Callable[[str | N], N]:
    """A parser of a number within bounds, which says in one sentence what is expected."""
    noun = "a whole number" if kind is int else "a number"
    bounds = f"from {least:g} to {most:g}" if most < math.inf else f"of {least:g} or more" if least > -math.inf else ""

    def read(word: str | N) -> N:
        try:
            value = kind(word)
            if least <= value <= most:
                return value
        except (ValueError, OverflowError):
            pass
        raise typer.BadParameter(f"{word!r} is not {noun} {bounds}".rstrip() + ".")

    return read


def _quantity(kind: type[N], unit: str, text: str, least: float = -math.inf, most: float = math.inf) -> Any:
    """An option that takes a number within bounds; `text` tells of a default that is None."""
    return typer.Option(parser=_number(kind, least, most), metavar=unit, help=text)


app = typer.Typer(
    help="Show which rank of a PyTorch DistributedDataParallel run is late: in which phase, since when, at what cost.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Target = Annotated[str | None, typer.Argument(metavar="TARGET", help=TARGET_HELP, show_default=False)]
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
ForSeconds = Annotated[
    float | None,
    typer.Option(
        "--for",
        parser=_number(float, 0, 60),
        metavar="SECONDS",
        help="Look at the run for so long, 0 for a single look. Default: while something may be confirmed, up to 5 s.",
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
    interval: Annotated[float, _quantity(float, "SECONDS", "Seconds between two updates.", 0.25, 10)] = 1.0,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use ASCII characters only.")] = False,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Show a live dashboard of a run.

    If no run has started yet, it waits for one, also at an address. With a name, --ssh or --slurm it does not wait.

    DDPMON_SSH is the ssh command with its options, DDPMON_REMOTE the ddpmon command on the other host.
    """
    from ddpmon.commands.watch import watch as command

    leave(command(target, interval, ascii_only, ssh, slurm))


@app.command()
def ls(
    target: Annotated[str | None, typer.Argument(metavar="STORE", help=STORE_HELP, show_default=False)] = None,
    ssh: Annotated[
        str | None,
        typer.Option("--ssh", metavar="[USER@]HOST", help="List the runs on this host instead.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="List names and addresses only, without connecting.")] = False,
) -> None:
    """List the runs that can be reached, with the command that shows each.

    Exit codes: 0 runs were found, 2 usage error, 3 no run was found or the store cannot be reached, 4 the output cannot
    be written.
    """
    from ddpmon.commands.ls import ls as command

    leave(command(target, ssh, as_json, brief))


@app.command()
def status(
    target: Target = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    fail_on: FailOnOption = None,
    seconds: ForSeconds = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print a line whenever something changes, until the run is over.")
    ] = False,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Print the state of a run once, or with --watch whenever it changes.

    It answers at once if nothing is pending, else after up to 5 s, in which what is pending can be confirmed. With
    --watch it waits for a run, ends with it or at a finding of --fail-on, and prints JSON lines with --json.

    Exit codes: 0 printed, 1 a finding at or above --fail-on, 2 usage error, 3 no run was found or its store cannot be
    reached, 4 the output cannot be written.
    """
    from ddpmon.commands.status import status as command

    leave(command(target, as_json, fail_on.value if fail_on else None, ssh, slurm, seconds, watch))


@app.command()
def guard(
    targets: Annotated[list[str] | None, typer.Argument(metavar="[TARGET]...", help=GUARD_TARGETS_HELP)] = None,
    on_finding: Annotated[str | None, typer.Option("--on-finding", metavar="COMMAND", help=ON_FINDING_HELP)] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="URL", help=WEBHOOK_HELP)] = None,
    slack: Annotated[bool, typer.Option("--slack", help="The webhook is one of Slack.")] = False,
    discord: Annotated[bool, typer.Option("--discord", help="The webhook is one of Discord.")] = False,
    min_severity: Annotated[
        FailOn,
        typer.Option(
            "--min-severity", parser=_one_of(FailOn), metavar=_choices(FailOn), help="Tell findings from this one on."
        ),
    ] = FailOn.WARNING,
    silence_s: Annotated[
        float, _quantity(float, "SECONDS", "Tell it if no word comes from a run for so long.", 10, 86400)
    ] = 60.0,
    state: Annotated[
        str | None, typer.Option("--state", metavar="FILE", help="Where the guard remembers what it has told.")
    ] = None,
) -> None:
    """Look after runs without a screen: tell a command or a webhook what begins and what is over, once each.

    It runs until SIGTERM or Ctrl-C, follows runs that start later, and goes on after a restart where it stood.

    Exit codes: 0 it was told to end, 2 usage error, 4 the output cannot be written.
    """
    from ddpmon.guard.command import guard as command

    if slack and discord:
        raise typer.BadParameter("--slack and --discord exclude each other: start a guard for each.")
    form: Any = "slack" if slack else "discord" if discord else "json"
    leave(command(targets or [], on_finding, webhook, form, min_severity.value, silence_s, state))


@app.command()
def serve(
    target: Target = None,
    port: Annotated[
        int | None,
        _quantity(int, "PORT", "Port on this host's loopback. Default: the first free one from 8480.", 1, 65535),
    ] = None,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Show the live dashboard in a browser, at an address with a token that one browser can use.

    It listens on loopback only and runs until SIGTERM or Ctrl-C; it needs pip install 'ddpmon[serve]'.

    Exit codes: 0 it was told to end, 2 usage error.
    """
    from ddpmon.commands.serve import serve as command

    leave(command(target, port, ssh, slurm))


@app.command()
def export(
    target: Target = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="HOST:PORT", help="Serve figures for Prometheus there.")
    ] = None,
    ssh: SshHost = None,
    slurm: SlurmJob = None,
) -> None:
    """Export a run for other tools.

    --prometheus serves the run's figures until SIGTERM or Ctrl-C; it needs pip install 'ddpmon[prometheus]'.

    Exit codes: 0 exported, 2 usage error, 3 no run was found or its store cannot be reached.
    """
    if prometheus is None:
        raise typer.BadParameter("say what to export: --prometheus HOST:PORT")
    from ddpmon.commands.export_prometheus import export_prometheus as command

    leave(command(target, prometheus, ssh, slurm))


@app.command(help=DIAGNOSE_HELP)
def diagnose(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A file, or - for standard input.", show_default=False)
    ] = None,
    flight_recorder: Annotated[
        str | None,
        typer.Option("--flight-recorder", metavar="DIR", help="Instead of TABLE: what torch dumped on a timeout."),
    ] = None,
    marks: Annotated[bool, typer.Option("--marks", help="TABLE has one row per mark, made from traces.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    fail_on: FailOnOption = None,
) -> None:
    """Diagnose a table made from logs."""
    if (table is None) == (flight_recorder is None):
        raise typer.BadParameter("give a TABLE, or --flight-recorder DIR")
    if flight_recorder is not None:
        from ddpmon.commands.flight_recorder import diagnose_flight_recorder

        leave(diagnose_flight_recorder(flight_recorder, as_json, fail_on.value if fail_on else None))
    assert table is not None
    from ddpmon.commands.diagnose import diagnose as command

    leave(command(table, as_json, fail_on.value if fail_on else None, of_marks=marks))


@app.command()
def doctor(
    nproc: Annotated[int | None, _quantity(int, "N", "Ranks that you plan to start on a host.", 1, 4096)] = None,
    port: Annotated[
        int | None, _quantity(int, "PORT", "Port of the rendezvous. Default: MASTER_PORT, or 29500.", 1, 65535)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check before a run what would hurt it: GPUs, CPUs, memory, ports, network, versions.

    It checks this host. To check all hosts of a run: torchrun ... -m ddpmon.doctor, or srun python -m ddpmon.doctor.

    Exit codes: 0 no problem, 1 warnings (0 under a launcher), 2 the run would fail, 4 the output cannot be written.
    """
    from ddpmon.commands.doctor_command import doctor as command

    leave(command(nproc, port, as_json))


@app.command()
def demo(
    nproc: Annotated[int, _quantity(int, "N", "Number of ranks.", 2, 64)] = 4,
    fault: Annotated[
        Fault,
        typer.Option(
            parser=_one_of(Fault),
            metavar=_choices(Fault),
            help="Where the slow rank loses time, from step 60 on.",
        ),
    ] = Fault.INPUT,
    steps: Annotated[
        int | None, _quantity(int, "N", "Number of steps. Default: 600 in a terminal, 180 without one.", 120)
    ] = None,
) -> None:
    """Train a small model with one slow rank, and watch ddpmon find that rank.

    Without a terminal it prints status lines and exits with 0 if ddpmon named the slow rank, else with 1.
    """
    from ddpmon.commands.demo import demo as command

    leave(command(nproc, fault.value, steps))


@app.command()
def simulate(
    ranks: Annotated[int, _quantity(int, "N", "Number of ranks.")] = 64,
    hosts: Annotated[int | None, _quantity(int, "N", "Number of hosts. Default: 8 ranks on each.")] = None,
    scenario: Annotated[str, typer.Option(metavar="SCENARIO", help=SCENARIO_HELP)] = "mixed",
    store: Annotated[str | None, typer.Option(metavar="URL", help="Publish to this store. Default: host one.")] = None,
    seconds: Annotated[
        float | None, _quantity(float, "SECONDS", "End after this time. Default: run until Ctrl-C.")
    ] = None,
    step_ms: Annotated[float, _quantity(float, "MS", "Duration of a step in milliseconds.")] = 500.0,
    history_hours: Annotated[float, _quantity(float, "HOURS", "Pretend that the run has lasted this long.")] = 0.0,
    processes: Annotated[int | None, _quantity(int, "N", "Number of processes that publish. Default: 2.")] = None,
    seed: Annotated[int, _quantity(int, "N", "Seed of all random numbers.")] = 0,
) -> None:
    """Publish a simulated run, to try the dashboard at any size. The run is labelled as simulated."""
    from ddpmon.commands.simulate import simulate as command

    leave(
        command(
            store, ranks=ranks, hosts=hosts, scenario=scenario, seconds=seconds, step_ms=step_ms, hours=history_hours,
            processes=processes, seed=seed,
        )
    )  # fmt: skip


def main() -> None:
    """Run the command line. Exit code 1 means a finding, so nothing else ends with it."""
    open_streams()
    gc.set_threshold(*GC_THRESHOLDS)
    if len(sys.argv) > 2 and sys.argv[1] in ("--install-completion", "--show-completion"):
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # makes Typer read the word: a shell it knows
    try:
        app(args=sys.argv[1:] or ["--help"])
    except SystemExit as end:
        leave(USAGE if end.code == 1 else int(end.code or 0))  # Typer's 1: a shell without completion
    except Exception:
        traceback.print_exc()
        leave(BROKEN)


if __name__ == "__main__":
    main()
