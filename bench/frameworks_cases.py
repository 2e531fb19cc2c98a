"""The trainings of `bench/frameworks.py`: published scripts, what is changed in them, and the data that they ask for.

A script that asks for GPUs is changed in the lines about devices, and in nothing else. What a script would download is
made here: texts of random words, a tokenizer of these, models without weights.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_WORDS = 200
Edits = Mapping[str, Sequence[tuple[str, str]]]  # file -> what stands there, and what is put in its place


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        name: what the table calls it.
        folder: of the script, below the folder of the checkouts.
        command: the script and its arguments; more steps than anybody waits for.
        edits: what has to be changed for CPUs.
        prepare: makes the data in the copy of the folder.
        environment: of the training.
        horovod: whether horovodrun starts it, and not torchrun.
    """

    name: str
    folder: str
    command: str
    edits: Edits = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    horovod: bool = False


def _text(path: Path, lines: int) -> None:
    chosen = random.Random(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [f"w{number}" for number in range(_WORDS)]
    path.write_text("\n".join(" ".join(chosen.choices(words, k=20)) for _ in range(lines)) + "\n")


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(_WORDS))]
    inner = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]", eos_token="[PAD]")
    made.save_pretrained(folder)


def _tokens(folder: Path) -> None:
    """What nanoGPT reads."""
    import pickle

    import numpy as np

    data = folder / "data" / "made"
    data.mkdir()
    for name in ("train.bin", "val.bin"):
        np.random.default_rng(0).integers(0, 256, 400_000, dtype=np.uint16).tofile(data / name)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))


def _causal(folder: Path) -> None:
    """What run_clm.py is told to read."""
    _text(folder / "made.txt", 4000)
    _tokenizer(folder / "tokenizer")


def _glue(folder: Path) -> None:
    """What nlp_example.py reads by names of the hub: folders of these names come first."""
    from transformers import BertConfig, BertForSequenceClassification

    model = folder / "bert-base-cased"
    _tokenizer(model)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    BertForSequenceClassification(BertConfig(vocab_size=256, **sizes)).save_pretrained(model)
    data, chosen = folder / "nyu-mll" / "glue", random.Random(0)
    data.mkdir(parents=True)
    for name, rows in (("train", 40_000), ("validation", 64)):
        with (data / f"{name}.jsonl").open("w") as file:
            for row in range(rows):
                one, two = (" ".join(f"w{chosen.randrange(_WORDS)}" for _ in range(20)) for _ in range(2))
                file.write(json.dumps({"sentence1": one, "sentence2": two, "label": row % 2, "idx": row}) + "\n")
    files = "".join(f"  - split: {name}\n    path: {name}.jsonl\n" for name in ("train", "validation"))
    (data / "README.md").write_text(f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{files}---\n")
    (folder / "glue").mkdir()
    (folder / "glue" / "glue.py").write_text(_METRIC)


_METRIC = """
import datasets
import evaluate
class Glue(evaluate.Metric):
    def _info(self):
        kinds = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
        return evaluate.MetricInfo(description="", citation="", features=datasets.Features(kinds))
    def _compute(self, predictions, references):
        return {"accuracy": sum(a == b for a, b in zip(predictions, references)) / len(references)}
"""


def _vision(folder: Path) -> None:
    """A stand-in for torchvision, of which the benchmark takes a model by its name."""
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").touch()
    (folder / "torchvision" / "models.py").write_text(
        "from torch import nn\n"
        "def small():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.Conv2d(8, 32, 4, 4), nn.ReLU(), nn.Flatten(),\n"
        "        nn.Linear(1568, 1000))\n"
    )


_NANOGPT: Edits = {
    "train.py": [
        ("device = f'cuda:{ddp_local_rank}'", "device = 'cpu'"),
        ("    torch.cuda.set_device(device)\n", ""),
        (", device_ids=[ddp_local_rank]", ""),
    ]
}
_TUTORIAL: Edits = {
    "multigpu_torchrun.py": [
        ('    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n', ""),
        ('"nccl"', '"gloo"'),
        ("model.to(self.gpu_id)", "model"),
        (", device_ids=[self.gpu_id]", ""),
        (".to(self.gpu_id)", ""),
    ]
}
_MINGPT: Edits = {
    "main.py": [
        ("return has_gpu and gpu_count >= min_gpus", "return True"),
        ('torch.device(f"{acc}:{rank}")', 'torch.device("cpu")'),
        ("    torch.accelerator.set_device_index(rank)\n", ""),
    ],
    "trainer.py": [
        ('torch.device(f"{self.acc}:{self.local_rank}")', 'torch.device("cpu")'),
        (".to(self.local_rank)", ""),
        (", device_ids=[self.local_rank]", ""),
    ],
}
_FSDP2: Edits = {
    "example.py": [
        ("return has_gpu and gpu_count >= min_gpus", "return True"),
        (", device_id=device", ""),
        ("range(10)", "range(1000000)"),
    ]
}

CASES = (
    Case(
        "karpathy/nanoGPT",
        "nanoGPT",
        "train.py --dataset=made --compile=False --backend=gloo --dtype=float32 --eval_interval=1000000 --eval_iters=1 "
        "--n_layer=4 --n_head=4 --n_embd=128 --block_size=64 --batch_size=8 --gradient_accumulation_steps=4 "
        "--max_iters=1000000 --log_interval=10",
        _NANOGPT,
        _tokens,
    ),
    Case(
        "pytorch/examples, ddp tutorial",
        "examples/distributed/ddp-tutorial-series",
        "multigpu_torchrun.py 1000000 1000000",
        _TUTORIAL,
    ),
    Case(
        "pytorch/examples, minGPT-ddp",
        "examples/distributed/minGPT-ddp/mingpt",
        "main.py trainer_config.max_epochs=1000 trainer_config.batch_size=16 trainer_config.data_loader_workers=0 "
        "trainer_config.use_amp=False gpt_config.n_layer=2 gpt_config.n_head=4 gpt_config.n_embd=128 "
        "data_config.path=data/input.txt",
        _MINGPT,
    ),
    Case("pytorch/examples, FSDP2", "examples/distributed/FSDP2", "example.py", _FSDP2),
    Case(
        "Hugging Face's Trainer, run_clm.py",
        "transformers/examples/pytorch/language-modeling",
        "run_clm.py --model_type gpt2 --config_overrides n_layer=2,n_head=4,n_embd=64,n_positions=64 "
        "--tokenizer_name tokenizer --train_file made.txt --do_train --use_cpu --ddp_backend gloo --block_size 64 "
        "--per_device_train_batch_size 4 --max_steps 1000000 --output_dir out --report_to none --disable_tqdm True",
        prepare=_causal,
        environment={"HF_HUB_OFFLINE": "1"},
    ),
    Case(
        "Accelerate, nlp_example.py",
        "accelerate/examples",
        "nlp_example.py --cpu",
        prepare=_glue,
        environment={"HF_HUB_OFFLINE": "1"},
    ),
    Case(
        "Lightning, transformer.py",
        "lightning/examples/pytorch/basics",
        "transformer.py",
        prepare=lambda folder: _text(folder / "data" / "wikitext-2.txt", 30_000),
        environment={"PL_TRAINER_ACCELERATOR": "cpu", "PL_TRAINER_DEVICES": "2", "PL_TRAINER_STRATEGY": "ddp"},
    ),
    Case(
        "Horovod, pytorch_synthetic_benchmark.py",
        "horovod/examples/pytorch",
        "pytorch_synthetic_benchmark.py --no-cuda --model small --batch-size 8 --num-iters 1000000",
        prepare=_vision,
        horovod=True,
    ),
)
