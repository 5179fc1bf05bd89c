"""A model, a store and a trainer small enough to check every number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from jointnmt.data.length_buckets import BatchConfig
from jointnmt.experiment import TrainingConfig
from jointnmt.models.interface import AttentionMaps, DecoderState, TranslationModel
from jointnmt.training.devices import launch_fabric
from jointnmt.training.trainer import Trainer

VOCABULARY = 12


class TinyModel(TranslationModel):
    """Predicts the next token from the last one and the mean of the source."""

    capturable = True

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(8, VOCABULARY)

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        mask = (source != 0).unsqueeze(-1)
        mean = (self.embedding(source) * mask).sum(1) / mask.sum(1)
        return self.projection(self.dropout(self.embedding(target_input) + mean.unsqueeze(1)))

    def start(self, source: Tensor) -> DecoderState:
        raise NotImplementedError

    def step(self, last_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        raise NotImplementedError


class ListStore:
    """Random sentence pairs in memory, with the interface of `TokenStore`."""

    fingerprint = "random"
    weights = (1.0,)

    def __init__(self, num_pairs: int = 40, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self._pairs = [
            tuple(generator.integers(4, VOCABULARY, generator.integers(1, 9)).tolist() for _ in range(2))
            for _ in range(num_pairs)
        ]

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def lengths(self) -> tuple[Any, Any]:
        sides = zip(*((len(source) + 1, len(target) + 1) for source, target in self._pairs), strict=True)
        source, target = (np.array(side, dtype=np.int32) for side in sides)
        return source, target

    def pairs(self, indices: Any) -> list[Any]:
        return [self._pairs[index] for index in indices]

    def origin(self, index: int) -> str:
        return f"train.de:{index + 1}"


def tiny_trainer(
    dropout: float = 0.3,
    batches: dict[str, Any] | None = None,
    model: TranslationModel | None = None,
    store: Any = None,
    **settings: Any,
) -> Trainer:
    """A trainer of a tiny model; `settings` are those of TrainingConfig."""
    torch.manual_seed(1)
    config = TrainingConfig.model_validate(
        {"accelerator": "cpu", "schedule": {"warmup_steps": 5, "peak_rate": 0.01}, **settings}
    )
    sizes = BatchConfig.model_validate({"max_tokens": 32, "update_tokens": 64, **(batches or {})})
    return Trainer(launch_fabric(config), model or TinyModel(dropout), store or ListStore(), config, sizes, seed=7)


def write_corpus(folder: Path) -> None:
    """Write `train` and `valid` in the languages `de` and `en`: the target is the source respelled and reversed."""
    generator = np.random.default_rng(0)
    for name, count in (("train", 120), ("valid", 12)):
        sources, targets = [], []
        for _ in range(count):
            words = generator.integers(0, 20, generator.integers(2, 8))
            sources.append(" ".join(f"wort{word}" for word in words))
            targets.append(" ".join(f"word{word}" for word in reversed(words)))
        (folder / f"{name}.de").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")


def tiny_recipe(folder: Path, **changes: Any) -> dict[str, Any]:
    """A recipe, as plain values, for the corpus that `write_corpus` has written to `folder`."""
    recipe: dict[str, Any] = {
        "name": "tiny",
        "data": {
            "root": str(folder),
            "cache": str(folder / "cache"),
            "source_language": "de",
            "target_language": "en",
            "train": [{"source": "train.de", "target": "train.en"}],
            "validation": [{"source": "valid.de", "target": "valid.en"}],
            "processes": 1,
        },
        "segmentation": {"kind": "word", "min_frequency": 1},
        "model": {
            "family": "transformer",
            "embed_dim": 16,
            "num_heads": 2,
            "ffn_dim": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "dropout": 0.1,
        },
        "batches": {"max_tokens": 80, "update_tokens": 240},
        "training": {
            "max_updates": 12,
            "log_every": 2,
            "checkpoint_every": 1,
            "keep_best": 2,
            "average_best": 2,
            "tensorboard": False,
            "accelerator": "cpu",
            "schedule": {"warmup_steps": 4, "peak_rate": 0.01},
        },
        "validation": {"every_updates": 3, "bleu_every": 2, "bleu_sentences": 4},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = recipe
        for key in parents:
            node = node[key]
        node[last] = value
    return recipe
