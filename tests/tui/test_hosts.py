"""The hosts: who is on which GPU, what deserves a word, and what nobody could read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ddpmon.diagnose.alert import Severity
from ddpmon.diagnose.kinds import KindName
from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, Process
from ddpmon.report.host_gpus import gpu_states, is_spinning, number_span, rank_span
from ddpmon.report.host_summary import summarise_host
from ddpmon.snapshot import Finding, NodeView, Snapshot
from ddpmon.tui.draw.help import help_lines
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.order import ordered_hosts
from ddpmon.tui.draw.panel import meter
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.view_state import ViewState
from tests.tui.made_hosts import GB, STRANGER
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_rank_detail import without_lateness

ASCII, COLOUR = LOOKS["ascii"], LOOKS["colour"]
CALM = snapshot(Made(ranks=8, per_node=8, gpu=True))
TROUBLED = snapshot(Made(ranks=8, per_node=8, gpu=True, troubled=(0,)))
HIDDEN = snapshot(Made(ranks=8, per_node=8, gpu=True, hidden=(0,)))
MANY = snapshot(Made(ranks=128, per_node=8, gpu=True, troubled=(5,), hidden=(11,)))


def said(made: Snapshot, width: int = 120, number: int = 0, look: Any = ASCII) -> list[str]:
    return [line.rstrip() for line in text_of(host_page(ViewState(made, look), number, width, named_first=True).lines)]


def section(lines: list[str], name: str) -> list[str]:
    """The lines under a title."""
    start = next(place for place, line in enumerate(lines) if line.startswith(f"- {name} -")) + 1
    end = next((place for place in range(start, len(lines)) if lines[place].startswith("- ")), len(lines))
    return lines[start:end]


def with_gpu(made: Snapshot, index: int, **changes: Any) -> Snapshot:
    """The same run with one GPU of its first host changed."""
    node = made.nodes[0]
    gpus = [msgspec.structs.replace(gpu, **changes) if gpu.index == index else gpu for gpu in node.gpus]
    return replace(made, nodes=(replace(node, gpus=tuple(gpus)), *made.nodes[1:]))


def remarks(made: Snapshot, index: int) -> list[str]:
    return [word for _, word in gpu_states(made.ranks, made.nodes[0])[index].remarks]


# one host


def test_a_gpus_row_has_its_rank_and_power_beside_utilisation() -> None:
    heading, *rows = section(said(TROUBLED), "GPUs")
    assert heading.split() == ["gpu", "rank", "late", "util", "%", "power", "W", "memory", "GiB", "SM", "MHz", "C"]
    words = [[word for word in row.split() if not set(word) <= set("#.!x")] for row in rows]
    words = [[*row[:2], *row[3:]] for row in words]
    assert words[0] == ["0", "0", "91", "520/700", "66.1/140", "1,755", "58"]
    assert words[1][2:4] == ["100", "180/700"]
    assert words[7][:5] == ["7", "7", "-", "-", "66.1/140"], "unknown is a dash, not zero"
    assert [row[:2] for row in rows] == ["  ", "  ", "  ", " !", "  ", " !", " x", "  "]


def test_strangers_come_first_marked_and_ours_have_their_rank() -> None:
    _, first, *others = section(said(TROUBLED), "on the GPUs")
    assert first.split(maxsplit=7) == ["!", "3", "foreign", "8123", "bob", "11.5", "38", STRANGER.process.command]
    assert [row.split()[:3] for row in others] == [[str(rank), "rank", str(rank)] for rank in range(8)]
    assert not any("!" in row for row in others)
    styles = [
        line
        for line in host_page(ViewState(TROUBLED, COLOUR), 0, 120, named_first=True).lines
        if "foreign" in text_of([line])[0]
    ]
    assert {segment.style for segment in styles[-1][:3]} == {COLOUR.accent}


def test_a_ranks_worker_is_ours_and_a_hog_is_not() -> None:
    _, *rows = section(said(TROUBLED), "on the CPUs")
    assert rows[0].split()[:3] == ["!", "foreign", "9001"]
    assert "780" in rows[0].split()
    assert rows[-1].split()[:3] == ["rank", "0", "worker"]


def test_many_strangers_and_those_not_listed_are_counted() -> None:
    others = [GpuProcess(Process(9000 + place, [1], "eve", "x"), GB) for place in range(5)]
    ours = CALM.nodes[0].gpus[2].processes or []
    made = with_gpu(CALM, 2, processes=[*ours, *others], process_count=40)
    assert remarks(made, 2) == ["5 foreign processes"]
    assert "    2  and 34 more" in section(said(made), "on the GPUs")
    assert "GPU 2: foreign process pid 9000 (eve, x)" in summarise_host(made.nodes[0], made.ranks)[0]
    assert "2 more foreign processes" in summarise_host(made.nodes[0], made.ranks)[0]


def test_two_ranks_on_one_gpu_are_named_together() -> None:
    ranks = CALM.ranks
    assert ranks is not None
    shared = replace(CALM, ranks=replace(ranks, gpu=(ranks.gpu[0], ranks.gpu[0], *ranks.gpu[2:])))
    rows = section(said(shared), "GPUs")[1:]
    assert rows[0].split()[:3] == ["!", "0", "0,1"]
    assert remarks(shared, 0) == ["2 ranks"]
    assert rows[1].split()[:2] == ["1", "-"]


def test_hidden_processes_fall_back_on_memory_that_is_not_ours() -> None:
    lines = section(said(HIDDEN), "on the GPUs")
    assert lines == [
        " ! GPU 2: processes hidden; 26.1 GiB not held by our ranks' torch",
        " * GPUs 0-1, 3-7: processes hidden; at most 1.9 GiB not held by our ranks' torch",
    ]
    assert remarks(HIDDEN, 2) == ["23.6 GiB not ours"], "a context of ours and its NCCL take 2.5 GiB"
    assert remarks(HIDDEN, 0) == ["hidden"]
    assert HIDDEN.ranks is not None
    gone = replace(HIDDEN, ranks=replace(HIDDEN.ranks, age_s=HIDDEN.ranks.age_s + 6.0))
    assert remarks(gone, 0) == [], "the process of a rank that is no longer heard may be gone"


def test_where_processes_are_hidden_nobody_is_called_a_stranger() -> None:
    unclear = with_gpu(HIDDEN, 0, processes=[GpuProcess(Process(77, [], None, None), 60 * GB)], process_count=1)
    state = gpu_states(unclear.ranks, unclear.nodes[0])[0]
    assert state.hidden
    assert state.foreign_processes == []
    row = section(said(unclear), "on the GPUs")[1]
    assert row.split() == ["0", "hidden", "77", "-", "55.9", "-", "-"]


def test_a_rank_that_holds_no_memory_yet_is_not_hidden() -> None:
    ranks = HIDDEN.ranks
    assert ranks is not None
    first = ranks.process[0]
    assert first is not None
    empty = msgspec.structs.replace(first, gpu_memory=0)
    young = replace(HIDDEN, ranks=replace(ranks, process=(empty, *ranks.process[1:])))
    assert [state.hidden for state in gpu_states(young.ranks, young.nodes[0])] == [False] + [True] * 7


def test_a_process_list_that_was_not_read_says_why_and_accuses_nobody() -> None:
    made = with_gpu(CALM, 4, processes=None, process_count=None, unread={"processes": "no permission"})
    lines = said(made)
    assert " * GPU 4: processes not read (no permission); at most 2.8 GiB not held by our ranks' torch" in lines
    assert " * processes of GPU 4: no permission" in section(lines, "unavailable")
    assert remarks(made, 4) == []
    assert remarks(with_gpu(made, 4, memory_used=80 * GB), 4) == ["8.7 GiB not ours"]


def test_spinning_is_busy_at_little_power_and_unknown_is_not_spinning() -> None:
    gpu = GpuFigures(0, "GPU-0", utilization_pct=95.0, power_w=279.0, power_limit_w=700.0)
    assert is_spinning(gpu)
    for changes in ({"power_w": 281.0}, {"utilization_pct": 94.0}, {"power_w": None}, {"power_limit_w": None}):
        assert not is_spinning(msgspec.structs.replace(gpu, **changes))
    assert remarks(TROUBLED, 1) == ["spinning?"]
    assert "spinning" in "\n".join(text_of(help_lines(ASCII, 80)))


def test_what_is_broken_comes_before_what_is_slowed_and_what_is_usual() -> None:
    assert remarks(TROUBLED, 6) == ["Xid 79", "2 ECC"]
    assert remarks(TROUBLED, 5) == ["thermal"]
    assert remarks(TROUBLED, 2) == ["power cap"]
    made = with_gpu(CALM, 0, xids=[31], clock_reasons=["software power cap", "power brake", "idle"], pcie_width=8)
    assert remarks(made, 0) == ["Xid 31", "power brake", "power cap", "PCIe x8 of 16"]
    assert remarks(CALM, 0) == []


def test_what_could_not_be_read_is_told_once_with_its_reason() -> None:
    made = TROUBLED
    for index in range(8):
        made = with_gpu(made, index, unread=dict.fromkeys(("retired_pages", "nvlinks_up"), "too old a driver"))
    assert section(said(made), "unavailable") == [
        " * steal: no /proc/stat",
        " * retired pages, active NVLinks of GPU 0-7: too old a driver",
        " * the GPU sensor took 2 s and is read every 4 s",
    ]


def test_the_tight_disk_is_first_and_everything_notable_is_in_one_sentence() -> None:
    lines = said(TROUBLED)
    assert lines[1] == (
        " ! memory 97 % used; swapping in 23 MiB/s; memory pressure 12 %; disk pressure 34 %; /ckpt 2 % free"
    )
    places = section(lines, "disks and network")
    assert [row.split()[:2] for row in places[:2]] == [["!", "/ckpt"], ["/data", "45"]]
    assert "held by pid 777 (bob, python serve.py)" in places[-1]
    assert said(CALM)[1] == " v no findings for this host"
    silent = replace(CALM, nodes=tuple(replace(node, age_s=300.0) for node in CALM.nodes))
    assert said(silent)[1] == " * no findings for this host", "nobody knows how it is"
    assert CALM.run is not None
    assert said(replace(silent, run=replace(CALM.run, state="finished")))[1] == " v no findings for this host"
    assert summarise_host(CALM.nodes[0], CALM.ranks) == []


def test_a_host_with_ranks_that_cannot_be_compared_has_no_tick() -> None:
    made = snapshot(Made(ranks=8, per_node=4))
    assert said(without_lateness(made, [1]))[1] == " * no findings for this host; 1 of its 4 ranks cannot be compared"
    assert said(without_lateness(made, [1]), number=1)[1] == " v no findings for this host"
    whole = without_lateness(made, [0, 1, 2, 3])
    assert said(whole)[1] == " * not compared yet: its ranks are in other steps than the rest"
    unread = without_lateness(made, [0, 1, 2, 3], work=False)
    assert said(unread)[1] == " * not compared yet: no step of its 4 ranks has been read"


def test_a_host_whose_ranks_restarted_alone_says_so_and_has_their_sign() -> None:
    """The views of hosts said "no findings for this host" of a host that a finding names (seen in a picture)."""
    words = "ranks 4-7 have restarted on their own"
    note = Finding("monitor_degraded", "info", words, (4, 5, 6, 7), evidence={"restarted_alone": 4})
    made = replace(snapshot(Made(ranks=8, per_node=4)), findings=(note,))
    assert said(made, number=1)[1] == f" r {words}"
    assert said(made, number=0)[1] == " v no findings for this host"
    order = ordered_hosts(made, "worst", False)
    first, second = text_of(host_table_lines(ViewState(made, ASCII), TableView(order, focused=False), 120, 8))[2:4]
    assert first.split()[:2] == ["r", "node1"]
    assert first.rstrip().endswith(" ranks 4-7: restarted alone")
    assert second.split()[0] == "node0"


def test_the_host_of_a_run_of_one_rank_has_its_tick() -> None:
    assert said(without_lateness(snapshot(Made(ranks=1, per_node=1)), [0]))[1] == " v no findings for this host"


def test_a_host_of_which_nothing_is_known_is_dashes() -> None:
    bare = replace(CALM, nodes=(NodeView(0, "node0", (0,), None, HostFigures(), (GpuFigures(0, "GPU-0"),)),))
    lines = said(bare)
    assert lines[2].split() == ["cpu", "-", "load", "-", "memory", "-", "net", "-"]
    (row,) = section(lines, "GPUs")[1:]
    first, second, _late, *rest = row.split()
    assert [first, second, *rest] == ["0", "0", "-", "-", "-", "-", "-"]
    assert "0 %" not in "\n".join(lines)
    assert "processes not read" in "\n".join(lines)


def test_findings_about_the_host_or_its_ranks_are_told_in_full() -> None:
    about = Finding("gpu_shared", "warning", "rank 3 shares GPU 3 with pid 8123.", (3,))
    host = Finding("shm_low", "critical", "/dev/shm of node0 is full.", nodes=("node0",))
    elsewhere = Finding("disk_low", "warning", "/ckpt of node9 is full.", nodes=("node9",))
    over = Finding("straggler", "warning", "rank 2 was late.", (2,), cleared_at_step=9)
    lines = said(replace(CALM, findings=(host, about, elsewhere, over)))
    assert lines[1:3] == [" ! /dev/shm of node0 is full.", " ! rank 3 shares GPU 3 with pid 8123."]
    assert not any("node9" in line or "was late" in line for line in lines)
    assert section(lines, "GPUs")[1].split()[:2] == ["!", "3"], "the named GPU comes first"


@pytest.mark.parametrize("width", [40, 56, 80, 99, 120, 160, 220])
def test_utilisation_power_and_remarks_are_there_at_every_width(width: int) -> None:
    rows = section(said(TROUBLED, width), "GPUs")
    assert "util %" in rows[0]
    assert width < 56 or "power W" in rows[0]
    assert width < 80 or rows[0].split()[-1] == "C"
    assert all(word in "\n".join(rows) for word in ("spinning?", "foreign", "thermal", "Xid 79"))


def test_eighty_columns_and_24_lines_show_all_gpus_and_the_stranger() -> None:
    lines = said(TROUBLED, 80)[:21]
    for gpu in range(8):
        assert any(line[2:11].split() == [str(gpu), str(gpu)] for line in lines)
    assert any("foreign           8123 bob" in line for line in lines)


def test_every_rank_of_a_host_has_a_line_that_leads_to_it() -> None:
    for made in (CALM, snapshot(Made(ranks=8, per_node=8)), with_gpu(CALM, 3, uuid="GPU-elsewhere")):
        lines, links, *_ = host_page(ViewState(made, ASCII), 0, 120)
        assert sorted(links.values()) == [*range(8)]
        texts = text_of(lines)
        assert all(str(rank) in texts[line][:12].replace(",", " ").split() for line, rank in links.items())


# the table


def styles(made: Snapshot, words: str, *, table: bool = False) -> set[tuple[str, Any]]:
    """The first sign of each line with these words, and its colour."""
    picture = ViewState(made, COLOUR)
    shown = TableView(ordered_hosts(made, "worst", False))
    lines = host_table_lines(picture, shown, 200, 20) if table else host_page(picture, 0, 200, named_first=True).lines
    having = [line for line in lines if words in text_of([line])[0]]
    signs = [next(part for part in line if set(part.text) & set("▲•✕")) for line in having]
    return {(next(iter(set(part.text) & set("▲•✕"))), part.style and part.style.color) for part in signs}


@pytest.mark.parametrize(
    ("severity", "kind", "sign"),
    [("info", "gpu_shared", "•"), ("warning", "gpu_shared", "▲")],
)
def test_an_event_is_marked_by_the_severity_of_its_finding_in_every_part_of_the_view(
    severity: Severity, kind: KindName, sign: str
) -> None:
    evidence: dict[str, float | int | str] = {"pid": STRANGER.process.pid, "pids": f"{STRANGER.process.pid}, 9001"}
    node = replace(TROUBLED.nodes[0], gpus=tuple(gpu for gpu in TROUBLED.nodes[0].gpus if gpu.index < 5))
    finding = Finding(kind, severity, "somebody else is on GPU 3", (3,), ("node0",), evidence=evidence)
    made = replace(TROUBLED, nodes=(node,), findings=(finding,))
    tone = {"•": COLOUR.text, "▲": COLOUR.accent}[sign].color
    for words in ("somebody else is on", "foreign process", "8123", "9001", "memory 97 % used"):
        assert styles(made, words) == {(sign, tone)}, words
    assert styles(made, "node0", table=True) == {(sign, tone)}
    rows = host_table_lines(ViewState(made, COLOUR), TableView(ordered_hosts(made, "worst", False)), 200, 3)
    (row,) = [line for line in rows if "node0" in text_of([line])[0]]
    assert {part.style.color for part in row if part.style and "foreign process" in part.text} == {tone}


def in_trouble(kind: KindName, severity: Severity) -> Snapshot:
    """The troubled host, with one finding on rank 3 that tells of none of its troubles."""
    finding = Finding(kind, severity, "rank 3 is in trouble of its own", (3,), ("node0",))
    return replace(TROUBLED, findings=(finding,))


def test_a_finding_about_something_else_makes_a_warning_no_note() -> None:
    made, warned = in_trouble("intermittent_straggler", "info"), {("▲", COLOUR.accent.color)}
    for words in ("foreign process", "8123", "memory 97 % used"):
        assert styles(made, words) == warned, words
    assert styles(made, "node0", table=True) == warned
    assert styles(made, "trouble of its own") == {("•", COLOUR.text.color)}


def test_a_warning_beside_something_broken_is_not_drawn_as_broken() -> None:
    made = with_gpu(in_trouble("gpu_errors", "critical"), 3, xids=[79])
    lines = host_page(ViewState(made, COLOUR), 0, 200, named_first=True).lines
    row = next(line for line in lines if "Xid 79" in text_of([line])[0] and "foreign process" in text_of([line])[0])
    tones = {part.text.strip(", "): part.style and part.style.color for part in row}
    assert tones["Xid 79"] == COLOUR.broken.color
    assert tones["foreign process"] == COLOUR.accent.color


def test_in_the_table_of_hosts_a_lost_rank_alone_is_drawn_as_broken() -> None:
    made = in_trouble("rank_lost", "critical")
    rows = host_table_lines(ViewState(made, COLOUR), TableView(ordered_hosts(made, "worst", False)), 200, 3)
    tones = {part.text: part.style and part.style.color for part in rows[2]}
    assert tones["rank 3: lost"] == COLOUR.broken.color
    (foreign,) = [tone for text, tone in tones.items() if "foreign process" in text]
    assert foreign == COLOUR.accent.color


# foreign words and parts


def test_hostile_words_are_data() -> None:
    evil = "[bold red]\x1b[2J\x1b]0;x\x07\u202e\nname" + "永" * 90
    process = Process(8123, [1], evil, evil)
    node = MANY.nodes[0]
    changes = {"name": evil, "processes": [GpuProcess(process)], "unread": {evil: evil}, "clock_reasons": [evil]}
    gpus = [msgspec.structs.replace(gpu, **changes) for gpu in node.gpus]
    disks = [msgspec.structs.replace(disk, path=evil, uses=[evil], free=0) for disk in node.figures.disks]
    nics = [msgspec.structs.replace(nic, name=evil, errors=3) for nic in node.figures.nics]
    figures = msgspec.structs.replace(node.figures, disks=disks, nics=nics, unread={evil: evil})
    bad = replace(node, host=evil, gpus=tuple(gpus), figures=figures, notes=(evil,))
    made = replace(MANY, nodes=(bad, *MANY.nodes[1:]))
    for look in LOOKS.values():
        for width in (40, 80, 160):
            picture = ViewState(made, look)
            view = TableView(ordered_hosts(made, "host", False))
            lines = text_of(
                host_page(picture, 0, width, named_first=True).lines + host_table_lines(picture, view, width, 40)
            )
            assert all(line.isprintable() for line in lines)
            assert look is not ASCII or all(line.isascii() for line in lines)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_meter_is_as_wide_as_asked_and_never_full_before_it_is(look: Any) -> None:
    for width in (0, 1, 2, 5, 24):
        for share in (None, float("nan"), -1.0, 0.0, 0.004, 0.5, 1.0, 7.0):
            assert sum(segment.cell_length for segment in meter(share, width, look)) == width
    assert text_of([meter(None, 5, look)]) == ["     "]
    half, full = text_of([meter(0.5, 10, look)])[0], text_of([meter(1.0, 10, look)])[0]
    assert len(set(full)) == 1
    assert half[:5] == full[:5]
    assert half[5:] != full[5:]


def test_numbers_in_a_row_are_a_span() -> None:
    assert number_span([3]) == "3"
    assert number_span([7, 0, 1, 2, 5]) == "0-2, 5, 7"
    assert (rank_span([]), rank_span([4]), rank_span(range(8))) == ("", "rank 4", "ranks 0-7")


@pytest.mark.parametrize(("width", "beside"), [(100, False), (160, True), (240, True)])
def test_disks_and_network_stand_beside_the_processes_where_both_have_room(width: int, beside: bool) -> None:
    """In 160 columns they stood below, and the room beside the processes was empty."""
    made = snapshot(Made(ranks=8, per_node=8, gpu=True))
    figures = msgspec.structs.replace(made.nodes[0].figures, processes=(), disks=(), unread={})
    node = replace(made.nodes[0], figures=figures)
    lines = text_of(host_page(ViewState(replace(made, nodes=(node,)), COLOUR), 0, width, named_first=True).lines)
    (titled,) = [line for line in lines if "on the GPUs" in line]
    assert ("disks and network" in titled) is beside
    assert max(map(len, lines)) == width
