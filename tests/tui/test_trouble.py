"""A rank that hangs or has failed, on its own screen: the stack first, and the picture gives way to it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ddpmon.parts import NO_ANSWER, Failure, Flight, Stack, StackFrame, Stall
from ddpmon.report.trace import collectives, fewer, frame_text, last_lines, shortened, shortened_place
from ddpmon.tui.draw.detail import detail_lines, failure_lines, stall_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import FAILED, FAILURE, HANG, STALL, Made, snapshot
from tests.tui.test_drawing import LOOKS, SIZES, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
HANGING = Made(stuck=2, focus=2, findings=(HANG,))
FAILING = Made(failed=2, focus=2, findings=(FAILED,))


def detail(made: Made, width: int, height: int, **changes: object) -> list[Line]:
    picture = ViewState(snapshot(made), ASCII)
    assert picture.snapshot.detail is not None
    shown = replace(picture.snapshot, detail=replace(picture.snapshot.detail, **changes))  # type: ignore[arg-type]
    return detail_lines(replace(picture, snapshot=shown), 2, width, height)


def test_a_hanging_rank_shows_its_stack_before_its_phases() -> None:
    for width, height in ((80, 22), (120, 32), (160, 48)):
        lines = text_of(detail(HANGING, width, height))
        text = "\n".join(lines)
        own = [line for line in lines if "train.py" in line or "data.py:" in line or "shards.py" in line]
        assert len(own) == 4
        assert own[-1].startswith(" > /home/ada/gpt/shards.py:19 in read")
        assert "while not path.exists(): time.sle" in own[-1]
        assert text.index("no step for 14 s") < text.index("train.py:88") < text.index("shards.py:19")
        assert text.index("shards.py:19") < text.index("last entered gloo:all_reduce #41, last completed #40")
        assert "\n   last entered" in text, "it is no call, and signs mark the calls"
        assert text.index("last completed #40") < text.index("work, ms")


def test_other_threads_come_only_where_there_is_room_for_them() -> None:
    assert "pin-memory" not in "\n".join(text_of(detail(HANGING, 80, 22)))
    assert "pin-memory" in "\n".join(text_of(detail(HANGING, 160, 48)))


def test_the_users_own_lines_are_bright_and_the_rest_is_dim() -> None:
    styles = {}
    for line in stall_lines(STALL, 120, 20, COLOUR):
        text = "".join(segment.text for segment in line)
        styles[text.split()[-1]] = [segment.style for segment in line if segment.text.strip()]
    assert set(styles["self._next_data()"]) == {COLOUR.dim}
    assert styles["self.shards.read(index)"][1:] == [COLOUR.text, COLOUR.text]
    assert styles["time.sleep(0.1)"] == [COLOUR.accent, COLOUR.text, COLOUR.strong]


def test_a_deep_stack_keeps_its_end_and_the_users_lines() -> None:
    deep = [StackFrame(f"lib{i}.py", i, "call", own=i in (3, 40)) for i in range(64)]
    assert [frame.line for frame in fewer(deep, 4)] == [3, 40, 62, 63]
    assert fewer(deep, 0) == []
    assert fewer(deep, 99) == deep
    text = text_of(stall_lines(Stall(12.0, [Stack("MainThread", deep)]), 80, 9, ASCII))
    assert len(text) == 9
    assert "8 of 64 calls" in text[0]


def test_a_failed_rank_shows_what_ended_it() -> None:
    for width, height in ((80, 22), (120, 32), (160, 48)):
        text = "\n".join(text_of(detail(FAILING, width, height)))
        assert "failed at step 1,203" in text
        assert "RuntimeError: mat1 and mat2 shapes" in text
        assert "line 41, in forward" in text
        assert "return self.head(self.body(tokens))" in text
        assert text.index("line 41") < text.index("work, ms")


def test_a_failure_beats_a_stall_and_a_calm_rank_has_neither() -> None:
    assert "stuck" not in "\n".join(text_of(detail(FAILING, 120, 32, stall=STALL)))
    calm = "\n".join(text_of(detail(Made(focus=2), 120, 32)))
    assert "stuck" not in calm
    assert "failed" not in calm


@pytest.mark.parametrize("made", [HANGING, FAILING])
def test_any_room_is_filled_exactly(made: Made) -> None:
    for look in LOOKS.values():
        picture = ViewState(snapshot(made), look)
        for width, height in (*SIZES, *((80, height) for height in range(1, 24)), (5, 9), (1, 1)):
            lines = detail_lines(picture, 2, width, height)
            assert len(lines) == height
        assert all(line.isascii() for line in text_of(lines) if look.ascii_only)


def test_words_from_the_store_are_data() -> None:
    bad = "\x1b[31m[b]x\n\x07"
    stall = Stall(11.0, [Stack(bad, [StackFrame(bad, 1, bad, bad)])], [Flight(bad, 2, 1, bad)])
    failure = Failure(bad, bad, 3, [bad, f'  File "{bad}", line 3, in {bad}'])
    for lines in (stall_lines(stall, 80, 9, COLOUR), failure_lines(failure, 80, 9, COLOUR)):
        assert "[31m[b]x" in "\n".join(text_of(lines))
        assert all(line.isprintable() for line in text_of(lines))


def test_a_stall_without_a_stack_says_so() -> None:
    text = text_of(stall_lines(Stall(11.0), 80, 9, ASCII))
    assert text[1].strip() == "its stack could not be read"


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"device_phase": "forward"}, "its GPU has reached forward; last entered nccl:all_reduce #2"),
        ({"device_error": NO_ANSWER}, "its GPU does not answer; last entered"),
        ({"device_error": "700 (\x1b[31mx)"}, "its GPU cannot go on: error 700"),
        ({}, "last entered nccl:all_reduce #2, last completed #1"),
    ],
)
def test_how_far_the_gpu_has_come_stands_before_the_flight_recorder(says: dict[str, str], words: str) -> None:
    stall = msgspec.structs.replace(Stall(11.0, [], [Flight("0", 2, 1, "nccl:all_reduce")]), **says)
    lines = text_of(stall_lines(stall, 100, 9, ASCII))
    assert words in lines[-1]
    assert all(line.isprintable() for line in lines)


def test_a_rank_in_a_cuda_graph_has_no_stack_and_says_why() -> None:
    text = text_of(stall_lines(Stall(700.0, graph_replay_s=0.1), 80, 9, ASCII))
    assert text[1].strip() == "not measured: a CUDA graph"


def test_the_flight_recorder_in_one_line() -> None:
    def said(*flights: Flight) -> str:
        return collectives(Stall(1.0, [], list(flights)))

    assert said() == ""
    assert said(Flight("0", -1, -1)) == "no collective entered yet"
    assert said(Flight("0", 7, -1, "nccl:all_gather")) == "last entered nccl:all_gather #7"
    two = said(Flight("tp", 5, 5, "gloo:broadcast"), Flight("dp", 41, 40, "gloo:all_reduce"))
    assert two.startswith("group dp: last entered gloo:all_reduce #41, last completed #40; group tp: ")


def test_paths_are_cut_from_the_left_at_a_slash() -> None:
    assert shortened("/opt/venv/torch/data.py", 14, "…") == "…/data.py"
    assert shortened("/a/b.py", 14, "…") == "/a/b.py"
    assert shortened("averyveryverylongname.py", 10, "…") == "…ngname.py"
    line = '  File "/opt/venv/lib/python3.11/site-packages/torch/x.py", line 3, in f'
    assert shortened_place(line, 40, "…") == '  File "…/torch/x.py", line 3, in f'
    assert shortened_place("    no place here", 8, "…") == "    no place here"


def test_a_traceback_is_told_without_its_heading_and_the_exception_itself() -> None:
    assert last_lines(FAILURE, 2) == [
        '  File "/home/ada/gpt/model.py", line 41, in forward',
        "    return self.head(self.body(tokens))",
    ]
    assert last_lines(FAILURE, 99)[0].endswith('train.py", line 74, in main')
    assert last_lines(FAILURE, 0) == []
    assert last_lines(Failure("E", "", 0, []), 5) == []


def test_a_frame_without_source_is_its_place() -> None:
    assert frame_text(StackFrame("a.py", 3, "f")) == "a.py:3 in f"


def test_the_picture_gives_way_whole_and_not_in_pieces() -> None:
    small = text_of(detail(HANGING, 80, 22))
    assert "lateness, ms" not in "\n".join(small)
    assert small[-1].strip().startswith("step 705"), "the axis of steps is the last line"
    assert "work, ms" not in "\n".join(text_of(detail(HANGING, 80, 16)))
    assert "lateness, ms" in "\n".join(text_of(detail(HANGING, 120, 32)))
