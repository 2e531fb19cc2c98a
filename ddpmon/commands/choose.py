"""Which of several runs the user means."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from ddpmon.commands.console import printable
from ddpmon.commands.listing import Listed
from ddpmon.format import plural
from ddpmon.store.base import StoreUnavailable, TargetError


def choose(runs: Sequence[Listed], wanted: str | None, where: str, options: str) -> Listed | None:
    """The run that is wanted of those elsewhere, or the only one where nothing is; None where there is no run at all.

    Raises:
        TargetError: several fit.
        StoreUnavailable: there are others, and none fits.
    """
    found = only(runs if wanted is None else fitting(runs, wanted), f"on {where}", options)
    if found is None and runs:
        others = ", ".join(printable(run.id) for run in runs[:8])
        raise StoreUnavailable(f"no run called {wanted!r} on {where}; there are: {others}")
    return found


def of_job(runs: Sequence[Listed], job: str | None) -> list[Listed]:
    """The runs of a job as a scheduler or a launcher calls it; all of them for None."""
    return [run for run in runs if job is None or job in run.jobs.values()]


def fitting(runs: Sequence[Listed], wanted: str) -> list[Listed]:
    """The runs with this id; or else of this name; or else those whose id or name begins so."""
    tests: tuple[Callable[[Listed], bool], ...] = (
        lambda run: run.id == wanted,
        lambda run: run.name == wanted,
        lambda run: bool(wanted) and (run.id.startswith(wanted) or (run.name or "").startswith(wanted)),
    )
    return next((found for test in tests if (found := [run for run in runs if test(run)])), [])


def only(runs: Sequence[Listed], where: str, options: str = "") -> Listed | None:
    """The only one of these runs, or of those whose rank 0 lives; None for none.

    Raises:
        TargetError: there are several.
    """
    runs = [run for run in runs if run.state not in ("lost", "restarting")] or runs
    if len(runs) > 1:
        lines = [f"  {options}{shlex.quote(run.id)}   {printable(_described(run))}" for run in runs]
        raise TargetError("\n".join([f"several runs {where}: name one of these as TARGET", *lines]))
    return runs[0] if runs else None


def _described(run: Listed) -> str:
    """A run in a store has not been asked for its name."""
    return run.url if run.world_size is None else f"{run.name}, {plural(run.world_size, 'rank')}, {run.url}"
