"""Asks another host's ddpmon which runs are there, through the system's ssh or Slurm's srun."""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Sequence

from ddpmon.commands.console import NO_RUN, STDIN, has_terminal
from ddpmon.commands.listing import Listed, read_listing
from ddpmon.store.base import StoreUnavailable, TargetError, is_run_id

LIMIT_S, LIMIT_WITH_A_PERSON_S = 60.0, 300.0  # a person may have to type a password first
MOST_BYTES = 16 << 20  # a listing takes 4 MB at most, and several hosts may print one each
_PIECE = 1 << 16
Done = subprocess.CompletedProcess[bytes]
NOT_EXECUTABLE, NOT_FOUND, SSH_FAILED = 126, 127, 255


def ssh_command(host: str, *options: str) -> list[str]:
    """The command that reaches `host`: DDPMON_SSH (with options) or ssh; asks for a password only where a person is.

    Raises:
        TargetError: `host` or DDPMON_SSH makes no sense.
    """
    if not host or host.startswith("-") or not host.isprintable() or any(letter.isspace() for letter in host):
        raise TargetError(f"{host!r} is not a host: --ssh takes user@host, or a name from your ssh configuration")
    unattended = () if has_terminal(STDIN) else ("-o", "BatchMode=yes")
    return [*_words("DDPMON_SSH", "ssh"), "-o", "ConnectTimeout=10", *unattended, *options, host]


def runs_over_ssh(host: str, *arguments: str) -> list[Listed]:
    """The runs on `host`, as `ddpmon ls` with these arguments lists them there.

    Raises:
        TargetError: `host` makes no sense.
        StoreUnavailable: it cannot be asked; the message is a sentence that says why.
    """
    return ask([*ssh_command(host, "-T"), remote_command(*arguments)], host)


def remote_command(*arguments: str) -> str:
    """What the other host's shell is to run: DDPMON_REMOTE, or ddpmon."""
    return f"{os.environ.get('DDPMON_REMOTE') or 'ddpmon'} ls --json {shlex.join(arguments)}".strip()


def ask(command: Sequence[str], where: str) -> list[Listed]:
    """The runs in a listing that a command prints; several hosts may print one each.

    Raises:
        StoreUnavailable: it cannot be run, fails, or prints something else.
    """
    limit = LIMIT_WITH_A_PERSON_S if has_terminal(STDIN) else LIMIT_S
    try:
        done = _run(command, limit)
    except subprocess.TimeoutExpired:
        raise StoreUnavailable(f"{where} did not answer within {limit:.0f} s") from None
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{command[0]} cannot be run: {getattr(error, 'strerror', None) or error}") from None
    if len(done.stdout) > MOST_BYTES:
        raise StoreUnavailable(f"the answer of {where} is far longer than a list of runs")
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(b"{")
    ]  # a shell's start-up files may talk too
    if not lines:
        if done.returncode == NO_RUN:
            return []
        raise StoreUnavailable(_refusal(done, command[0], where))
    try:
        return [run for line in lines for run in read_listing(line).runs if is_run_id(run.id)]
    except ValueError as error:
        raise StoreUnavailable(f"the answer of the ddpmon on {where} cannot be read here: {error}") from None


def _run(command: Sequence[str], limit_s: float) -> Done:
    """Run a command to its end, or until it has said more than anybody wants to hear: of stderr only the end is kept.

    Raises:
        TimeoutExpired: it takes too long.
        OSError: it cannot be run.
    """
    until = time.monotonic() + limit_s
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        try:
            said, complained = _hear(process, until)
            if len(said) > MOST_BYTES:
                process.kill()
            code = process.wait(max(0.0, until - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, code, said, complained)


def _hear(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """What it says on stdout, no more than is too much, and the end of what it says on stderr."""
    said, complained = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, said)  # type: ignore[arg-type]  # both are pipes
        selector.register(process.stderr, selectors.EVENT_READ, complained)  # type: ignore[arg-type]
        while selector.get_map() and len(said) <= MOST_BYTES:
            if (left := until - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(process.args, 0.0)
            for key, _ in selector.select(left):
                piece = os.read(key.fd, _PIECE)
                key.data.extend(piece)
                if not piece:
                    selector.unregister(key.fileobj)
            del complained[:-_PIECE]
    return bytes(said), bytes(complained)


def last_line(said: bytes) -> str:
    """What a command said last on stderr, where the reason usually stands."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it gave no reason"


def _refusal(done: Done, program: str, where: str) -> str:
    reason = last_line(done.stderr)
    if done.returncode in (NOT_FOUND, NOT_EXECUTABLE):
        return f"ddpmon is not on the PATH of {where}: set DDPMON_REMOTE to its path there, such as ~/venv/bin/ddpmon"
    if done.returncode == SSH_FAILED:
        return f"{program} could not log in to {where}: {reason}"
    if "No such command" in reason or "No such option" in reason:
        return f"the ddpmon on {where} is too old to list runs: install the release that is installed here"
    return f"asking {where} for its runs failed (exit code {done.returncode}): {reason}"


def _words(variable: str, default: str) -> list[str]:
    try:
        words = shlex.split(os.environ.get(variable, "")) or [default]
    except ValueError as error:
        raise TargetError(f"{variable} cannot be read: {error}") from None
    return words
