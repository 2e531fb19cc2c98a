"""What a rank calls its GPU. The device's properties are made up: there is no GPU here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.identity import gpu_uuid


@pytest.mark.parametrize(
    ("visible", "index", "name"),
    [
        (None, 0, "GPU-0000-aaaa"),
        ("MIG-cccc", 0, "MIG-cccc"),
        ("MIG-cccc, MIG-dddd", 1, "MIG-dddd"),
        ("MIG-GPU-aaaa/1/0", 0, "MIG-GPU-aaaa/1/0"),
        ("GPU-0000", 0, "GPU-0000-aaaa"),
        ("0,1", 1, "GPU-0000-aaaa"),
        ("", 3, "GPU-0000-aaaa"),
    ],
)
def test_an_instance_goes_by_the_name_that_was_chosen(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, index: int, name: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(uuid="0000-aaaa"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_uuid(torch.device("cuda", index)) == name
