"""Translations of lines by search, in windows and batches: implements methods of `Translator`, documented there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat

from jointnmt.data.batch import collate_sources
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.models.interface import AttentionPart
from jointnmt.search import Hypothesis, SamplingConfig, SearchConfig, beam_search, sample, sentence_generator
from jointnmt.search.beam import check_num_best
from jointnmt.search.rules import target_limit
from jointnmt.text.languages import space_of
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.sentences import split_sentences
from jointnmt.text.special import EOS
from jointnmt.translator.admission import admit, beam_size, bounded_lines, num_rows
from jointnmt.translator.batching import computed, plan_window, windows
from jointnmt.translator.forced_decoding import ForcedDecoding
from jointnmt.translator.inference import Inference
from jointnmt.translator.limits import Search
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.preprocessing import (
    EncodedSentence,
    Line,
    check_known_tag,
    checked_texts,
    numbered_lines,
    pair_lines,
    tagged,
)
from jointnmt.translator.results import Candidate, Counts, Translation, with_end_mark

logger = logging.getLogger(__name__)


def translate_stream(
    inference: Inference,
    lines: Iterable[str | DataError],
    options: TranslationOptions,
    prefixes: Iterable[str | DataError] | None,
    origin: str,
    done: int,
) -> Iterator[Translation]:
    """See `Translator.translate_stream`, which has checked the options."""
    if options.split == "long" and inference.max_length is None:
        logger.warning(
            "split='long' splits nothing: this model takes lines of any length. Use split='always' (--split always)."
        )
    counts, language = Counts(), inference.segmentation.source.language
    for window in windows(_numbered(inference, lines, options, prefixes, origin), options.window):
        if window[-1].number <= done:
            continue
        for line, translation in zip(window, translate_window(inference, window, options), strict=False):
            if line.number > done:
                counts.add(translation)
                is_whole = options.split != "always" and translation.source_tokens.count(EOS) == 1
                counts.several += is_whole and len(split_sentences(translation.source, language)) > 1
                yield translation
    counts.warn()


def check_options(inference: Inference, options: TranslationOptions) -> None:
    """Refuse options that the model does not support, or that exceed the limits.

    Raises:
        ConfigurationError: naming the option.
    """
    if options.gates and not inference.only_model().has_shortcuts:
        raise ConfigurationError(
            "Gates were asked for, but this model has no lexical shortcuts. Train one with model.shortcuts, or "
            "leave gates out."
        )
    if options.alignments:
        inference.check_can_align()
    check_known_tag(options.tag, inference.tags)
    search = search_of(inference, options)
    if isinstance(search, SearchConfig):
        check_num_best(options.num_best, search)
    width = beam_size(search)
    if options.limits and (refused := options.limits.refused_breadth(options.num_best, width)):
        raise ConfigurationError(refused)


def _numbered(
    inference: Inference,
    lines: Iterable[str | DataError],
    options: TranslationOptions,
    prefixes: Iterable[str | DataError] | None,
    origin: str,
) -> Iterator[Line]:
    """The lines with their numbers, tags and prefixes."""
    trained_on, tags = inference.experiment.data.train, inference.tags
    texts = tagged(checked_texts(lines), options.tag, tags, bool(tags) and all(text.tag for text in trained_on))
    numbered = (
        numbered_lines(texts, origin)
        if prefixes is None
        else pair_lines(texts, checked_texts(prefixes, "prefix", "prefixes"), origin, "target prefixes")
    )
    return numbered if options.limits is None else bounded_lines(numbered, options.limits)


def translate_window(
    inference: Inference, window: Sequence[Line], options: TranslationOptions
) -> Iterator[Translation]:
    """The translations of lines that are batched together, up to the first that cannot be translated.

    Raises:
        DataError: at that line, unless such lines are skipped.
    """
    search, segmentation = search_of(inference, options), inference.segmentation
    rows = num_rows(search, options.num_best)
    lines = admit(window, inference.preprocessor(options.split), search, rows, options.limits)
    if options.on_invalid == "error":
        lines = lines[: next((i for i, line in enumerate(lines) if isinstance(line, DataError)), len(lines)) + 1]
    sentences = [sentence for line in lines if not isinstance(line, DataError) for sentence in line]
    found = translate_sentences(inference, sentences, options)
    space = space_of(segmentation.target.language)
    for line, prepared in zip(window, lines, strict=False):
        if isinstance(prepared, DataError):
            if options.on_invalid == "error":
                raise prepared
            yield Translation(line.source, error=str(prepared))
            continue
        tokens = [with_end_mark(segmentation.source, sentence.source) for sentence in prepared]
        parts = [Translation("", each, tuple(next(found))) for each in tokens]
        yield Translation.joined(line.source, parts, space, search)


def translate_sentences(
    inference: Inference, sentences: Sequence[EncodedSentence], options: TranslationOptions
) -> Iterator[list[Candidate]]:
    """The translations of encoded sentences, in order; `target` of each is its prefix."""
    batches = plan_translations(inference, [sentence.source_tokens for sentence in sentences], options)
    return computed(sentences, batches, partial(_candidates, inference, options=options))


def plan_translations(
    inference: Inference, source_tokens: Sequence[int], options: TranslationOptions
) -> list[list[int]]:
    """The batches in which sentences of these lengths are translated, as lists of sentence numbers."""
    search = search_of(inference, options)
    limits = [target_limit(tokens, search) for tokens in source_tokens]
    max_cells, rows = inference.max_cells, num_rows(search, options.num_best)
    return plan_window(source_tokens, limits, max_cells // rows, max_cells, inference.overhead_cells)


def _candidates(
    inference: Inference, sentences: Sequence[EncodedSentence], options: TranslationOptions
) -> list[list[Candidate]]:
    """The translations of a batch of sentences."""
    with inference.autocast():
        found = _searched(inference, sentences, options)
        rows = [(one, each.ids) for one, hypotheses in zip(sentences, found, strict=True) for each in hypotheses]
        parts: dict[AttentionPart, bool] = {"alignment": options.alignments, "gates": options.gates}
        wanted = frozenset(part for part, asked in parts.items() if asked)
        forced = iter(inference.force_decode(rows, wanted)) if wanted else repeat(ForcedDecoding())
    target = inference.segmentation.target
    return [[_candidate(target, each, next(forced)) for each in hypotheses] for hypotheses in found]


def _searched(
    inference: Inference, sentences: Sequence[EncodedSentence], options: TranslationOptions
) -> list[list[Hypothesis]]:
    model, search = inference.reading(sentences), search_of(inference, options)
    source = collate_sources([sentence.source for sentence in sentences]).to(inference.device)
    prefixes = [sentence.target for sentence in sentences]
    if isinstance(search, SamplingConfig):
        generators = [sentence_generator(options.seed, *sentence.number) for sentence in sentences]
        return sample(model, source, search, generators, prefixes, options.num_best, options.constraint)
    return beam_search(model, source, search, prefixes, options.num_best, constraint=options.constraint)


def _candidate(target: Segmenter, hypothesis: Hypothesis, forced: ForcedDecoding) -> Candidate:
    return Candidate(
        text=target.decode_ids(list(hypothesis.ids)),
        tokens=with_end_mark(target, hypothesis.ids),
        token_log_probabilities=hypothesis.token_log_probabilities,
        score=hypothesis.score,
        complete=hypothesis.complete,
        alignment=forced.alignment,
        gates=forced.gates,
    )


def search_of(inference: Inference, options: TranslationOptions) -> Search:
    """The search that the options ask for, or else the inference's."""
    return options.search or inference.search
