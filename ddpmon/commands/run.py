"""`ddpmon run`: starts a command so that every Python process below it finds and watches its data parallel model.

It sets the environment and becomes the command: signals, exit code and terminal stay those of the command.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import ddpmon
from ddpmon.commands.console import NOT_EXECUTABLE, NOT_FOUND, USAGE, complain, why_no_dashboard

BOOT = Path(ddpmon.__file__).resolve().parent / "boot"
_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")
_TAKES_NEXT = frozenset("cmWX")  # options of Python whose value follows; after -c and -m comes the script's own
# Commands that start processes elsewhere, or without this environment, unless an option says otherwise.
_ELSEWHERE = ("ssh", "docker", "podman", "nerdctl", "kubectl", "sudo")
_MPI = ("mpirun", "mpiexec", "orterun", "prterun")


def run(command: Sequence[str], name: str | None, *, watch: bool, record: str | None = None) -> int:
    """Become `command`; returns an exit code only if that fails, or for the dashboard.

    Args:
        command: its words.
        name: what to call the run, whatever the script calls it; None for its own name.
        watch: show the dashboard, and run the command as a child.
        record: the path of a new recording; None for none.
    """
    if not command:
        complain("run needs a command: ddpmon run -- torchrun --nproc-per-node 4 train.py")
        return USAGE
    found = shutil.which(command[0])
    if found is None:
        complain(f"{command[0]!r} is not a command that can be found on PATH")
        return NOT_FOUND
    if watch and (why := why_no_dashboard(os.environ)):
        complain(f"--watch cannot be used here: {why}")
        return USAGE
    if (doubt := what_prevents(command, found)) is not None:
        complain(doubt)
    environment = environment_of(os.environ, name)
    compile_boot()
    if record is not None and (trouble := _start_recorder(Path(record))) is not None:
        complain(trouble)
        return USAGE
    if watch:
        from ddpmon.commands.run_watched import run_watched

        return run_watched(command, environment)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], [*command], environment)
    except OSError as error:
        complain(f"{command[0]!r} cannot be started: {error.strerror}")
        return NOT_EXECUTABLE


def _start_recorder(path: Path) -> str | None:
    from ddpmon.commands.run_recorded import start_recorder

    return start_recorder(path)


def environment_of(own: Mapping[str, str], name: str | None) -> dict[str, str]:
    """The environment of the command: the folder that Python looks for sitecustomize.py in comes first, once."""
    boot = str(BOOT)
    path = [entry for entry in own.get("PYTHONPATH", "").split(os.pathsep) if entry != boot]
    path = path if own.get("PYTHONPATH") else []  # an empty entry means the working directory
    environment = {**own, "DDPMON_RUN": "1", "PYTHONPATH": os.pathsep.join([boot, *path])}
    if name is not None:
        environment["DDPMON_RUN_NAME"] = name
    return environment


def compile_boot() -> None:
    """Compile sitecustomize.py for this Python: an environment that writes no bytecode would do so at every start.

    That takes 4 ms. A folder that cannot be written is left as it is.
    """
    with suppress(OSError):
        py_compile.compile(str(BOOT / "sitecustomize.py"), quiet=2)


def what_prevents(command: Sequence[str], found: str) -> str | None:
    """Why nothing, or not every host, will be watched as far as the command line tells, with what to do; else None."""
    program = Path(command[0]).name
    if _PYTHON.match(program) and (letter := ignoring(command[1:])):
        return f"{program} -{letter} ignores the environment: nothing will be watched unless you leave -{letter} out"
    if program in _ELSEWHERE or (program == "env" and {"-i", "-", "--ignore-environment"} & {*command[1:]}):
        return _misplaced(program, "does not pass the environment on")
    if program in _MPI and not any("PYTHONPATH" in word or word in ("-envall", "--mca") for word in command):
        return _misplaced(program, "may not pass the environment on to other hosts")
    if program == "deepspeed" and any(map(_names_hosts, takewhile(lambda word: not word.endswith(".py"), command))):
        return "deepspeed passes only some variables on to other hosts: put DDPMON_RUN=1 into ~/.deepspeed_env as well"
    if program == "srun" and any(_exports_not(word, after) for word, after in zip(command, [*command[1:], ""])):  # noqa: B905
        return _misplaced("srun --export", "does not pass the environment on")
    if (letter := ignoring(_shebang(found))) is not None:
        return (
            f"the first line of {found} has Python's -{letter}, which ignores the environment: nothing will be watched"
        )
    return None


def _names_hosts(word: str) -> bool:
    """Whether this is DeepSpeed's option for a file of hosts, and no argument of the script."""
    return word in ("-H", "--hostfile") or word.startswith("--hostfile=")


def _misplaced(program: str, what: str) -> str:
    return f"{program} {what}: put `ddpmon run --` behind it, directly before what starts Python on each host"


def _exports_not(word: str, after: str) -> bool:
    value = after if word == "--export" else word.removeprefix("--export=") if word.startswith("--export=") else None
    return value is not None and "ALL" not in value.split(",")


def ignoring(arguments: Sequence[str]) -> str | None:
    """The letter of an option among Python's own by which it ignores PYTHONPATH or sitecustomize; None without one."""
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        else:
            for place, letter in enumerate(word[1:], 1):
                if letter in "EIS":
                    return letter
                if letter in _TAKES_NEXT:
                    if letter in "cm":
                        return None
                    skip = place == len(word) - 1
                    break
    return None


def _shebang(path: str) -> list[str]:
    """The options in the first line of a script that Python runs."""
    try:
        with Path(path).open("rb") as script:
            words = script.readline(512).decode("utf-8", "replace").split()
    except OSError:
        return []
    names = [place for place, word in enumerate(words) if _PYTHON.search(word)]
    return words[names[0] + 1 :] if names and words[0].startswith("#!") else []
