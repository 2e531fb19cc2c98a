"""What the commands of the command line have in common: arguments, options, and how a wrong value is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

N = TypeVar("N", int, float)
F = TypeVar("F", bound=Callable[..., Any])
FAIL_ON = ("info", "warning", "critical")
FAULTS = ("input", "forward", "backward", "host")
_RUN = (
    "The run: its name or id, or the beginning of either, on this host or in the store of DDPMON_STORE; or "
    "the address of its store, tcp://HOST:PORT or redis://HOST{}. Default: the only run on this host, else the "
    "newest in that store."
)
ARGUMENTS = {  # by name, and before that by command and name
    "TARGET": _RUN.format("; or the path of a recording"),
    "record TARGET": _RUN.format(""),
    "serve TARGET": _RUN.format(""),
    "A": "A recording, or a table of steps as CSV.  [required]",
    "B": "Another one, which is compared with A.  [required]",
    "STORE": "The store whose runs are listed, tcp://HOST:PORT or redis://HOST. "
    "Default: the runs on this host and in the store of DDPMON_STORE.",
    "[TARGET]...": "The runs: names or ids, or the beginning of either, addresses of stores, or of a Redis server with "
    "all its runs. Default: all runs on this host and in the store of DDPMON_STORE.",
    "-- COMMAND": "What starts the training, such as torchrun --nproc-per-node 4 train.py.",
    "[PID]...": "The numbers of all ranks of the training on this host.",
    "TABLE": "A file, a recording, or - for standard input.",
}
SSH_HELP = "Find the run on this host and reach it through an ssh tunnel."
SLURM_HELP = "Find the run on the hosts of this Slurm job."
K8S_HELP = "Find the run in the pods of this JobSet, TrainJob, PyTorchJob or Job of Kubernetes."
JOB_HELP = "The run whose Slurm job, torchrun --rdzv-id, pod or SkyPilot task is called so."
FOR_HELP = "Look at the run for so long, 0 for a single look. Default: while something may be confirmed, up to 5 s."
ON_FINDING_HELP = "Run this with sh for each message, with the message as one line of JSON on its standard input."
WEBHOOK_HELP = "Post each message to this address. Default: DDPMON_WEBHOOK, which no other user of the host can read."
SCENARIO_HELP = "healthy, straggler, intermittent, slow-node, hang, churn, clash, memory, or mixed."
HOSTED_HELP = (
    "Publish to this store, which has to run: a redis-server, or the one that another `ddpmon simulate` hosts. "
    "Default: host one."
)


def one_of(words: Sequence[str]) -> Callable[[str], str]:
    """A parser of one of the words, which names a wrong one in one sentence."""

    def read(word: str) -> str:
        if word not in words:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(words)}.")
        return word

    return read


def number(kind: type[N], least: float, most: float) -> Callable[[str | N], N]:
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
        raise click.BadParameter(f"{word!r} is not {noun} {bounds}".rstrip() + ".")

    return read


class Command(click.Command):
    """A command whose help says what its arguments are."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments above the options."""
        arguments = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(_name(each), self._meaning(_name(each))) for each in arguments])
        super().format_options(ctx, formatter)

    def _meaning(self, argument: str) -> str:
        return ARGUMENTS.get(f"{self.name} {argument}") or ARGUMENTS[argument]


def _name(argument: click.Argument) -> str:
    return str(argument.human_readable_name)


class Commands(click.Group):
    """The commands, listed in the order of this file."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        del ctx
        return list(self.commands)


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(words: Callable[[], Sequence[str]]) -> Complete:
    """What a shell offers for a word that was begun: those of `words`, which is called only then."""
    return lambda _ctx, _parameter, begun: [word for word in words() if word.startswith(begun)]


def _targets(_ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[Any]:
    """The runs on this host, newest first, and recordings; where none begins so, the shell completes any path.

    What a shell could not take as one word is left out.
    """
    from click.shell_completion import CompletionItem

    from ddpmon.store.discovery import discover

    words = dict.fromkeys([*(run.name for run in discover()), *_recordings(begun)])
    fitting = [word for word in words if word.startswith(begun) and word.isprintable()]
    safe = [CompletionItem(word) for word in fitting if not any(letter in " \"'`$\\" for letter in word)]
    return safe or [CompletionItem(begun, type="file")]


def _recordings(begun: str) -> list[str]:
    """The recordings in the folder that a path begins with, with that folder as it was typed."""
    from ddpmon.commands.recordings import SUFFIX

    folder = begun[: begun.rfind("/") + 1]
    try:
        return [folder + path.name for path in sorted(Path(folder).expanduser().glob(f"*{SUFFIX}"))]
    except (OSError, RuntimeError, ValueError):  # no permission, nobody's home, or no name of a folder
        return []


def scenario_names() -> Sequence[str]:
    """What `ddpmon simulate` can play."""
    from ddpmon.simulate.plan import SCENARIOS

    return SCENARIOS


def choice(flag: str, words: Sequence[str], text: str, default: str | None = None) -> Callable[[F], F]:
    """An option that takes one of the words."""
    return click.option(
        flag,
        type=one_of(words),
        metavar=f"<{'|'.join(words)}>",
        default=default,
        help=text,
        shell_complete=completing(lambda: words),
    )


def quantity(
    flag: str,
    kind: type[int] | type[float],
    unit: str,
    text: str,
    default: float | None = None,
    least: float = -math.inf,
    most: float = math.inf,
) -> Callable[[F], F]:
    """An option that takes a number within bounds; `text` tells of a default that is None."""
    return click.option(flag, type=number(kind, least, most), metavar=unit, default=default, help=text)


def switch(flag: str, text: str, name: str | None = None) -> Callable[[F], F]:
    """An option that takes no value; `name` is its parameter, if the flag does not say it."""
    return click.option(flag, *([name] if name else []), is_flag=True, help=text)


target_argument = click.argument("target", required=False, shell_complete=_targets)
ssh_option = click.option("--ssh", metavar="[USER@]HOST", help=SSH_HELP)
slurm_option = click.option("--slurm", metavar="JOBID", help=SLURM_HELP)
k8s_option = click.option("--k8s", metavar="[NAMESPACE/]JOB", help=K8S_HELP)
job_option = click.option("--job", metavar="ID", help=JOB_HELP)
json_switch = switch("--json", "Print one JSON object.", "as_json")
fail_on_option = choice("--fail-on", FAIL_ON, "Exit 1 on a finding of this severity or worse.")


def _completion(ctx: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Show the completion of a shell, or install it; the empty word is the shell in which we run."""
    if shell is not None and not ctx.resilient_parsing:
        from ddpmon.commands.completion import completion
        from ddpmon.commands.console import leave

        leave(completion(ctx.find_root().command, shell, is_to_install=option.name == "install_completion"))


def shell_option(flag: str, text: str) -> Callable[[F], F]:
    """An option with the name of a shell, which may be left out; it answers before the command is looked at."""
    return click.option(
        flag, is_flag=False, flag_value="", metavar="[SHELL]", is_eager=True, expose_value=False,
        callback=_completion, help=text,
    )  # fmt: skip
