"""The translator: raw text in, raw text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, overload

from jointnmt.errors import ConfigurationError, DataError
from jointnmt.runs.loading import check_weights, load_run
from jointnmt.shipped import locate_run
from jointnmt.translator.attention import AttentionTrace, attend
from jointnmt.translator.ensemble import Member, load_members
from jointnmt.translator.given import align_stream, score_lines, score_stream
from jointnmt.translator.inference import Inference
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.precision import PrecisionChoice
from jointnmt.translator.preprocessing import Line
from jointnmt.translator.pretrained import Pretrained
from jointnmt.translator.results import Aligned, ScoredTranslation, Translation
from jointnmt.translator.searching import check_options, translate_stream, translate_window

DEFAULTS = TranslationOptions()


class Translator(Inference, Pretrained):
    """A trained model with its segmentation: translates raw text, and scores and aligns given translations.

    A line's translation does not depend on the other lines of its batch. Empty lines stay empty. `save_pretrained`,
    `from_pretrained` and `push_to_hub` save it as a folder or share it on the Hugging Face Hub.
    """

    @classmethod
    def load(
        cls,
        run: Path | str | Sequence[Path | str],
        device: str = "auto",
        precision: PrecisionChoice = "float32",
        max_cells: int | None = None,
    ) -> Self:
        """Load a RUN directory, or several as an ensemble.

        An ensemble translates by the mean of its members' probabilities. Its search settings are those of the first
        run, and the maximum length of a translation follows from the source length in the first run's pieces.

        Raises:
            ConfigurationError: if the device does not exist, or does not support the precision; if several runs
                differ in their languages or target vocabularies.
            ModelError: if a part of RUN is missing, damaged, or does not match the others.
        """
        runs = [locate_run(Path(each)) for each in ([run] if isinstance(run, Path | str) else run)]
        if len(runs) == 1:
            translator = cls(*load_run(runs[0], device), precision, max_cells)
            translator.run = runs[0]
            return translator
        model, members = load_members(runs, device)
        return cls(model, members[0].segmentation, members[0].experiment, precision, max_cells, members)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.description()}>"

    def facts(self) -> dict[str, Any]:
        """Everything that determines the output except device and precision, as JSON-compatible values.

        Only for a translator that was loaded from a run or several.
        """
        if self.members:
            return {"members": [member.facts() for member in self.members]}
        assert self.run is not None, "not loaded"
        return Member(self.run, self.segmentation, self.experiment).facts()

    def check_can_be_saved(self) -> None:
        """Check that the model can be saved as a RUN directory.

        Raises:
            ConfigurationError: for an ensemble.
            ModelError: if the model has other weights than one that its configuration describes, such as a wrapper.
        """
        if self.members:
            raise ConfigurationError(
                "An ensemble cannot be saved as one model. Save its runs, or distil it into one (docs/ensembles.md)."
            )
        check_weights(self.trained, self.experiment.model, self.segmentation)

    @overload  # str before what it is one of
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, options: TranslationOptions = ..., prefixes: str | Iterable[str] | None = ..., **changes: Any
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        options: TranslationOptions = ...,
        prefixes: Iterable[str] | None = ...,
        *,
        num_best: int,
        **changes: Any,
    ) -> list[list[str]]: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        options: TranslationOptions = ...,
        prefixes: Iterable[str] | None = ...,
        **changes: Any,
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Iterable[str],
        options: TranslationOptions = DEFAULTS,
        prefixes: str | Iterable[str] | None = None,
        *,
        num_best: int | None = None,
        **changes: Any,
    ) -> str | list[str] | list[list[str]]:
        """Translate a text, or each of several; see `translate_stream`.

        Args:
            texts: one text, or several.
            options: how to translate, without `num_best`.
            prefixes: if given, the target prefix of the text, or of each text (empty: none).
            num_best: if given, several texts return a list of so many translations for each (none for an empty text).
            changes: of `options` or of the search: `beam_size=3`, `sample=True, temperature=0.8, seed=1`,
                `on_invalid="skip"`; see `TranslationOptions.changed`.

        Raises:
            TypeError: if there is no such option, or `num_best` is given for one text or in `options`.
        """
        if not isinstance(options, TranslationOptions):
            raise TypeError(f"options are {options!r}, but must be TranslationOptions; single ones are keywords.")
        if num_best is None and options.num_best > 1:
            raise TypeError(f"give num_best={options.num_best} to translate itself, or use translations.")
        if isinstance(texts, str):
            if num_best is not None:
                raise TypeError("num_best is for several texts: give a list, perhaps of one.")
            prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
            return self.translate([texts], options, prefixes, **changes)[0]
        changed = options.changed({"num_best": num_best, **changes}, self.search)
        found = self.translate_stream(texts, changed, prefixes)
        if num_best is None:
            return [translation.text for translation in found]
        return [[each.text for each in translation.candidates] for translation in found]

    def translations(
        self,
        texts: Iterable[str],
        options: TranslationOptions = DEFAULTS,
        prefixes: Iterable[str] | None = None,
        **changes: Any,
    ) -> list[Translation]:
        """The translations of several texts with scores and tokens; `records` makes a table of them.

        Arguments and errors are those of `translate`, but `num_best` may be given in `options`.
        """
        return list(self.translate_stream(texts, options.changed(changes, self.search), prefixes))

    def attention(self, text: str, translation: str | None = None) -> AttentionTrace:
        """The attention weights of a text and its translation (None: the model's own), which a notebook draws.

        Raises:
            ConfigurationError, DataError: as in `attend`.
        """
        return attend(self, text, translation, "text")

    def translate_stream(
        self,
        lines: Iterable[str | DataError],
        options: TranslationOptions = DEFAULTS,
        prefixes: Iterable[str | DataError] | None = None,
        origin: str = "input",
        done: int = 0,
    ) -> Iterator[Translation]:
        """Translate a stream of lines; yields each translation as soon as it and all before it are computed.

        A warning at the end counts the translations that were cut at the maximum length, and the lines that were
        skipped.

        Args:
            lines: text, or an error in place of a line that cannot be read.
            options: how to translate.
            prefixes: if given, a target prefix for each line (empty: none).
            origin: names the lines in error messages.
            done: number of lines that are already translated. They are read, but their translations are left out;
                the others are translated as they would be without `done`.

        Raises:
            ConfigurationError: if `num_best` exceeds the beam size, or gates are asked of a model without any, or the
                search exceeds `options.limits`.
            DataError: after the translations of the lines before, naming the line, if it is not text, too long for the
                model or the limits, or its prefix is too long for the translation or cannot be segmented; if the
                numbers of prefixes and lines differ.
            ModelError: if the model's output is not a number.
        """
        check_options(self, options)  # now, and not when the first translation is asked for
        return translate_stream(self, lines, options, prefixes, origin, done)

    def translate_lines(self, lines: Sequence[Line], options: TranslationOptions = DEFAULTS) -> list[Translation]:
        """Translate lines as one window, for callers that choose what is computed together, such as a server.

        The lines may come from several texts: samples depend on the number in each line.

        Raises:
            DataError, ModelError: as in `translate_stream`.
        """
        return list(translate_window(self, lines, options))

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[ScoredTranslation]:
        """The log-probability of each target given its source; see `score_stream`."""
        return list(self.score_stream(sources, targets))

    def score_stream(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        origin: str = "input",
        pieces: bool = False,
        alternatives: int = 0,
        done: int = 0,
    ) -> Iterator[ScoredTranslation]:
        """The log-probability of each target given its source, in total and token by token, in nats.

        Args:
            sources: text.
            targets: a translation of each.
            origin: names the lines in error messages.
            pieces: whether targets are pieces separated by spaces (`Candidate.tokens` without the end mark). Search may
                generate other pieces for a text than its segmentation; with its pieces, log-probabilities equal those
                of search except for rounding (in bfloat16 and int8 up to half a nat a sentence).
            alternatives: number of likeliest pieces to return for each position of a target.
            done: number of pairs that are already scored, as in `translate_stream`.

        Raises:
            ConfigurationError: if `alternatives` is negative.
            DataError: naming the line, if a source is too long for the model, or empty while its target is not; if the
                numbers of sources and targets differ; if a piece is not in the vocabulary.
            ModelError: if the model's output is not a number.
        """
        if alternatives < 0:
            raise ConfigurationError(f"alternatives is {alternatives}, but must not be negative.")
        return score_stream(self, sources, targets, origin, pieces, alternatives, done)

    def score_lines(
        self, lines: Sequence[Line], pieces: bool = False, alternatives: int = 0
    ) -> list[ScoredTranslation]:
        """Score lines with their targets as one window, as `translate_lines` translates them.

        Raises:
            DataError, ModelError: as in `score_stream`.
        """
        return list(score_lines(self, lines, pieces, alternatives))

    def align_stream(self, sources: Iterable[str], targets: Iterable[str], origin: str = "input") -> Iterator[Aligned]:
        """Soft alignments of sources and their given translations.

        Raises:
            DataError: as in `score_stream`.
        """
        return align_stream(self, sources, targets, origin)
