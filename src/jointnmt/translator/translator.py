"""The translator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Literal, Self, TypeVar, get_args

import torch

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.hub import PretrainedMixin
from jointnmt.models import TranslationModel
from jointnmt.models.quantize import for_decoding
from jointnmt.search import (
    Hypothesis,
    Rescored,
    SamplingConfig,
    SearchConfig,
    beam_search,
    rescore,
    sample,
    sentence_generator,
)
from jointnmt.search.rules import check_prefix, target_limit
from jointnmt.text.languages import LANGUAGES_WITHOUT_SPACES, base_language
from jointnmt.text.segmentation import Segmentation, Segmenter
from jointnmt.text.special import EOS, unk_id
from jointnmt.training.memory import in_parts
from jointnmt.translator.batching import in_order, plan_batches, windows
from jointnmt.translator.loading import load_run
from jointnmt.translator.parts import Line, Part, Preparation, pair_lines
from jointnmt.translator.reading import Reading, read
from jointnmt.translator.results import Aligned, Candidate, Score, Translation

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Precision = Literal["float32", "bfloat16", "float16", "int8"]
OnLong = Literal["error", "split"]

CELLS = {"cpu": 50_000, "cuda": 1_000_000}
"""Most cells of a batch by kind of device, the hypotheses of a beam counted apart, at the greatest length allowed."""
SCORED_TOKENS = 4096
"""Most tokens scored at once: each has a whole vocabulary of logits."""


@dataclass(frozen=True)
class TranslationOptions:
    """What is wanted of translations, where that is not the best one as the experiment searches it."""

    search: SearchConfig | SamplingConfig | None = None
    """Beam search or sampling; None: as the experiment has it."""
    num_best: int = 1
    """How many translations of each line, or samples."""
    alignments: bool = False
    """Whether to align source and target tokens, which takes a further pass over each translation."""
    gates: bool = False
    """Whether to tell the mean gates of lexical shortcuts, which takes a further pass over each translation."""
    long: OnLong = "error"
    """A line beyond the model's `max_length`: an error, or split at the ends of its sentences. A model without such a
    limit takes any line as it is."""
    seed: int = 0
    """Of the random numbers of sampling."""
    window: int = 1024
    """Lines read ahead, to be sorted by length; 1 translates each line before the next one is read."""

    def __post_init__(self) -> None:
        for name in ("num_best", "window"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if self.seed < 0:
            raise ConfigurationError(f"seed is {self.seed}, but must not be negative.")
        if self.long not in get_args(OnLong):
            raise ConfigurationError(f"long is {self.long!r}, but must be one of {', '.join(get_args(OnLong))}.")


DEFAULTS = TranslationOptions()


class Translator(PretrainedMixin):
    """A trained model with its segmentation, which translates raw text and scores raw translations.

    A line's translation does not depend on the lines that are translated with it. Empty lines stay empty.
    `save_pretrained`, `from_pretrained` and `push_to_hub` keep it as a folder or share it on the Hugging Face Hub.
    """

    def __init__(
        self,
        model: TranslationModel,
        segmentation: Segmentation,
        experiment: Experiment,
        precision: Precision = "float32",
        max_cells: int | None = None,
    ) -> None:
        """Take a model that has been moved to its device.

        Args:
            model: is set to evaluation: no dropout.
            segmentation: the one it was trained with.
            experiment: its configuration.
            precision: of the model's computations; log-probabilities are computed in float32 in any case. int8: the
                weights of linear layers and what they multiply are 8-bit integers, all else is bfloat16; CPU only.
            max_cells: most cells of a batch, padding included, each hypothesis of a beam having its own; None: what
                suits the device.

        Raises:
            ConfigurationError: if there is no such precision, or not on this device.
        """
        if precision not in get_args(Precision):
            raise ConfigurationError(
                f"precision is {precision!r}, but must be one of {', '.join(get_args(Precision))}."
            )
        self.segmentation, self.experiment, self.precision = segmentation, experiment, precision
        self.device = next(model.parameters()).device
        if precision == "int8" and self.device.type != "cpu":
            raise ConfigurationError(f"precision int8 is for the CPU, not for {self.device}. Use bfloat16 or float16.")
        self.trained = self.model = model.eval()  # what is saved and analysed, and what translates
        if precision != "float32":
            self.model = for_decoding(model, precision)
        self.max_cells = max_cells or CELLS.get(self.device.type, CELLS["cpu"])

    @classmethod
    def load(
        cls, run: Path | str, device: str = "auto", precision: Precision = "float32", max_cells: int | None = None
    ) -> Self:
        """The translator of a RUN directory.

        Raises:
            ConfigurationError: if the device is not there, or has no such precision.
            ModelError: if a part of RUN is missing, damaged, or does not go with the others.
        """
        translator = cls(*load_run(Path(run), device), precision, max_cells)
        translator.run = Path(run)
        return translator

    def _save_pretrained(self, save_directory: Path) -> None:
        if self.precision == "int8":
            raise ConfigurationError("A translator in int8 cannot be saved. Load it in float32, which loses nothing.")
        super()._save_pretrained(save_directory)

    def translate(
        self, texts: Iterable[str], options: TranslationOptions = DEFAULTS, prefixes: Iterable[str] | None = None
    ) -> list[str]:
        """The best translation of each text; see `translate_stream`."""
        return [translation.text for translation in self.translate_stream(texts, options, prefixes)]

    def translate_stream(
        self,
        lines: Iterable[str],
        options: TranslationOptions = DEFAULTS,
        prefixes: Iterable[str] | None = None,
        origin: str = "input",
    ) -> Iterator[Translation]:
        """Translate lines as they come, and give back each translation when it and those before it are ready.

        `prefixes`, if given, has a line for each line: what its translation has to begin with (empty: anything).
        `origin` is what error messages call the lines. Translations that reach the greatest length allowed are counted,
        and reported as a warning at the end.

        Raises:
            ConfigurationError: if more best translations are wanted than the beam is wide, or the gates of a model that
                has none.
            DataError: naming the line, if it is longer than the model takes, or its prefix is longer than its
                translation may be; if there are not as many prefixes as lines.
            ModelError: if the model's output is not a number.
        """
        if options.gates and not self.experiment.model.shortcut_places:
            raise ConfigurationError(
                "Gates were asked for, but this model has no lexical shortcuts. Train one with model.shortcuts, or do "
                "without them."
            )
        if options.long == "split" and self.experiment.model.max_length is None:
            logger.warning(
                "Long lines are not split: this model takes any length (model.max_length is null). Split the text."
            )
        lines = _several(lines)
        paired = (
            (Line(number, f"{origin}:{number}", line, "") for number, line in enumerate(lines, start=1))
            if prefixes is None
            else pair_lines(lines, _several(prefixes), origin, "target prefixes")
        )
        total = ended = 0
        for window in windows(paired, options.window):
            for translation in self._translate_window(window, options):
                total += 1
                ended += bool(translation.candidates) and not translation.candidates[0].complete
                yield translation
        if ended:
            logger.warning(
                "%d of %d translations reached the greatest length allowed and were ended there. If they look cut off, "
                "raise the maximum length; if they repeat themselves, the model has not been trained enough.",
                ended,
                total,
            )

    def translate_lines(self, lines: Sequence[Line], options: TranslationOptions = DEFAULTS) -> list[Translation]:
        """Translate lines as one window, for callers that choose what is computed together, such as a server.

        The lines may be of several texts: samples are drawn by the numbers that the lines bring.

        Raises:
            DataError, ModelError: as of `translate_stream`.
        """
        return list(self._translate_window(lines, options))

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[Score]:
        """How probable the model finds each target, given its source; see `score_stream`."""
        return list(self.score_stream(sources, targets))

    def score_stream(
        self, sources: Iterable[str], targets: Iterable[str], origin: str = "input", pieces: bool = False
    ) -> Iterator[Score]:
        """The log-probability of each target given its source, total and of each token.

        Search may build a text out of other pieces than the segmentation cuts it into. With `pieces`, targets are the
        pieces themselves, with spaces between them (`Candidate.tokens` without the end mark): the log-probabilities
        then equal those that search reports.

        Raises:
            DataError: naming the line, if a source is longer than the model takes, or empty when its target is not; if
                there are not as many targets as sources; if a piece is none of the vocabulary's.
            ModelError: if the model's output is not a number.
        """
        preparation = Preparation(self.segmentation, self.experiment.model.max_length, pieces=pieces)
        for window in windows(pair_lines(_several(sources), _several(targets), origin, "targets"), DEFAULTS.window):
            yield from self._score_window(window, preparation.parts(window))

    def align_stream(self, sources: Iterable[str], targets: Iterable[str], origin: str = "input") -> Iterator[Aligned]:
        """How much each token of a source contributes to each token of its given translation.

        Raises:
            DataError: as of `score_stream`.
        """
        preparation = Preparation(self.segmentation, self.experiment.model.max_length)
        for window in windows(pair_lines(_several(sources), _several(targets), origin, "targets"), DEFAULTS.window):
            lines = preparation.parts(window)
            found = self._forced([part for line in lines for part in line], self._read)
            for prepared in lines:
                yield self._aligned(prepared[0], next(found)) if prepared else Aligned((), (), None)

    def _read(self, parts: Sequence[Part]) -> list[Reading]:
        with self._autocast():
            return read(self.model, [(part, part.target) for part in parts])

    def _aligned(self, part: Part, reading: Reading) -> Aligned:
        source, target = self.segmentation.source, self.segmentation.target
        return Aligned(_tokens(source, part.source[:-1]), _tokens(target, part.target), reading.alignment)

    def _translate_window(self, window: Sequence[Line], options: TranslationOptions) -> Iterator[Translation]:
        search = options.search or self.experiment.search
        lines = Preparation(self.segmentation, self.experiment.model.max_length, options.long).parts(window)
        parts = [part for line in lines for part in line]
        limits = [target_limit(len(part.source), search) for part in parts]
        for part, limit in zip(parts, limits, strict=True):
            check_prefix(part.target, limit, part.origin)
            if unk_id in part.target:
                raise DataError(
                    f"{part.origin}: the target prefix holds a character or word that the model has no piece for, and "
                    "cannot write. Change the prefix."
                )
        rows = options.num_best if isinstance(search, SamplingConfig) else search.beam_size
        batches = plan_batches([len(part.source) for part in parts], limits, self.max_cells // rows, self.max_cells)
        compute = partial(self._candidates, options=options)
        found = in_order(batches, lambda batch: in_parts([parts[number] for number in batch], compute, _too_large))
        space = "" if base_language(self.segmentation.target.language) in LANGUAGES_WITHOUT_SPACES else " "
        for line, prepared in zip(window, lines, strict=True):
            # Of the sentences of a split line, the n-th best are put together.
            nth_best = zip(*[next(found) for _ in prepared], strict=False)
            candidates = tuple(Candidate.joined(nth, space, search.penalty) for nth in nth_best)
            tokens = (_tokens(self.segmentation.source, part.source[:-1]) for part in prepared)
            yield Translation(line.source, tuple(token for sentence in tokens for token in sentence), candidates)

    def _candidates(self, parts: Sequence[Part], options: TranslationOptions) -> list[list[Candidate]]:
        """The translations of a batch of sentences."""
        with self._autocast():
            found = self._search(parts, options)
            rows = [(part, each.ids) for part, hypotheses in zip(parts, found, strict=True) for each in hypotheses]
            readings = iter(read(self.model, rows)) if options.alignments or options.gates else repeat(None)
        return [[self._candidate(each, next(readings), options) for each in hypotheses] for hypotheses in found]

    def _search(self, parts: Sequence[Part], options: TranslationOptions) -> list[list[Hypothesis]]:
        source = pad_rows([part.source for part in parts]).to(self.device)
        prefixes = [part.target for part in parts]
        search = options.search or self.experiment.search
        if isinstance(search, SamplingConfig):
            generators = [sentence_generator(options.seed, *part.number) for part in parts]
            return sample(self.model, source, search, generators, prefixes, options.num_best)
        return beam_search(self.model, source, search, prefixes, options.num_best)

    def _candidate(self, hypothesis: Hypothesis, reading: Reading | None, options: TranslationOptions) -> Candidate:
        return Candidate(
            text=self.segmentation.target.decode_ids(list(hypothesis.ids)),
            tokens=_tokens(self.segmentation.target, hypothesis.ids),
            token_log_probabilities=hypothesis.token_log_probabilities,
            score=hypothesis.score,
            complete=hypothesis.complete,
            alignment=reading.alignment if reading and options.alignments else None,
            gates=reading.gates if reading and options.gates else None,
        )

    def _forced(self, parts: Sequence[Part], compute: Callable[[Sequence[Part]], list[Result]]) -> Iterator[Result]:
        """What `compute` makes of each sentence and its given translation, in order, computed in batches."""
        lengths = [len(part.source) for part in parts], [len(part.target) + 1 for part in parts]
        batches = plan_batches(*lengths, self.max_cells, SCORED_TOKENS)
        return in_order(batches, lambda batch: in_parts([parts[number] for number in batch], compute, _too_large))

    def _score_window(self, window: Sequence[Line], lines: Sequence[Sequence[Part]]) -> Iterator[Score]:
        found = self._forced([part for line in lines for part in line], self._rescore)
        for line, prepared in zip(window, lines, strict=True):
            yield self._score(line, prepared[0].target, next(found)) if prepared else Score(line.source, line.target)

    def _rescore(self, parts: Sequence[Part]) -> list[Rescored]:
        batch = Batch.collate([part.source[:-1] for part in parts], [part.target for part in parts])
        with self._autocast():
            return rescore(self.model, batch.to(self.device))

    def _score(self, line: Line, ids: Sequence[int], found: Rescored) -> Score:
        log_probabilities = found.log_probabilities
        score = self.experiment.search.penalty.score(sum(log_probabilities), len(log_probabilities))
        tokens = _tokens(self.segmentation.target, ids)
        return Score(line.source, line.target, tokens, log_probabilities, score, found.first_choices)

    def _autocast(self) -> torch.autocast:
        kind = torch.bfloat16 if self.precision == "int8" else getattr(torch, self.precision)
        return torch.autocast(self.device.type, kind, self.precision != "float32")


def _several(texts: Iterable[str]) -> Iterator[str]:
    """The texts, unless they are a single one, whose letters would be taken for texts, or something is no text."""
    if isinstance(texts, str | bytes):
        raise TypeError(f"a list of texts is needed, not a single one: [{texts!r}]")
    return _each_a_text(texts)


def _each_a_text(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"text {number} of those given is {text!r:.80}, which is no str")
        yield text


def _tokens(segmenter: Segmenter, ids: Sequence[int]) -> tuple[str, ...]:
    """The pieces and the end mark."""
    return (*map(segmenter.piece, ids), EOS)


def _too_large(part: Part) -> DataError:
    return DataError(
        f"{part.origin}: this sentence does not fit in memory, even all by itself. Split it, use a smaller beam, "
        "or more memory."
    )
