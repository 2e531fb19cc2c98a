"""How rank 1 comes to its end, while rank 0 stays for the test to read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import NoReturn

import ddpmon
from ddpmon.probe import failure
from tests.probe.probe_ranks import Reader
from tests.probe.probe_stage import (
    dist_rank,
    folder,
    hold,
    note,
    perform,
    playing,
    scene,
    toy,
    train,
    wait_for,
    watched,
)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def low() -> NoReturn:
    raise ValueError("the loss is \udcff too low")


def unspeakable() -> NoReturn:
    try:
        low()
    except ValueError as error:
        raise UnspeakableError from error


def deep(left: int = 500) -> None:
    if left == 0:
        low()
    deep(left - 1)


def until_published() -> None:
    """Until the test could know this rank."""
    reader = Reader(playing())
    while reader.look(2) is None:
        time.sleep(0.05)
    assert reader.store is not None
    reader.store.close()


def ending(end: Callable[[], object]) -> None:
    """Train on both ranks; then rank 1 leaves its `with` by `end`, and lives on."""
    ddp = toy()
    if dist_rank() == 0:
        with watched(ddp) as monitor:
            train(ddp)
            hold(monitor)
        return
    hook = sys.excepthook
    try:
        with ddpmon.attach(ddp, name=playing()):
            train(ddp)
            until_published()
            end()
    except BaseException as error:
        note(caught=type(error).__name__)
    note(hook=sys.excepthook is hook)


@scene
def leaves_by_an_exception() -> None:
    ending(deep)


@scene
def leaves_by_one_that_cannot_be_shown() -> None:
    ending(unspeakable)


@scene
def exits() -> None:
    ending(lambda: sys.exit(3))


@scene
def exits_because() -> None:
    def give_up() -> NoReturn:
        try:
            low()
        except ValueError as error:
            raise SystemExit(1) from error

    ending(give_up)


@scene
def exits_with_words() -> None:
    def give_up() -> NoReturn:
        try:
            low()
        except ValueError:
            sys.exit("no data")

    ending(give_up)


@scene
def exits_well() -> None:
    ending(lambda: sys.exit(0))


@scene
def is_interrupted() -> None:
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt("SIGTERM")

    ending(interrupt)


@scene
def is_closed() -> None:
    """The training is a generator that nobody reads to its end."""

    def steps() -> Generator[None, None, None]:
        with ddpmon.attach(ddp, name=playing()):
            train(ddp)
            until_published()
            yield

    ddp = toy()
    if dist_rank() == 0:
        with watched(ddp) as monitor:
            train(ddp)
            hold(monitor)
        return
    training = steps()
    next(training)
    training.close()


def passing(name: str) -> None:
    """Install a hook that says it has been called, and calls the one that was there."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        same = (type(error) is kind, error.__traceback__ is trace)
        note(**{name: [kind.__name__, *same]})
        before(kind, error, trace)

    sys.excepthook = hook


@scene
def nobody_catches() -> None:
    """An exception handled earlier, as some loops report theirs, is not what ended this rank."""
    ddp = toy()
    passing("before")
    ddpmon.attach(ddp, name="nobody_catches")
    passing("behind")
    train(ddp, steps=2)
    sys.excepthook(KeyError, KeyError("handled"), None)
    train(ddp)
    (folder() / f"ready.{dist_rank()}").touch()
    wait_for("on" if dist_rank() else "never")
    deep()


@scene
def fails_with_the_store() -> None:
    """Rank 0, which has the store; it stays until the test ends it, so that a slow machine proves the same."""
    failure._HEARD_S = 600.0
    ddp = toy()
    ddpmon.attach(ddp, name=playing())
    train(ddp)
    deep()


if __name__ == "__main__":
    perform()
