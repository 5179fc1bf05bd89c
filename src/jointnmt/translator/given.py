"""Scores and alignments of given translations, in batches: implements methods of `Translator`, documented there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from jointnmt.data.batch import Batch
from jointnmt.search import Rescored, rescore, rescore_with_next
from jointnmt.translator.batching import computed, plan_window, windows
from jointnmt.translator.forced_decoding import ForcedDecoding
from jointnmt.translator.inference import Inference
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.preprocessing import EncodedSentence, Line, checked_texts, pair_lines
from jointnmt.translator.results import Aligned, NextPiece, ScoredTranslation, with_end_mark

Result = TypeVar("Result")

SCORED_TOKENS = 4096
"""Most tokens scored at once, as each has logits over the whole vocabulary."""


def score_stream(
    inference: Inference,
    sources: Iterable[str],
    targets: Iterable[str],
    origin: str = "input",
    pieces: bool = False,
    alternatives: int = 0,
    done: int = 0,
) -> Iterator[ScoredTranslation]:
    """See `Translator.score_stream`."""
    for window, lines in _encoded_windows(inference, sources, targets, origin, pieces, done):
        scores = _score_window(inference, window, lines, alternatives)
        yield from (scored for line, scored in zip(window, scores, strict=True) if line.number > done)


def score_lines(
    inference: Inference, window: Sequence[Line], pieces: bool, alternatives: int
) -> Iterator[ScoredTranslation]:
    """See `Translator.score_lines`."""
    return _score_window(inference, window, inference.preprocessor(pieces=pieces).encode(window), alternatives)


def _score_window(
    inference: Inference, window: Sequence[Line], lines: Sequence[Sequence[EncodedSentence]], alternatives: int
) -> Iterator[ScoredTranslation]:
    found = _in_batches(inference, lines, partial(_scores, inference, alternatives=alternatives))
    for line, sentences in zip(window, lines, strict=True):
        if not sentences:
            yield ScoredTranslation(line.source, line.target)
            continue
        rescored, choices = next(found)
        scored = _scored(inference, line, sentences[0].target, rescored)
        yield replace(scored, alternatives=choices) if alternatives else scored


def align_stream(
    inference: Inference, sources: Iterable[str], targets: Iterable[str], origin: str = "input"
) -> Iterator[Aligned]:
    """See `Translator.align_stream`."""
    for _, lines in _encoded_windows(inference, sources, targets, origin):
        found = _in_batches(inference, lines, partial(_force_decode, inference))
        for sentences in lines:
            yield _aligned(inference, sentences[0], next(found)) if sentences else Aligned((), (), None)


def _encoded_windows(
    inference: Inference,
    sources: Iterable[str],
    targets: Iterable[str],
    origin: str,
    pieces: bool = False,
    done: int = 0,
) -> Iterator[tuple[Sequence[Line], list[list[EncodedSentence]]]]:
    """Windows of lines, but those among the first `done`, and the sentence of each line (an empty line has none)."""
    preprocessor = inference.preprocessor(pieces=pieces)
    pairs = pair_lines(checked_texts(sources), checked_texts(targets), origin, "targets")
    for window in windows(pairs, TranslationOptions.window):
        if window[-1].number > done:
            yield window, preprocessor.encode(window)


def _in_batches(
    inference: Inference,
    lines: Sequence[Sequence[EncodedSentence]],
    compute: Callable[[Sequence[EncodedSentence]], list[Result]],
) -> Iterator[Result]:
    """The results of `compute` for the sentences of all lines, in order."""
    sentences = [sentence for line in lines for sentence in line]
    lengths = [each.source_tokens for each in sentences], [each.target_tokens for each in sentences]
    return computed(sentences, plan_scores(inference, *lengths), compute)


def plan_scores(inference: Inference, source_tokens: Sequence[int], target_tokens: Sequence[int]) -> list[list[int]]:
    """The batches in which pairs of these lengths are scored, as lists of pair numbers."""
    return plan_window(source_tokens, target_tokens, inference.max_cells, SCORED_TOKENS)


def _scores(
    inference: Inference, sentences: Sequence[EncodedSentence], alternatives: int
) -> list[tuple[Rescored, tuple[tuple[NextPiece, ...], ...]]]:
    batch = Batch.collate([each.source for each in sentences], [each.target for each in sentences])
    batch, piece = batch.to(inference.device), inference.segmentation.target.piece
    with inference.autocast():
        model = inference.reading(sentences)
        if not alternatives:
            return [(each, ()) for each in rescore(model, batch)]
        rescored, choices = rescore_with_next(model, batch, alternatives)
    named = [tuple(tuple(NextPiece(piece(i), x) for i, x in each) for each in sentence) for sentence in choices]
    return list(zip(rescored, named, strict=True))


def _scored(inference: Inference, line: Line, ids: Sequence[int], found: Rescored) -> ScoredTranslation:
    log_probabilities = found.log_probabilities
    score = inference.search.penalty.score(sum(log_probabilities), len(log_probabilities))
    tokens = with_end_mark(inference.segmentation.target, ids)
    return ScoredTranslation(line.source, line.target, tokens, log_probabilities, score, found.first_choices)


def _force_decode(inference: Inference, sentences: Sequence[EncodedSentence]) -> list[ForcedDecoding]:
    with inference.autocast():
        return inference.force_decode([(each, each.target) for each in sentences])


def _aligned(inference: Inference, sentence: EncodedSentence, forced: ForcedDecoding) -> Aligned:
    source, target = inference.segmentation.source, inference.segmentation.target
    return Aligned(with_end_mark(source, sentence.source), with_end_mark(target, sentence.target), forced.alignment)
