"""The server's only interface to the translator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jointnmt.analysis.attention import By, View, attention_numbers
from jointnmt.analysis.inspection import Inspection, inspect_pair
from jointnmt.errors import DataError
from jointnmt.runs.members import members_of
from jointnmt.search import SearchConfig, target_limit
from jointnmt.search.rules import MOST_LENGTH_OFFSET, MOST_LENGTH_PENALTY
from jointnmt.text.languages import space_of
from jointnmt.text.sentences import split_sentences, splitter_of
from jointnmt.text.special import num_tokens
from jointnmt.text.tags import split_tag
from jointnmt.translator import Candidate, ScoredTranslation, Translation, TranslationOptions, Translator, attend
from jointnmt.translator.admission import num_rows
from jointnmt.translator.comparison import ModelComparison, compare
from jointnmt.translator.exploration import NextWords, TracedSearch, next_words, trace_search
from jointnmt.translator.given import plan_scores
from jointnmt.translator.limits import Search
from jointnmt.translator.options import Split, changed_search
from jointnmt.translator.pairs import check_tokens, encoded
from jointnmt.translator.precision import PrecisionChoice
from jointnmt.translator.preprocessing import Line
from jointnmt.translator.results import NOTHING
from jointnmt.translator.searching import check_options, plan_translations, search_of

TRANSFORMER_OVERHEAD_CELLS = 100_000
"""Fixed cost of a batch of a Transformer on a CPU, in cells: ten times the translator's own. Few sentences of all
lengths wait at the same time, so they are computed together even if this pads more: a position of few rows takes nearly
as long as one of many, and finished sentences cost nothing (docs/serving.md). A grid's memory grows with cells."""

LinePlace = tuple[int, int]
"""Index of a line in a request, and of a sentence in that line, both from 0."""

__all__ = [
    "MOST_LENGTH_OFFSET",
    "MOST_LENGTH_PENALTY",
    "NOTHING",
    "By",
    "Candidate",
    "Engine",
    "ModelInfo",
    "NextWords",
    "PrecisionChoice",
    "ScoredTranslation",
    "Search",
    "SearchConfig",
    "Split",
    "Translation",
    "TranslationOptions",
]


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that need no computation."""

    source_language: str
    target_language: str
    family: str
    parameters: int
    max_length: int | None
    """Most source tokens of a sentence, end mark included; None: no limit."""
    has_gates: bool
    has_alignments: bool
    beam_size: int


class Engine:
    """A loaded model.

    The methods that run the model (`translate_each`, `score`, `inspect`, `trace`, `next_words`, `attention` and
    `compare`) must be called from one thread only, the others from any.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        models = [experiment.model for experiment in translator.experiments]
        source, target = translator.languages
        self.info = ModelInfo(
            source_language=source,
            target_language=target,
            family=" + ".join(dict.fromkeys(model.family for model in models)),
            parameters=translator.num_parameters,
            max_length=translator.max_length,
            has_gates=len(models) == 1 and bool(models[0].shortcut_places),
            has_alignments=translator.can_align,
            beam_size=translator.search.beam_size,
        )

    @classmethod
    def load(
        cls, run: Path, device: str, precision: PrecisionChoice, search: Mapping[str, Any] = MappingProxyType({})
    ) -> Engine:
        """The model of a RUN directory, or an ensemble (A+B), with these values replacing those of its own search.

        Raises:
            ConfigurationError: if the device does not exist or support the precision, or search has no such key.
            ModelError: if a part of RUN is missing or damaged.
        """
        translator = Translator.load(members_of(run), device, precision)
        translator.search = changed_search(translator.search, False, search, origin="search of the server")
        if translator.device.type == "cpu" and not any(each.model.is_grid for each in translator.experiments):
            translator.overhead_cells = TRANSFORMER_OVERHEAD_CELLS
        splitter_of(translator.segmentation.source.language)  # created now, not in the first request
        return cls(translator)

    def source_tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of source tokens of each text, end mark included.

        Raises:
            DataError: if a text is not valid Unicode.
        """
        return [num_tokens(ids) for ids in self._translator.segmentation.source.encode_ids_batch(texts)]

    def sentences(self, text: str, split: Split) -> list[str]:
        """The parts of a line that are translated separately: its sentences if it is split, else the whole line."""
        most = self.info.max_length
        if split == "never" or (split == "long" and (most is None or self.source_tokens([text])[0] <= most)):
            return [text]
        source = self._translator.segmentation.source
        tag, rest = split_tag(text.strip(), self._translator.tags)
        found = split_sentences(rest, source.language)
        return [f"{tag} {each}" if tag else each for each in found] or [text]

    def joined(self, text: str, sentences: Sequence[Translation], options: TranslationOptions) -> Translation:
        """The translation of a line from those of its sentences."""
        search = search_of(self._translator, options)
        return Translation.joined(text, sentences, space_of(self.info.target_language), search)

    def target_tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of target tokens of each text, end mark included."""
        return [num_tokens(ids) for ids in self._translator.segmentation.target.encode_ids_batch(texts)]

    def search(self, settings: dict[str, Any], sampling: bool = False) -> Search:
        """The model's own search with its values replaced by `settings`; with `sampling`, sampling.

        Raises:
            ConfigurationError: naming the wrong setting.
        """
        return changed_search(self._translator.search, sampling, settings, origin="request")

    def plan_translations(self, source_tokens: Sequence[int], options: TranslationOptions) -> list[int]:
        """Indices of the sentences to translate together with the first one, which is included."""
        return plan_translations(self._translator, source_tokens, options)[0]

    def breadth(self, source_tokens: int, options: TranslationOptions) -> tuple[int, int, int]:
        """Hypotheses, source tokens and most target tokens of a sentence, whose product is its cells."""
        search = search_of(self._translator, options)
        return num_rows(search, options.num_best), source_tokens, target_limit(source_tokens, search)

    def plan_scores(self, source_tokens: Sequence[int], target_tokens: Sequence[int]) -> list[int]:
        """Indices of the pairs to score together with the first one, which is included."""
        return plan_scores(self._translator, source_tokens, target_tokens)[0]

    def translate_each(
        self, places: Sequence[LinePlace], texts: Sequence[str], prefixes: Sequence[str], options: TranslationOptions
    ) -> list[Translation | DataError]:
        """Translate texts, with an error in place of one that cannot be; samples depend on `places` in the request."""
        lines = _lines(places, texts, prefixes)
        found = self._translator.translate_lines(lines, replace(options, on_invalid="skip"))
        return [each if each.error is None else DataError(each.error) for each in found]

    def score(
        self,
        places: Sequence[LinePlace],
        sources: Sequence[str],
        targets: Sequence[str],
        pieces: bool,
        alternatives: int = 0,
    ) -> list[ScoredTranslation]:
        """Log-probabilities of targets given their sources; errors name the `places`.

        Raises:
            DataError: for the first that cannot be scored.
        """
        return self._translator.score_lines(_lines(places, sources, targets), pieces, alternatives)

    def check_length(self, source: str, most_tokens: int) -> None:
        """Refuse a text of more than `most_tokens` tokens.

        Raises:
            DataError: if it has more.
        """
        check_tokens("sentence", self.source_tokens([source])[0], most_tokens)

    def check_pair(self, source: str, target: str | None) -> None:
        """Refuse a text, or a translation, that the model cannot read.

        Raises:
            DataError: if one is too long.
        """
        encoded(self._translator, source, target or "")

    def inspect(self, source: str, target: str | None, most_tokens: int) -> Inspection:
        """The model's internal values for a sentence and the first tokens of its translation (None: its own).

        Raises:
            DataError: if the sentence has more than `most_tokens` tokens.
        """
        return inspect_pair(self._translator, source, target, most_tokens)

    def trace(self, source: str, prefix: str, search: SearchConfig | None, most_pruned: int) -> TracedSearch:
        """The recorded search for a sentence's translation."""
        return trace_search(self._translator, source, prefix, search, most_pruned)

    def next_words(self, source: str, prefix: str, count: int, alignments: bool) -> NextWords:
        """Words that might come after a prefix."""
        return next_words(self._translator, source, prefix, count, alignments)

    def attention(self, source: str, target: str | None, by: By, most_tokens: int) -> dict[str, Any]:
        """The model's attention weights for a sentence with its translation (None: its own).

        Raises:
            DataError: if one of them has more than `most_tokens` tokens.
        """
        trace = attend(self._translator, source, target, "request", most_tokens)
        numbers = attention_numbers(trace.attn_weights, trace.source_pieces, trace.target_pieces, View(by))
        return {"translation": trace.translation, **numbers}

    @staticmethod
    def compare(engines: Mapping[str, Engine], source: str, targets: Sequence[str] = ()) -> ModelComparison:
        """Several models' translations of a sentence, and given ones, with each model's score of each."""
        return compare({name: engine._translator for name, engine in engines.items()}, source, targets)

    def check_options(self, options: TranslationOptions) -> None:
        """Check that the model supports the options.

        Raises:
            ConfigurationError: if it does not.
        """
        check_options(self._translator, options)


def _lines(places: Sequence[LinePlace], sources: Sequence[str], targets: Sequence[str]) -> list[Line]:
    given = zip(places, sources, targets, strict=True)
    return [Line(line + 1, f"line {line + 1}", source, target, part=part) for (line, part), source, target in given]
