"""The command line. Everything heavy is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import gc
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from ddpmon.cli_dashboard import chosen_settings, dashboard_options
from ddpmon.cli_options import (
    FAIL_ON,
    FAULTS,
    FOR_HELP,
    HOSTED_HELP,
    ON_FINDING_HELP,
    SCENARIO_HELP,
    WEBHOOK_HELP,
    Commands,
    choice,
    completing,
    fail_on_option,
    job_option,
    json_switch,
    k8s_option,
    number,
    quantity,
    scenario_names,
    shell_option,
    slurm_option,
    ssh_option,
    switch,
    target_argument,
)
from ddpmon.commands.console import (
    BROKEN,
    GC_THRESHOLDS,
    INTERRUPTED,
    OK,
    USAGE,
    close_on_signals,
    leave,
    open_streams,
)
from ddpmon.commands.diagnose_help import DIAGNOSE_HELP
from ddpmon.version import __version__

if TYPE_CHECKING:
    from ddpmon.diagnose.alert import Severity


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, message="ddpmon %(version)s", help="Print the version and exit.")
@shell_option("--install-completion", "Install completion for the current shell, or for SHELL.")
@shell_option(
    "--show-completion",
    "Show completion for the current shell, or for SHELL, to copy it or customize the installation.",
)
def app() -> None:
    """Show which rank of a PyTorch DistributedDataParallel run is late: in which phase, since when, at what cost."""


@app.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, metavar="-- COMMAND")
@click.option("--name", metavar="NAME", help="What to call the run, whatever the script calls it.")
@switch("--watch", "Show the dashboard; output goes to a file.", "watch_it")
@click.option("--record", metavar="FILE", help="Record the run to this new file, until the run is over.")
def run(command: tuple[str, ...], name: str | None, watch_it: bool, record: str | None) -> None:
    """Start a training without a line of code, and watch it.

    It sets the environment and becomes the command. Its Python processes find their DDP or FSDP model themselves.
    """
    from ddpmon.commands.run import run as start

    leave(start(command, name, watch=watch_it, record=record))


@app.command()
@click.argument("pids", nargs=-1, type=number(int, 1, 1 << 22), metavar="[PID]...")
@switch("--all", "All processes of yours on this host that use torch.", "every")
def inject(pids: tuple[int, ...], every: bool) -> None:
    """Watch a training that runs already, without starting it again; it takes Python 3.14.

    Exit codes: 0 the processes were asked, 2 usage error or an older Python, 3 one of them cannot be asked.
    """
    from ddpmon.commands.inject import inject as command

    leave(command(pids, every=every))


@app.command()
@target_argument
@dashboard_options
@ssh_option
@slurm_option
@k8s_option
@job_option
@click.option("--record", metavar="FILE", help="Record to this new file what is seen, for `ddpmon watch FILE` later.")
def watch(target: str | None, **how: Any) -> None:
    """Show a live dashboard of a run, or replay a recording.

    If no run has started yet, it waits for one, also at an address, with --ssh, and with --slurm or --k8s for a job
    that has not started. With the name of a run on this host it does not wait.

    What is chosen here comes before the environment (DDPMON_THEME and so on), and that before the settings file, which
    `ddpmon info` names. DDPMON_SSH is the ssh command with its options, DDPMON_REMOTE the ddpmon command on the other
    host. A terminal with TERM=dumb cannot show it: use `ddpmon status --watch` there.
    """
    from ddpmon.commands.watch import watch as command

    chosen = chosen_settings(how)
    leave(command(target, chosen, **how))


@app.command()
@target_argument
@click.option("-o", "--out", metavar="FILE", help="The new file. Default: recording-DATE-TIME.ddpmon.")
@quantity("--max-mb", int, "MIB", "Size that the file may reach; old steps are thinned.", 256, least=8)
@ssh_option
@slurm_option
def record(target: str | None, out: str | None, max_mb: int, ssh: str | None, slurm: str | None) -> None:
    """Record a run into a file until it is over, without a screen.

    The file is a TARGET of watch, status, report, compare, export and diagnose.

    Exit codes: 0 recorded, 2 usage error, 3 no run was recorded, 4 a part could not be written.
    """
    from ddpmon.commands.record import record as command

    leave(command(target, out, max_mb, ssh, slurm))


@app.command()
@click.argument("store", required=False)
@click.option("--ssh", metavar="[USER@]HOST", help="List the runs on this host instead.")
@json_switch
@switch("--brief", "List names and addresses only, without connecting.")
@click.option("--slurm", metavar="JOBID", help="List the runs of this Slurm job instead.")
@click.option("--k8s", metavar="[NAMESPACE/]JOB", help="List the runs of this job of Kubernetes instead.")
def ls(store: str | None, **how: Any) -> None:
    """List the runs that can be reached, with the command that shows each.

    Exit codes: 0 runs were found, 2 usage error, 3 no run was found or the store cannot be reached, 4 the output cannot
    be written.
    """
    from ddpmon.commands.ls import ls as command

    leave(command(store, **how))


@app.command()
@target_argument
@json_switch
@fail_on_option
@click.option("--for", "for_s", type=number(float, 0, 60), metavar="SECONDS", help=FOR_HELP)
@switch("--watch", "Print a line whenever something changes, until the run is over.", "goes_on")
@switch("--all", "Print the figures of all ranks, also while the run hangs.", "all_ranks")
@ssh_option
@slurm_option
@k8s_option
@job_option
def status(target: str | None, **how: Any) -> None:
    """Print the state of a run once, or with --watch whenever it changes.

    It answers at once if nothing is pending, else after up to 5 s, in which what is pending can be confirmed. With
    --watch it waits for a run, ends with it or at a finding of --fail-on, and prints JSON lines with --json.

    Exit codes: 0 printed, 1 a finding at or above --fail-on, 2 usage error, 3 no run was found or its store cannot be
    reached, 4 the output cannot be written.
    """
    from ddpmon.commands.status import status as command

    leave(command(target, **how))


@app.command()
@target_argument
@click.option("-o", "--out", metavar="OUT.html|OUT.md", help="The file. Default: Markdown on standard output.")
@ssh_option
@slurm_option
def report(target: str | None, out: str | None, ssh: str | None, slurm: str | None) -> None:
    """Report on a run or a recording: what happened when, who was slow, why, and what it cost.

    Exit codes: 0 written, 2 usage error, 3 no run was found or its store cannot be reached, 4 the output cannot be
    written.
    """
    from ddpmon.commands.report import report as command

    leave(command(target, out, ssh, slurm))


@app.command()
@click.argument("before", type=click.Path(), metavar="A")
@click.argument("after", type=click.Path(), metavar="B")
@quantity("--max-regression", float, "PCT", "Exit 1 if B is slower by more than so many percent.", least=0)
@json_switch
def compare(before: str, after: str, max_regression: float | None, as_json: bool) -> None:
    """Compare two recordings or tables: step time, work and wait by phase, throughput, findings.

    Exit codes: 0 compared, 1 B is slower by more than --max-regression, 2 usage error or no such table, 4 the output
    cannot be written.
    """
    from ddpmon.commands.compare import compare_files as command

    leave(command(before, after, max_regression, as_json))


@app.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--on-finding", metavar="COMMAND", help=ON_FINDING_HELP)
@click.option("--webhook", metavar="URL", help=WEBHOOK_HELP)
@switch("--slack", "The webhook is one of Slack.")
@switch("--discord", "The webhook is one of Discord.")
@choice("--min-severity", FAIL_ON, "Tell findings from this one on.", "warning")
@quantity("--silence-s", float, "SECONDS", "Tell it if no word comes from a run for so long.", 60.0, 10, 86400)
@click.option("--state", metavar="FILE", help="Where the guard remembers what it has told.")
def guard(
    targets: tuple[str, ...],
    on_finding: str | None,
    webhook: str | None,
    slack: bool,
    discord: bool,
    min_severity: Severity,
    silence_s: float,
    state: str | None,
) -> None:
    """Look after runs without a screen: tell a command or a webhook what begins and what is over, once each.

    It runs until SIGTERM or Ctrl-C, follows runs that start later, and goes on after a restart where it stood.

    Exit codes: 0 it was told to end, 2 usage error, 4 the output cannot be written.
    """
    from ddpmon.guard.command import guard as command

    if slack and discord:
        raise click.BadParameter("--slack and --discord exclude each other: start a guard for each.")
    form: Any = "slack" if slack else "discord" if discord else "json"
    leave(command(targets, on_finding, webhook, form, min_severity, silence_s, state))


@app.command()
@target_argument
@quantity(
    "--port", int, "PORT", "Port on this host's loopback. Default: the first free one from 8480.", least=1, most=65535
)
@ssh_option
@slurm_option
def serve(target: str | None, port: int | None, ssh: str | None, slurm: str | None) -> None:
    """Show the live dashboard in a browser, at an address with a token that one browser can use.

    It listens on loopback only and runs until SIGTERM or Ctrl-C; it needs the package textual-serve.

    Exit codes: 0 it was told to end, 2 usage error, 3 no run on this host has that name.
    """
    from ddpmon.commands.serve import serve as command

    leave(command(target, port, ssh, slurm))


@app.command()
@target_argument
@click.option("--csv", metavar="OUT.csv", help="Steps as CSV, for `ddpmon diagnose` and others; - prints it.")
@click.option("--perfetto", metavar="OUT.json.gz", help="Steps as a trace for ui.perfetto.dev.")
@click.option("--steps", metavar="A:B", help="Only the steps from A to B.")
@click.option("--prometheus", metavar="HOST:PORT", help="Serve figures for Prometheus there.")
@ssh_option
@slurm_option
def export(
    target: str | None,
    csv: str | None,
    perfetto: str | None,
    steps: str | None,
    prometheus: str | None,
    ssh: str | None,
    slurm: str | None,
) -> None:
    """Export the steps of a recording or the last ones of a run, or a run's figures while it goes on.

    --prometheus serves the run's figures until SIGTERM or Ctrl-C; it needs the package prometheus-client.

    Exit codes: 0 exported, 2 usage error, 3 no run was found or its store cannot be reached, 4 the output cannot be
    written.
    """
    if prometheus is not None:
        if csv or perfetto or steps:
            raise click.BadParameter("--prometheus goes with neither --csv, --perfetto nor --steps.")
        from ddpmon.commands.export_prometheus import export_prometheus

        leave(export_prometheus(target, prometheus, ssh, slurm))
    from ddpmon.commands.export import export as command

    leave(command(target, csv, perfetto, steps, ssh, slurm))


@app.command(help=DIAGNOSE_HELP)
@click.argument("table", type=click.Path(), required=False)
@click.option("--flight-recorder", metavar="DIR", help="Instead of TABLE: what torch dumped on a timeout.")
@switch("--marks", "TABLE has one row per mark, made from traces.")
@json_switch
@fail_on_option
def diagnose(
    table: str | None, flight_recorder: str | None, marks: bool, as_json: bool, fail_on: Severity | None
) -> None:
    """Diagnose a table made from logs."""
    if (table is None) == (flight_recorder is None):
        raise click.UsageError("give a TABLE, or --flight-recorder DIR")
    if flight_recorder is not None:
        from ddpmon.commands.flight_recorder import diagnose_flight_recorder

        leave(diagnose_flight_recorder(flight_recorder, as_json, fail_on))
    assert table is not None
    from ddpmon.commands.diagnose import diagnose as command

    leave(command(table, as_json, fail_on, of_marks=marks))


@app.command()
@quantity("--nproc", int, "N", "Ranks that you plan to start on a host.", least=1, most=4096)
@quantity("--port", int, "PORT", "Port of the rendezvous. Default: MASTER_PORT, or 29500.", least=1, most=65535)
@json_switch
def doctor(nproc: int | None, port: int | None, as_json: bool) -> None:
    """Check before a run what would hurt it: GPUs, CPUs, memory, ports, network, versions.

    It checks this host. To check all hosts of a run: torchrun ... -m ddpmon.doctor, or srun python -m ddpmon.doctor.

    Exit codes: 0 no problem, 1 warnings (0 under a launcher), 2 the run would fail, 4 the output cannot be written.
    """
    from ddpmon.commands.doctor_command import doctor as command

    leave(command(nproc, port, as_json))


@app.command()
@quantity("--nproc", int, "N", "Number of ranks.", 4, least=2, most=64)
@choice("--fault", FAULTS, "Where the slow rank loses time, from step 60 on.", "input")
@quantity("--steps", int, "N", "Number of steps. Default: 600 in a terminal, 180 without one.", least=120)
def demo(nproc: int, fault: str, steps: int | None) -> None:
    """Train a small model with one slow rank, and watch ddpmon find that rank.

    Without a terminal it prints status lines and exits with 0 if ddpmon named the slow rank, else with 1.
    """
    from ddpmon.commands.demo import demo as command

    leave(command(nproc, fault, steps))


@app.command()
@quantity("--ranks", int, "N", "Number of ranks.", 64)
@quantity("--hosts", int, "N", "Number of hosts. Default: 8 ranks on each.")
@click.option(
    "--scenario", metavar="SCENARIO", default="mixed", help=SCENARIO_HELP, shell_complete=completing(scenario_names)
)
@click.option("--store", metavar="URL", help=HOSTED_HELP)
@quantity("--seconds", float, "SECONDS", "End after this time. Default: run until Ctrl-C.")
@quantity("--step-ms", float, "MS", "Duration of a step in milliseconds.", 500.0)
@quantity("--history-hours", float, "HOURS", "Pretend that the run has lasted this long.", 0.0)
@quantity("--processes", int, "N", "Number of processes that publish. Default: 2.")
@quantity("--seed", int, "N", "Seed of all random numbers.", 0)
def simulate(store: str | None, history_hours: float, **how: Any) -> None:
    """Publish a simulated run, to try the dashboard at any size. The run is labelled as simulated."""
    from ddpmon.commands.simulate import simulate as command

    leave(command(store, hours=history_hours, **how))


@app.command()
@json_switch
def info(as_json: bool) -> None:
    """Print the version, and where ddpmon reads and writes: folders, settings file, environment.

    Exit codes: 0 printed, 4 the output cannot be written.
    """
    from ddpmon.commands.info import info as command

    leave(command(as_json))


def main() -> None:
    """Run the command line. Exit code 1 means a finding, so nothing else ends with it."""
    open_streams()
    close_on_signals()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        leave(app(args=sys.argv[1:] or ["--help"], prog_name="ddpmon", standalone_mode=False) or OK)
    except click.ClickException as error:
        error.show()
        leave(USAGE)
    except click.Abort:
        leave(INTERRUPTED)
    except SystemExit as end:  # Click's 1: completion for a shell that it does not know
        leave(USAGE if end.code == 1 else int(end.code or OK))
    except Exception:
        traceback.print_exc()
        leave(BROKEN)


if __name__ == "__main__":
    main()
