from __future__ import annotations

import gc
import time

import pytest
import torch
from torch import Tensor, nn

from trainer.config import ConfigError, build_parser, parse_args
from trainer.data import Stream
from trainer.fault import KINDS, Fault, parse_fault
from trainer.faults import Faults

CPU = torch.device("cpu")


def test_a_whole_fault_is_read() -> None:
    fault = parse_fault("backward:rank=1+3,ms=12.5,from=60,until=90,every=3")
    assert fault == Fault("backward", frozenset({1, 3}), 12.5, 60, 90, 3)


def test_a_short_fault_lasts_for_ever() -> None:
    fault = parse_fault("input:rank=0,ms=5")
    assert fault.due(0)
    assert fault.due(10**9)


@pytest.mark.parametrize("kind", ["hang_input", "hang_forward", "skip", "nan", "raise", "end"])
def test_a_fault_that_is_no_delay_needs_no_ms(kind: str) -> None:
    fault = parse_fault(f"{kind}:rank=2,from=3")
    assert (fault.kind, fault.ranks, fault.start) == (kind, frozenset({2}), 3)
    with pytest.raises(ValueError, match=f"'ms=5' in '{kind}:rank=2,ms=5' has no effect"):
        parse_fault(f"{kind}:rank=2,ms=5")


def test_every_kind_is_in_the_help() -> None:
    shown = " ".join(build_parser().format_help().split())
    for kind in KINDS:
        assert f"{kind} (" in shown


def test_until_is_exclusive_and_every_counts_from_the_first() -> None:
    fault = parse_fault("host:rank=0,ms=5,from=4,until=11,every=3")
    assert [step for step in range(20) if fault.due(step)] == [4, 7, 10]


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("inptu:rank=1,ms=3", "'inptu'"),
        ("", "''"),
        ("input", "lacks rank="),
        ("input:rank=1", "lacks ms="),
        ("input:ms=1", "lacks rank="),
        ("gc:rank=1", "lacks ms="),
        ("skip", "lacks rank="),
        ("hang:rank=1", "'hang'"),
        ("input:rank=-1,ms=3", "'rank=-1'"),
        ("input:rank=1+,ms=3", "'rank=1+'"),
        ("input:rank=1,ms=fast", "'ms=fast'"),
        ("input:rank=1,ms=-3", "'ms=-3'"),
        ("input:rank=1,ms=nan", "'ms=nan'"),
        ("input:rank=1,ms=3,", "''"),
        ("input:rank=1,ms=3,ms=4", "'ms=4'"),
        ("input:rank=1,ms=3,form=4", "'form=4'"),
        ("input:rank=1,ms=3,every=0", "'every=0'"),
        ("input:rank=1,ms=3,from=5,until=5", "'until=5'"),
        ("input:rank=1,ms=3,from=²", "'from=²'"),
    ],
)
def test_nonsense_is_named_with_the_right_form(text: str, bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_args(["--fault", text])
    message = str(caught.value)
    assert bad in message
    assert "KIND:rank=R,ms=M" in message
    assert "\n" not in message


def armed_faults(*texts: str, rank: int = 1) -> Faults:
    faults = Faults([parse_fault(text) for text in texts], rank, CPU)
    faults.arm(0)
    return faults


def test_forward_and_backward_strike_in_their_own_phase_once_a_step() -> None:
    faults = armed_faults("forward:rank=1,ms=1", "backward:rank=1,ms=1", "host:rank=1,ms=1")
    block = nn.Linear(2, 2)
    faults.plant(block)
    x = torch.ones(1, 2, requires_grad=True)
    loss = block(x).sum()
    assert set(faults.armed) == {"backward", "host"}
    loss.backward()
    assert set(faults.armed) == {"host"}
    faults.strike("host")
    assert not faults.armed
    faults.arm(1)
    assert set(faults.armed) == {"forward", "backward", "host"}


def test_a_nan_is_a_real_one_and_only_in_its_steps() -> None:
    faults = armed_faults("nan:rank=1,from=1")
    loss = torch.tensor(2.0, requires_grad=True)
    assert faults.spoil(loss) is loss
    faults.arm(1)
    spoilt = faults.spoil(loss)
    spoilt.backward()
    assert spoilt.isnan()
    assert loss.grad is not None
    assert loss.grad.isnan()


def test_forward_raises_where_it_is_told_to() -> None:
    faults, block = armed_faults("raise:rank=1,from=1"), nn.Linear(2, 2)
    faults.plant(block)
    block(torch.ones(1, 2))
    faults.arm(1)
    with pytest.raises(RuntimeError, match="an injected fault"):
        block(torch.ones(1, 2))


def test_a_collection_takes_its_time_inside_the_collector() -> None:
    faults, block = armed_faults("gc:rank=1,ms=20"), nn.Linear(2, 2)
    faults.plant(block)
    began, spent = [0.0], [0.0]

    def timed(phase: str, _info: dict[str, int]) -> None:
        began[0] = time.perf_counter() if phase == "start" else began[0]
        spent[0] += time.perf_counter() - began[0] if phase == "stop" else 0.0

    gc.callbacks.append(timed)
    try:
        block(torch.ones(1, 2))
    finally:
        gc.callbacks.remove(timed)
    assert spent[0] >= 0.0199


@pytest.mark.parametrize("options", [(), ("--accumulate", "3"), ("--workers", "1")])
@pytest.mark.parametrize("end", [0, 4, 40])
def test_the_data_ends_before_the_step(options: tuple[str, ...], end: int) -> None:
    config = parse_args(["--batch", "2", "--context", "4", *options])
    whole = Stream(config, torch.arange(250, dtype=torch.uint8), 1, 2)
    ending = Stream(config, torch.arange(250, dtype=torch.uint8), 1, 2)
    faults = armed_faults(f"end:rank=1,from={end}", "end:rank=0,from=1")
    batches = list(ending.read(0, faults.input_delay_ms, faults.end_step))
    assert len(batches) == end * config.accumulate
    for (x, _), (same, _) in zip(batches, whole.read(0, faults.input_delay_ms), strict=False):
        assert torch.equal(x, same)


def gradients(faults: Faults) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    faults.plant(model[0])
    model(torch.ones(2, 3)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_a_fault_changes_no_gradient() -> None:
    plain, delayed = gradients(armed_faults()), gradients(armed_faults("backward:rank=1,ms=1", "forward:rank=1,ms=1"))
    assert len(plain) == 4
    assert all(torch.equal(a, b) for a, b in zip(plain, delayed, strict=True))


def test_a_fault_stays_on_its_rank() -> None:
    faults = armed_faults("forward:rank=0,ms=1", "input:rank=0+2,ms=1", rank=1)
    assert not any(faults.armed.values())
    assert faults.delay_ms("input", 0) == 0


def test_faults_of_a_kind_add_up() -> None:
    faults = armed_faults("input:rank=1,ms=10", "input:rank=1,ms=5,from=2")
    assert [faults.delay_ms("input", step) for step in range(4)] == [10, 10, 15, 15]


@pytest.mark.parametrize("first_step", [0, 5, 9])
def test_an_input_fault_delays_the_sample_that_opens_the_step(first_step: int) -> None:
    config = parse_args(["--batch", "2", "--context", "4", "--accumulate", "3"])
    stream = Stream(config, torch.arange(250, dtype=torch.uint8), 1, 2)
    faults = armed_faults("input:rank=1,ms=1,every=2")
    batches = stream.read(first_step, lambda step: faults.delay_ms("input", step))
    for step in range(first_step, first_step + 12):
        firsts = [int(next(batches)[0][0, 0]) // 4 for _ in range(3)]
        late = [sample in stream.windows.delays for sample in firsts]
        assert late == [step % 2 == 0, False, False]
