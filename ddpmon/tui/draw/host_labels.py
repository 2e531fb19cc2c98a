"""What hosts are called at the side of the heat-map: as short as it can be while every host has a label of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

LABEL, LABEL_MOST = 5, 14  # cells of a label: usually, and at most where fewer would call two hosts alike
_PARTS = re.compile(r"\d+|[^\W\d_]+|[\W_]+")  # of a name: numbers, words, and what stands between them


def host_labels(names: Sequence[str]) -> tuple[list[str], int]:
    """A label for each of some different host names, and the fewest cells that tell all labels apart once they are cut.

    The labels are not cut yet.
    """
    forms = [form for form in (_numbers(names), _without_the_same(names), list(names)) if form]
    for cells in range(LABEL, LABEL_MOST + 1):
        for labels in forms:
            if len({cut_label(label, cells, "") for label in labels}) == len(labels):
                return labels, cells
    return list(names), LABEL_MOST


def cut_label(label: str, cells: int, more: str) -> str:
    """A label cut from the left to some cells; `more` stands for what was cut."""
    return label if len(label) <= cells else more + label[1 - cells :]


def _numbers(names: Sequence[str]) -> list[str]:
    """The parts in which the names differ; empty where the names are not built alike."""
    parts = [_PARTS.findall(name) for name in names]
    if len({tuple(map(_kind, each)) for each in parts}) > 1:
        return []
    differing = {place for place, each in enumerate(zip(*parts, strict=True)) if len(set(each)) > 1}
    return [_of_parts(each, differing) for each in parts]


def _kind(part: str) -> str:
    return "number" if part.isdigit() else "word" if part.isalpha() else part


def _of_parts(parts: Sequence[str], differing: set[int]) -> str:
    """`n5` of `node0005`, `g1r2` of `gpu1.rack2.example`: each number behind the first letter of its word.

    So a number is not taken for a rank. A number without a word stands behind the sign before it.
    """
    label = ""
    for place in sorted(differing):
        part, before = parts[place], parts[place - 1] if place else ""
        if part.isdigit() and place - 1 not in differing:
            label += before[0] if before.isalpha() else before[-1:]
        label += (part.lstrip("0") or "0") if part.isdigit() and before.isalpha() else part
    return label


def _without_the_same(names: Sequence[str]) -> list[str]:
    """The names without the beginning that all have, which ends before a number, and without the domain that all have.

    A bare number is no label.
    """
    same = len(_beginning(names).rstrip("0123456789"))
    _, dot, domain = _beginning([name[::-1] for name in names])[::-1].partition(".")
    ends = [len(name) - len(dot + domain) for name in names]
    labels = [name[same:end] for name, end in zip(names, ends, strict=True)]
    return [name if not label or label.isdigit() else label for name, label in zip(names, labels, strict=True)]


def _beginning(names: Sequence[str]) -> str:
    """What all names begin with."""
    low, high = min(names), max(names)
    differs = (at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return low[: next(differs, len(low))]
