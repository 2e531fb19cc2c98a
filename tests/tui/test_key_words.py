"""What the lines at the foot of the screen say: the keys, what a tab offers, what is not understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpmon.recording.travel import Replay
from ddpmon.simulate.plan import Plan
from tests.recording.made_recordings import record
from tests.tui.test_views import SHOWN
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


def foot(watched: Watched) -> str:
    return watched.text().split("\n")[-1]


@pytest.mark.parametrize(
    ("width", "named"), [(80, "3 hosts  5 findings"), (120, "2 timeline  3 hosts  4 run  5 findings")]
)
def test_the_key_line_names_all_views_where_there_is_room(width: int, named: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert named in foot(watched)
        for words in ("enter rank", "/ filter", "? help", "q quit"):
            assert words in foot(watched)

    watch(Fixed(SHOWN), act, (width, 40))


@pytest.mark.parametrize(
    ("width", "named"),
    [
        (80, ", . sort  y copy  q quit"),
        (160, "y copy  tab v map  f full  w save  z Z zoom  m c compare  space freeze  q quit"),
        (240, "m c compare   space freeze   ctrl+s save view   r reverse   + - rate   ctrl+p all commands   q quit"),
    ],
)
def test_the_key_line_of_the_overview_names_the_most_used_keys_that_have_room(width: int, named: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert foot(watched).rstrip().endswith(named)

    watch(Fixed(SHOWN), act, (width, 40), interval=1.0)


@pytest.mark.parametrize(("width", "named"), [(80, "y copy  w save"), (160, "y copy   w save")])
def test_the_key_line_of_a_comparison_names_the_keys_that_copy_and_save_it(width: int, named: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("m", "j", "m", "c")
        await watched.until(lambda: "esc back" in foot(watched))
        assert named in foot(watched)

    watch(Fixed(SHOWN), act, (width, 40), interval=1.0)


@pytest.mark.parametrize("keys", [("enter",), ("2",), ("3",), ("enter", "h"), ("4",), ("5",)])
def test_the_key_line_of_every_view_says_what_can_be_taken_along(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        await watched.until(lambda: "esc back" in foot(watched))
        assert "copy" in foot(watched)
        assert "w save" in foot(watched)

    watch(Fixed(SHOWN), act, (160, 50), interval=1.0)


def test_a_tab_in_an_empty_filter_goes_through_the_fields() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("slash")
        await watched.until_shown("late>10")
        await watched.press("tab")
        await watched.until_shown(" tab:▸rank  late  work ")
        await watched.press("tab")
        await watched.until_shown(" tab: rank ▸late  work ")
        await watched.press(*">10 ", "tab")
        await watched.until_shown(" tab:▸rank ")
        await watched.press("escape", "slash", *"late>", "tab")
        await watched.until_shown("late> needs a value")

    watch(Fixed(STRAGGLER), act, (80, 24))


def test_what_is_no_moment_is_named_in_full_in_80_columns(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    record(Plan(ranks=2, hosts=1, scenario="healthy"), 20, path).close()

    async def act(watched: Watched) -> None:
        await watched.until_shown("REPLAY running")
        await watched.press("t", *"never in my whole life", "enter")
        await watched.until_shown("is not understood")
        said = " ".join(" ".join(watched.text().split("\n")[-4:]).split())
        assert "'never in my whole l…' is not understood: type a step (1200), a time of day (03:12)" in said
        assert "or how far back (2 min)" in said
        await watched.press(*"5", "enter")
        await watched.until(lambda: "understood" not in watched.text())

    watch(Replay(path), act, (80, 24))
