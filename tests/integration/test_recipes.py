"""Every recipe builds its model, and one of each kind makes two updates, on made-up text."""

from __future__ import annotations

import lzma
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from jointnmt.data.corpus import ParallelText
from jointnmt.data.pairs import read_pairs
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES, build_model
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train

RECIPES = Path(__file__).parents[2] / "recipes"
RUNNABLE = sorted([RECIPES / "demo.yaml", *(path for path in RECIPES.glob("*/*.yaml") if path.name[0] != "_")])
"""Recipes with a leading underscore are only extended by others, and `small-corpus` names no text."""

PUBLISHED = {  # millions of parameters, fact sheet, sections 2 and 4, for the vocabularies of the recipes
    "nist12/zh-en-transformer": 101,
    "nist12/zh-en-reformer-fast": 105,
    "nist12/zh-en-reformer-fast-scaled": 146,
    "nist12/zh-en-transformer-big": 291,
}


def name(path: Path) -> str:
    return path.relative_to(RECIPES).with_suffix("").as_posix()


def write_made_up_text(text: ParallelText, root: Path) -> None:
    generator = random.Random(7)
    words = ["ba", "du", "gi", "lo", "me", "nu", "ri", "so", "ta", "wu"]
    for path in text.files:
        rows = [[generator.choices(words, k=generator.randint(1, 4)) for _ in range(2)] for _ in range(40)]
        lines = [" ".join(source) + (f"\t{' '.join(target)}" if text.path else "") for source, target in rows]
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        compress = lzma.compress if path.suffix == ".xz" else bytes
        (root / path).write_bytes(compress("".join(f"{line}\n" for line in lines).encode()))


def kind(value: Any) -> Any:
    """A configuration without its numbers: recipes that differ only in numbers are trained in the same way."""
    if isinstance(value, dict):
        return {key: kind(each) for key, each in value.items()}
    return type(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def one_of_each_kind() -> list[Path]:
    """The recipe with the smallest model among those of a kind."""
    found: dict[str, Path] = {}
    experiments = {path: Experiment.load(path) for path in RUNNABLE}
    for path in sorted(experiments, key=lambda path: experiments[path].model.embed_dim):
        values = experiments[path].plain()
        texts = sorted({repr([key for key, given in text.items() if given]) for text in values["data"]["train"]})
        parts = [kind(values[name]) for name in ("model", "segmentation", "batches", "training")]
        found.setdefault(repr([texts, parts]), path)
    return list(found.values())


def smaller(path: Path) -> list[str]:
    """At most two layers of each stack and 256 features: more take long to save, and train no differently."""
    model = Experiment.load(path).model
    stacks = [key for key in type(model).model_fields if key.endswith("layers")]
    most = {**dict.fromkeys(stacks, 2), "embed_dim": 256, "ffn_dim": 512}
    return [f"model.{key}={min(value, getattr(model, key))}" for key, value in most.items()]


@pytest.mark.parametrize("path", RUNNABLE, ids=name)
def test_recipe_builds_its_model(path: Path) -> None:
    with torch.device("meta"):
        build_model(Experiment.load(path).model, 50, 50)


@pytest.mark.parametrize("path", one_of_each_kind(), ids=name)
def test_recipe_makes_two_updates(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    small = [
        "batches.max_tokens=40",
        "batches.update_tokens=60",
        "training.max_updates=2",
        "training.tensorboard=false",
        "training.precision=float32",
    ]
    small += [f"data.root={tmp_path}", "validation.every_updates=100", "validation.patience=null", "data.validation=[]"]
    small += ["validation.metric=perplexity"]
    experiment = Experiment.load(path, [*small, *smaller(path), "segmentation.min_frequency=1"])
    for text in experiment.data.train:
        write_made_up_text(text, tmp_path)
    train(experiment, tmp_path / "run", NoDisplay())
    assert (tmp_path / "run" / "model.safetensors").stat().st_size > 0


@pytest.mark.parametrize(
    ("recipe", "thousands"),  # Emelin et al. 2019, Table 5
    [("base", 65_166), ("base-shortcuts", 71_470), ("base-fusion", 84_053), ("big", 218_413), ("big-fusion", 293_935)],
)
def test_recipe_has_the_published_thousands_of_parameters(recipe: str, thousands: int) -> None:
    experiment = Experiment.load(RECIPES / f"wmt14/en-de-{recipe}.yaml")
    with torch.device("meta"):
        model = build_model(experiment.model, 41_138, 41_138)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e3) == thousands
    assert experiment.training.loss_mean == "sentences"
    schedule, embed_dim = experiment.training.schedule, experiment.model.embed_dim
    assert schedule.peak_rate == pytest.approx((embed_dim * schedule.warmup_steps) ** -0.5, rel=2e-3)
    warmup = {"base": 4000, "base-shortcuts": 6000, "base-fusion": 8000, "big": 16_000, "big-fusion": 16_000}
    assert schedule.warmup_steps == warmup[recipe]


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_recipe_has_the_published_number_of_parameters(recipe: str) -> None:
    experiment = Experiment.load(RECIPES / f"{recipe}.yaml")
    source = experiment.segmentation.vocabulary_size
    target = experiment.segmentation.target_vocabulary_size or source
    with torch.device("meta"):
        model = build_model(experiment.model, source, target)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == PUBLISHED[recipe]


def test_there_are_recipes_of_every_family_for_every_corpus() -> None:
    for folder in ("multi30k", "tatoeba", "tatoeba-10k", "iwslt14", "iwslt15", "nist12"):
        families = {Experiment.load(path).model.family for path in RUNNABLE if path.parent.name == folder}
        assert families == set(FAMILIES)


BUNDLED = [*(RECIPES / "tatoeba").glob("de-en-*.yaml"), RECIPES / "demo.yaml"]


PREPARED = ("de-en-transformer-student", "de-en-everyday")
"""Recipes of text that is made from the corpus first."""


@pytest.mark.parametrize("path", [path for path in BUNDLED if path.stem not in PREPARED], ids=name)
def test_recipes_of_the_bundled_corpus_read_it_as_it_lies(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any directory, without preparation; and none of them trains on the test text."""
    monkeypatch.chdir(tmp_path)
    data = Experiment.load(path).data
    (pair, *_) = read_pairs(data.validation, data)
    assert (pair.source, pair.target) == ("Wie ist das passiert?", "How did it happen?")
    assert next(read_pairs(data.train, data))[:2] == ("Hallo!", "Hi.")
    assert not any("test" in file.name for text in (*data.train, *data.validation) for file in text.files)
