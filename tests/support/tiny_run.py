"""A RUN directory with a small random model of a dozen words, for tests of its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.runs import checkpoint
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.directory import TrainingDirectory

SOURCE_WORDS = ["der", "Hund", "die", "Katze", "sieht", "hört", "und", "nicht", ".", "!"]
TARGET_WORDS = ["the", "dog", "cat", "sees", "hears", "and", "not", ".", "!"]


def experiment(**changes: Any) -> Experiment:
    """A small experiment; `model` changes keys of the model, other keywords replace whole parts."""
    changed = changes.pop("model", {})
    layers = {"num_layers": 1, "prenet_layers": 1} if changed.get("family") != "transformer" else {}
    model = {"family": "reformer-fast", "embed_dim": 8, "num_heads": 2, "ffn_dim": 8, **layers, **changed}
    values = {
        "name": "tiny",
        "data": {"source_language": "de", "target_language": "en", "train": [{"source": "de", "target": "en"}]},
        "segmentation": {"kind": "word", "joint": False},
        "model": model,
        "training": {},
        "search": {"beam_size": 3, "max_length_offset": 3},
    }
    return Experiment.parse({**values, **changes}, origin="test")


def word_segmentation(
    lowercase: bool = False, languages: tuple[str, str] = ("de", "en"), moses: bool = False
) -> Segmentation:
    """A segmentation whose pieces are the words of the two lists."""
    config = SegmentationConfig(
        kind="word", joint=False, vocabulary_size=100, min_frequency=1, lowercase=lowercase, moses=moses
    )
    return Segmentation.train(config, [" ".join(SOURCE_WORDS)], [" ".join(TARGET_WORDS)], *languages)


def sizes(segmentation: Segmentation) -> tuple[int, int]:
    """Sizes of the source's and the target's vocabulary."""
    return segmentation.source.vocabulary_size, segmentation.target.vocabulary_size


def write_run(run: Path, **changes: Any) -> Path:
    """Write a RUN directory with a random model; `changes` as in `experiment`."""
    return write_run_of(run, experiment(**changes))


def write_run_of(run: Path, configuration: Experiment, segmentation: Segmentation | None = None, seed: int = 0) -> Path:
    """Write a RUN directory with a random model of this configuration; the default segmentation is that of words."""
    torch.manual_seed(seed)
    segmentation = segmentation or word_segmentation(configuration.segmentation.lowercase)
    model = build_model(configuration.model, *sizes(segmentation))
    run.mkdir(exist_ok=True)
    files = TrainingDirectory(run)
    files.write_experiment(configuration)
    segmentation.save(files.segmentation)
    files.bind(configuration)
    files.write_weights(files.model, model.state_dict(), [1])
    return run


def unbind(run: Path) -> None:
    """Remove from the weights of a RUN the record of the parts that they belong to, as in older versions."""
    weights = run / "model.safetensors"
    tensors, values = checkpoint.read(weights)
    checkpoint.write(weights, tensors, {key: value for key, value in values.items() if key != "parts"})
