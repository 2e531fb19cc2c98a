"""Completion of commands and options in the user's shell: Click writes the scripts, this installs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ddpmon.commands.console import NOT_WRITTEN, OK, USAGE, complain

if TYPE_CHECKING:
    from click import Command

# shell -> the script's path, the file that the shell reads when it starts, and the line in it that reads the script;
# all paths are below the user's home.
_PLACES = {
    "bash": (".bash_completions/ddpmon.sh", ".bashrc", "source ~/.bash_completions/ddpmon.sh"),
    "zsh": (".zfunc/_ddpmon", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/ddpmon.fish", "", ""),
}


def completion(app: Command, shell: str, is_to_install: bool) -> int:
    """Print the script of a shell ("": the one in which we run), or install it; returns the exit code.

    No file is touched for a shell that is not known.
    """
    shell = shell or _current_shell()
    if shell not in _PLACES:
        known = ", ".join(_PLACES)
        complain(f"{shell!r} is not a shell that has completion: name one of {known}, as in --show-completion bash")
        return USAGE
    script = _script(app, shell)
    if not is_to_install:
        print(script)
        return OK
    try:
        path = _install(shell, script)
    except RuntimeError:
        complain("completion cannot be installed: this user has no home directory; set HOME, or use --show-completion")
        return NOT_WRITTEN
    except OSError as error:
        complain(f"completion cannot be installed: {error.filename}: {error.strerror}")
        return NOT_WRITTEN
    print(f"{shell} completion installed in {path}\nCompletion will take effect once you restart the terminal")
    return OK


def _current_shell() -> str:
    """The nearest shell among the processes that have started this one, or else that of the login; "" if unknown."""
    import psutil

    try:
        names = [process.name() for process in psutil.Process().parents()]
    except psutil.Error:
        names = []
    return next((name for name in names if name in _PLACES), Path(os.environ.get("SHELL", "")).name)


def _script(app: Command, shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # Click knows these three
    return kind(app, {}, "ddpmon", "_DDPMON_COMPLETE").source().strip()


def _install(shell: str, script: str) -> Path:
    """Write the script, and the line that reads it where the shell's own file has none; the script's path.

    Raises:
        OSError: a file cannot be read or written.
        RuntimeError: this user has no home directory.
    """
    home = Path.home()
    place, start, line = _PLACES[shell]
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{script}\n")
    if start and line not in ((home / start).read_text(errors="replace") if (home / start).exists() else ""):
        with (home / start).open("a") as file:
            file.write(f"\n{line}\n")
    return path
