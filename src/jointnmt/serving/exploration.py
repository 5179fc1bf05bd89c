"""Internal values of models for the page, as JSON-compatible values, the same from the server and in a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

import jointnmt
from jointnmt.analysis.inspection import GRID, Inspection
from jointnmt.errors import DataError
from jointnmt.serving.arrays import packed
from jointnmt.serving.engine import Candidate, Engine, NextWords, Translation, TranslationOptions
from jointnmt.text.invisible import is_blank

logger = logging.getLogger(__name__)

EMPTY = "The text is empty: there is nothing to look into."
FORMAT = 1
"""Version of the document's format."""
ALTERNATIVES, NUM_BEST, PRUNED = 5, 5, 5
DOCUMENT_WEIGHTS = 16_000_000
"""Most attention weights of grids in a document, at two bytes each."""


class Texts(NamedTuple):
    """A sentence to inspect."""

    source: str
    target: str | None = None
    """A translation by the user."""
    origin: str = ""
    """Place of the sentence, for messages; empty: given directly."""


def plain_translation(translation: Translation) -> dict[str, Any]:
    """A translation as in the answer of `/v1/translate`."""
    return {
        "source": translation.source,
        "source_tokens": list(translation.source_tokens),
        "translation": translation.text,
        "candidates": [plain_candidate(each) for each in translation.candidates],
    }


def plain_candidate(candidate: Candidate) -> dict[str, Any]:
    """A candidate as in the answer of `/v1/translate`."""
    values = candidate.plain()
    return {"text": values.pop("translation"), **values}


def plain_next_words(found: NextWords) -> dict[str, Any]:
    """Next words as in the answer of `/v1/alternatives`."""
    words = [{**each._asdict(), "candidate": plain_candidate(each.candidate)} for each in found.words]
    return {"source_tokens": list(found.source_tokens), "alternatives": words}


def plain_inspection(inspection: Inspection, most_weights: int) -> dict[str, Any]:
    """An inspection as in the answer of `/v1/inspect`, with packed arrays.

    The attention of a grid grows with the third power of the length. If it has more than `most_weights` numbers, it is
    averaged over heads, and so are its entropies; if that is still too much, it is left out.
    """
    attention, entropy = dict(inspection.attention), dict(inspection.entropy)
    heads = _heads(inspection, most_weights) if inspection.is_grid else None
    if inspection.is_grid and heads != "each":
        for name in GRID:
            entropy[name] = entropy[name].mean(1, keepdims=True)
            attention[name] = attention[name].mean(1, keepdims=True)
    left_out = GRID if inspection.is_grid and heads is None else ()
    return {
        "family": inspection.family,
        "translation": inspection.translation,
        "source_tokens": list(inspection.source_tokens),
        "target_read": list(inspection.target_read),
        "target_predicted": list(inspection.target_predicted),
        "token_log_probabilities": list(inspection.token_log_probabilities),
        "alignment": packed(inspection.alignment),
        "attention": {
            name: None if name in left_out else packed(weights, "unorm16") for name, weights in attention.items()
        },
        "grid_heads": heads,
        "entropy": {name: packed(values) for name, values in entropy.items()},
        "states": {
            name: {"norm": packed(each.norm), "change": packed(each.change)} for name, each in inspection.states.items()
        },
        "gates": {name: packed(values, "unorm16") for name, values in inspection.gates.items()},
        "left_out": inspection.left_out,
    }


def _heads(inspection: Inspection, most_weights: int) -> str | None:
    """How a grid's attention fits: `each` head, the `mean` over heads, or None."""
    shapes = [inspection.attention[name].shape for name in GRID]
    each = sum(int(np.prod(shape)) for shape in shapes)
    if each <= most_weights:
        return "each"
    return "mean" if sum(int(np.prod(shape)) // shape[1] for shape in shapes) <= most_weights else None


def document(engines: Mapping[str, Engine], texts: Sequence[Texts], most_tokens: int) -> dict[str, Any]:
    """Everything that the page shows about models of one language pair and these sentences, for a file.

    Raises:
        ConfigurationError: if the models have different language pairs.
        DataError: naming the text, if one is empty, or longer than `most_tokens` or the model takes.
    """
    budget = Budget(most_tokens, DOCUMENT_WEIGHTS // max(1, len(texts) * len(engines)))
    for number, each in enumerate(texts, start=1):  # check all of them before the first is computed
        with _naming(each.origin or f"text {number}"):
            _check(engines, each, budget)
    sentences = []
    for number, each in enumerate(texts, start=1):
        with _naming(each.origin or f"text {number}"):
            sentences.append(_explored(engines, each, budget))
    _tell_what_is_missing(sentences)
    return {
        "format": FORMAT,
        "generator": f"jointnmt {jointnmt.__version__}",
        "models": [{"name": name, **asdict(engine.info)} for name, engine in engines.items()],
        "sentences": sentences,
    }


def _tell_what_is_missing(sentences: Sequence[Mapping[str, Any]]) -> None:
    found = [each["inspection"] for sentence in sentences for each in sentence["by_model"].values()]
    grids = [each["grid_heads"] for each in found if "grid" in each["states"]]
    for heads, what in (("mean", "averaged over heads"), (None, "left out")):
        if number := grids.count(heads):
            logger.warning(
                "the attention of %d of %d grids is %s to limit the size of the file; give fewer sentences to keep all",
                number,
                len(grids),
                what,
            )


class Budget(NamedTuple):
    """Limits on the size of a sentence's part of a document."""

    tokens: int
    """Most tokens of a sentence, and of an inspected translation."""
    weights: int
    """Most weights of a grid's attention."""


@contextmanager
def _naming(origin: str) -> Iterator[None]:
    """Prefix errors with the origin of the text."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{origin}: {error}") from error


def _check(engines: Mapping[str, Engine], texts: Texts, budget: Budget) -> None:
    if is_blank(texts.source):
        raise DataError(EMPTY)
    for engine in engines.values():
        engine.check_length(texts.source, budget.tokens)
        engine.check_pair(texts.source, texts.target)


def _explored(engines: Mapping[str, Engine], texts: Texts, budget: Budget) -> dict[str, Any]:
    """The document's entry for a sentence."""
    given = () if texts.target is None else (texts.target,)
    return {
        "source": texts.source,
        "target": texts.target,
        "comparison": Engine.compare(engines, texts.source, given).plain(),
        "by_model": {name: _by_model(engine, texts, budget) for name, engine in engines.items()},
    }


def _by_model(engine: Engine, texts: Texts, budget: Budget) -> dict[str, Any]:
    source, target = texts.source, texts.target
    options = TranslationOptions(num_best=min(NUM_BEST, engine.info.beam_size), alignments=True)
    [translation] = engine.translate_each([(0, 0)], [source], [""], options)
    if isinstance(translation, DataError):
        raise translation
    if not translation.candidates:
        raise DataError(EMPTY)
    pieces = " ".join(translation.candidates[0].tokens[:-1])
    [scored] = engine.score([(0, 0)], [source], [pieces], pieces=True, alternatives=ALTERNATIVES)

    def inspected(target: str | None) -> dict[str, Any]:
        return plain_inspection(engine.inspect(source, target, budget.tokens), budget.weights)

    return {
        "translation": plain_translation(translation),
        "inspection": inspected(None),
        "target_inspection": None if target is None else inspected(target),
        "search": engine.trace(source, "", None, PRUNED).plain(),
        "score": {**scored.plain(), "target": translation.text},
    }
