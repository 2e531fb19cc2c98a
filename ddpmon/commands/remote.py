"""Asks another host's ddpmon which runs are there, through the system's ssh or Slurm's srun."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import subprocess
import time
from collections.abc import Sequence

import msgspec

from ddpmon.commands.console import NO_RUN, NOT_EXECUTABLE, NOT_FOUND
from ddpmon.commands.listing import Listing, joined, read_listing
from ddpmon.store.base import StoreUnavailable, TargetError

LIMIT_S, LIMIT_WITH_A_PERSON_S = 60.0, 300.0  # a person may have to type a password first
MOST_BYTES = 16 << 20  # a listing takes 4 MB at most, and several hosts may print one each
_PIECE = 1 << 16
Done = subprocess.CompletedProcess[bytes]
SSH_FAILED = 255


def ssh_command(host: str) -> list[str]:
    """The command that reaches `host`, which stands last: DDPMON_SSH (with options) or ssh.

    Raises:
        TargetError: `host` or DDPMON_SSH makes no sense.
    """
    if not host or host.startswith("-") or not host.isprintable() or any(letter.isspace() for letter in host):
        raise TargetError(f"{host!r} is not a host: --ssh takes user@host, or a name from your ssh configuration")
    return [*_words("DDPMON_SSH", "ssh"), "-o", "ConnectTimeout=10", host]


def remote_command(*arguments: str) -> str:
    """What the other host's shell is to run: DDPMON_REMOTE, or ddpmon."""
    return f"{os.environ.get('DDPMON_REMOTE') or 'ddpmon'} ls --json {shlex.join(arguments)}".strip()


def ask(command: Sequence[str], where: str) -> Listing:
    """The listing that a command prints; several hosts may print one each.

    Raises:
        StoreUnavailable: it cannot be run, fails, or prints something else.
    """
    done = run_bounded(command, where, LIMIT_S, "a list of runs")
    try:
        listings = _listings(done.stdout)
    except ValueError as error:
        raise StoreUnavailable(f"the answer of the ddpmon on {where} cannot be read here: {error}") from None
    if not listings and done.returncode != NO_RUN:
        raise StoreUnavailable(_refusal(done, where))
    return joined(listings)


def _listings(said: bytes) -> list[Listing]:
    """The listings among what was printed: a shell's start-up files may talk too, and begin a line with a brace.

    Raises:
        ValueError: one of them is of another schema version, or of another form.
    """
    found = list[Listing]()
    for line in said.splitlines():
        if line.startswith(b"{"):
            try:
                found.append(read_listing(line))
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:  # no JSON, so none of ours
                continue
    return found


def run_bounded(command: Sequence[str], who: str, limit_s: float, what: str, most: int = MOST_BYTES) -> Done:
    """Run a command to its end, within bounds; of stderr only the last 64 KiB are kept.

    Args:
        command: the program and its arguments.
        who: answers, in words.
        limit_s: seconds that it may take.
        what: it is to print.
        most: bytes that it may print.

    Raises:
        StoreUnavailable: it cannot be run, takes too long or prints too much. It does not run any more then.
    """
    try:
        done = _run(command, limit_s, most)
    except subprocess.TimeoutExpired:
        raise StoreUnavailable(f"{who} did not answer within {limit_s:.0f} s") from None
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"{command[0]} cannot be run: {getattr(error, 'strerror', None) or error}") from None
    if len(done.stdout) > most:
        raise StoreUnavailable(f"the answer of {who} is far longer than {what} (more than {most >> 20} MiB)")
    return done


def _run(command: Sequence[str], limit_s: float, most: int) -> Done:
    """Run a command to its end, or until it has said more than `most` bytes.

    Raises:
        TimeoutExpired: it takes too long.
        OSError: it cannot be run.
    """
    until = time.monotonic() + limit_s
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        try:
            said, complained = _hear(process, until, most)
            if len(said) > most:
                process.kill()
            code = process.wait(max(0.0, until - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, code, said, complained)


def _hear(process: subprocess.Popen[bytes], until: float, most: int) -> tuple[bytes, bytes]:
    """What it says on stdout, no more than is too much, and the end of what it says on stderr."""
    said, complained = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, said)  # type: ignore[arg-type]  # both are pipes
        selector.register(process.stderr, selectors.EVENT_READ, complained)  # type: ignore[arg-type]
        while selector.get_map() and len(said) <= most:
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


def login_trouble(command: Sequence[str], heard: bytes) -> str:
    """Why ssh logged nobody in, in a sentence; `command` is the ssh command, with the host at its end."""
    program, host = command[0], command[-1]
    trouble = f"{program} could not log in to {host}: {last_line(heard).rstrip('.')}"
    if b"Host key verification failed" not in heard:
        return trouble
    by_hand = shlex.join([*_words("DDPMON_SSH", "ssh"), host])
    known = re.search(rb"Offending \w+ key in (\S+?:\d+)", heard)
    where = f" (the key known so far is in {known[1].decode('utf-8', 'replace')})" if known else ""
    return f"{trouble}{where}; log in once by hand, which says more: {by_hand}"


def _refusal(done: Done, where: str) -> str:
    reason = last_line(done.stderr)
    if done.returncode in (NOT_FOUND, NOT_EXECUTABLE):
        if set_to := os.environ.get("DDPMON_REMOTE"):
            return f"DDPMON_REMOTE={shlex.quote(set_to)} cannot be run on {where}: {reason}"
        return f"ddpmon is not on the PATH of {where}: set DDPMON_REMOTE to its path there, such as ~/venv/bin/ddpmon"
    if done.returncode == SSH_FAILED:
        return f"the ssh connection to {where} broke: {reason}"
    if done.returncode == 0:
        return f"the answer of the ddpmon on {where} cannot be read here: it is no list of runs"
    if "No such command" in reason or "No such option" in reason:
        return f"the ddpmon on {where} is too old to list runs: install the release that is installed here"
    return f"asking {where} for its runs failed (exit code {done.returncode}): {reason}"


def _words(variable: str, default: str) -> list[str]:
    try:
        words = shlex.split(os.environ.get(variable, "")) or [default]
    except ValueError as error:
        raise TargetError(f"{variable} cannot be read: {error}") from None
    return words
