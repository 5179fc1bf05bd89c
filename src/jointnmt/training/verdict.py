"""Whether a finished training has learnt anything, by its records, and what to do if it has not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jointnmt.data.store import TokenStore
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import steps_of
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import validations
from jointnmt.training.schedule import WARMUPS, shorter_warmup

NEAR = 0.8
"""Share of the unigram perplexity above which a model knows little more than how frequent each piece is."""

USELESS_BLEU = 0.5
"""BLEU below which matches are chance. It is far below `TELLING`, from which on BLEU can compare checkpoints: a model
should be called useless only if that is certain."""

MOST_EMPTY = 0.5
"""Share of empty translations above which a model is useless."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on the weights of a finished run."""

    reasons: tuple[str, ...]
    """Reasons why the weights are useless; empty if there are none."""
    advice: str


def unigram_perplexity(train: TokenStore, validation: TokenStore, vocabulary: int) -> float:
    """Perplexity of the validation targets, end marks included, under the unigram frequencies of the training targets.

    Add-one smoothing avoids probabilities of 0. A model that has learnt only how frequent each piece is, and nothing
    about the source or preceding words, has this perplexity.
    """
    known, asked = (store.target_token_counts(vocabulary) for store in (train, validation))
    log_probabilities = np.log(known + 1) - np.log(known.sum() + vocabulary)
    return float(np.exp(-(asked * log_probabilities).sum() / asked.sum()))


def judge(directory: RunDirectory, train: TokenStore, validation: TokenStore, vocabulary: int) -> Verdict:
    """Judge the weights for translation of a finished training by their own validation.

    Args:
        directory: RUN directory with log, translations of the validation text, and weights.
        train: training text.
        validation: validation text.
        vocabulary: number of target pieces.
    """
    steps = steps_of(checkpoint.read_values(directory.model))
    of_weights = validations(directory.log, steps)
    translated = [record for record in of_weights if record.get("bleu") is not None][-1:]
    reasons = [each for record in of_weights[-1:] for each in _of_perplexity(record, train, validation, vocabulary)]
    reasons += [each for record in translated for each in _of_translations(record, directory)]
    updates = max((record["step"] for record in validations(directory.log)), default=0)
    return Verdict(tuple(reasons), _advice(directory, updates, len(train)))


def _of_perplexity(record: dict[str, Any], train: TokenStore, validation: TokenStore, vocabulary: int) -> list[str]:
    unigram = unigram_perplexity(train, validation, vocabulary)
    perplexity = record.get("perplexity") or float("inf")
    if perplexity <= NEAR * unigram:
        return []
    return [
        f"its perplexity on the validation text is {perplexity:,.0f}, and that of a unigram model (how frequent each "
        f"piece is) is {unigram:,.0f}"
    ]


def _of_translations(record: dict[str, Any], directory: RunDirectory) -> list[str]:
    reasons = []
    if record["bleu"] < USELESS_BLEU:
        reasons.append(f"its BLEU on the validation text is {record['bleu']:.2f}")
    lines = _lines(directory.translations(record["step"], record["event"]))
    empty = sum(not line.strip() for line in lines)
    if empty > MOST_EMPTY * len(lines):
        reasons.append(f"{empty:,} of its {len(lines):,} translations are empty")
    return reasons


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.is_file() else []


def _advice(directory: RunDirectory, updates: int, pairs: int) -> str:
    """Advice for another RUN, most promising first."""
    experiment, advice = directory.read_experiment(), list[str]()
    schedule = experiment.training.schedule
    if (shorter := shorter_warmup(schedule, updates)) is not None:
        advice.append(
            f"the warm-up of {schedule.warmup_steps:,} updates is more than 1/{WARMUPS} of the {updates:,} updates: "
            f"set training.schedule.warmup_steps to {shorter:,}"
        )
    patience = "" if experiment.validation.patience is None else ", with a higher validation.patience"
    advice.append(f"train for longer (training.max_updates, training.schedule.zero_at){patience}")
    advice.append("look at some lines of the training text: does line i of one side translate line i of the other")
    if pairs < 30_000:
        advice.append(f"{pairs:,} sentence pairs are few: add text, or start from a trained model (training.from)")
    return "; ".join(advice)
