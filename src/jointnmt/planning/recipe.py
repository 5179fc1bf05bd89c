"""The recipe of a plan as YAML, with comments that give the reason for each value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jointnmt.bounded_yaml import parse_yaml
from jointnmt.planning.parts import CorpusParts
from jointnmt.planning.sizing import PATIENCE, VALIDATIONS, WARMUP_SHARE, CorpusCounts, Machine, Plan
from jointnmt.shipped import OF_PACKAGE


def recipe_text(name: str, parts: CorpusParts, corpus: CorpusCounts, plan: Plan, machine: Machine, seed: int) -> str:
    """A recipe, ready for `jointnmt train`."""
    sections = {section: _section(section, plan.values[section]) for section in plan.values}
    why = _reasons(corpus, plan, machine)
    lines = _head(name, parts, corpus, plan.values["model"]["max_length"], seed)
    for section, text in sections.items():
        lines += ["", *(f"# {line}" for line in why[section]), text]
    return "\n".join(lines) + "\n"


def tuning_text(
    name: str, parts: CorpusParts, corpus: CorpusCounts, start: str, max_length: int | None, seed: int
) -> str:
    """A recipe for fine-tuning the model `start`, an absolute path or `package:NAME`."""
    lines = _head(name, parts, corpus, max_length, seed)
    lines += [
        "",
        "# `jointnmt recipes fine-tuning` prints all other settings; what is said here replaces them.",
        "extends: package:fine-tuning",
        "",
        "# Sizes and segmentation are those of this model, which is needed until training has begun.",
        "training:",
        f"  from: {start if start.startswith(OF_PACKAGE) else _scalar(start)}",
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, parts: CorpusParts, corpus: CorpusCounts, max_length: int | None, seed: int) -> list[str]:
    """Lines that name the project and its text."""
    source, target = parts.languages
    lines = [
        f"# {source} to {target}, {corpus.pairs:,} sentence pairs. Written by `jointnmt init`; yours to change.",
        "# `jointnmt train ... --set key.path=value` tries a value out; `jointnmt recipes` lists other recipes.",
        f"name: {_scalar(name)}",
        f"seed: {seed}",
        "",
        "data:",
        f"  root: {_scalar(parts.directory.name)}",
        f"  source_language: {_scalar(source)}",
        f"  target_language: {_scalar(target)}",
        *_train(parts),
        f"  validation: [{_files(parts, 'valid')}]",
    ]
    if max_length is None:
        return lines
    return [
        *lines,
        "  # Training pairs that are longer than what the model takes are left out, and counted.",
        f"  filters: {{max_length: {max_length}}}",
    ]


def _train(parts: CorpusParts) -> list[str]:
    """Lines that name the training text."""
    files = ", ".join(_files(parts, name) for name in ("train", *(copies.kind for copies in parts.copies)))
    comments = [f"  # {copies.kind}: copies of training pairs {copies.description}." for copies in parts.copies]
    return [*comments, f"  train: [{files}]"]


def _files(parts: CorpusParts, part: str) -> str:
    source, target = parts.languages
    return f"{{source: {part}.{source}, target: {part}.{target}}}"


def _section(name: str, values: Mapping[str, Any]) -> str:
    rows = [f"{name}:"]
    for key, value in values.items():
        rows.append(f"  {key}: {_flow(value)}")
    return "\n".join(rows)


def _scalar(text: str) -> str:
    """A text in YAML, quoted if it would be read as something else, as `no` is."""
    plain = re.fullmatch(r"[\w./-]+", text) and parse_yaml(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)


def _flow(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value) if not isinstance(value, str) else value


def _reasons(corpus: CorpusCounts, plan: Plan, machine: Machine) -> dict[str, list[str]]:
    """Comments on each section."""
    size = plan.size
    passes = plan.pieces / corpus.pieces
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in machine.rates.items())
    return {
        "segmentation": [
            f"{size.vocabulary:,} pieces for {corpus.words:,} target words: the less text, the fewer pieces, as each",
            f"has to be seen often enough to be learnt; but more than its {corpus.characters:,} different characters.",
            "One vocabulary for both sides: names are the same in both. Each digit is a piece, so that all numbers are",
            "segmented alike.",
        ],
        "model": [
            "Width and depth by the size of the corpus. Dropout, too: the fewer the sentences, the sooner they are",
            "known by heart; of a Reformer at most 0.1, as more keeps it from learning. One embedding table for all,",
            "as most parameters of a small model are in them.",
            "The Transformer is the default: as good as any family at 160,000 pairs, and the fastest.",
            f"max_length: the longest sentence in pieces that the model will take (yours has up to {corpus.longest}).",
        ],
        "batches": [
            f"Updates of {size.update_pieces:,} target pieces: a small corpus needs many updates more than exact ones.",
            f"A batch fits this machine ({_hardware(machine)}).",
        ],
        "training": [
            f"{plan.updates:,} updates read the {corpus.pieces:,} target pieces {passes:.0f} times, at most.",
            f"The warm-up is 1/{WARMUP_SHARE} of them; then the rate falls to zero: the last weights are the best,",
            "and no average is needed. If you change max_updates, change zero_at and warmup_steps with it.",
            f"Precision: measured here, in target pieces a second: {rates}.",
        ],
        "validation": [
            f"{VALIDATIONS} times in all, by BLEU: with little text, perplexity rises before translations get worse.",
            f"Patience: {PATIENCE} of them, {PATIENCE * 100 // VALIDATIONS}% of the training, more than the warm-up.",
        ],
        "search": ["Beam search; `jointnmt translate` takes this as its default."],
    }


def _hardware(machine: Machine) -> str:
    memory = f", {machine.memory:.0f} GiB" if machine.memory else ""
    return machine.gpu or f"{machine.cores} {'core' if machine.cores == 1 else 'cores'}{memory}, no GPU"
