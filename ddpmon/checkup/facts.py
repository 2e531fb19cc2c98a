"""What a check rests on: one host as it stands before a run, as it is sent to the host that prints."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ddpmon.machine import GpuFigures, HostFigures, ProcessFigures
from ddpmon.parts import Count, Line, Text

Level = Literal["ok", "warning", "failure"]


class Interface(Struct, frozen=True):
    """A network interface that is up, with its addresses."""

    name: Text
    addresses: Annotated[list[Text], Meta(max_length=32)] = []


class Facts(Struct, frozen=True, kw_only=True):
    """One host, and what is planned on it.

    Attributes:
        ranks, threads: planned here, and computing threads a rank; None where nobody said.
        hosts: how many hosts the run is to span.
        device: what the ranks are to train on.
        no_gpus_because: why no GPU could be read; empty where some were, or none are there.
        own_address: what this host's own name resolves to; empty if to nothing.
        figures: its `ports` are those that the run would want and cannot have.
        chosen: the variables that choose an interface, and what they say.
        versions: of Python, torch, NCCL, the driver and ddpmon.
        open_files: how many files a process may hold open.
        recorder_entries: how many collectives torch's flight recorder is to keep; None where no variable says so.
    """

    host: Text
    ranks: Count | None
    threads: Count | None
    hosts: Count = 1
    device: Literal["cuda", "cpu"] = "cpu"
    figures: HostFigures = HostFigures()
    process: ProcessFigures = ProcessFigures()
    gpus: Annotated[list[GpuFigures], Meta(max_length=64)] = []
    no_gpus_because: Line = ""
    interfaces: Annotated[list[Interface], Meta(max_length=64)] = []
    own_address: Text = ""
    chosen: dict[Text, Text] = {}
    versions: dict[Text, Text] = {}
    open_files: Count | None = None
    recorder_entries: Count | None = None


class Check(Struct, frozen=True):
    """One thing looked at: how it stands, in a sentence, and what to do about it."""

    name: str
    level: Level
    text: str
    advice: str = ""
    host: str = ""
