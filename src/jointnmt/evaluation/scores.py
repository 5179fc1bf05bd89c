"""Corpus scores of translations by sacrebleu, each with its signature."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from jointnmt.errors import DataError, MissingPackageError
from jointnmt.extras import extra
from jointnmt.text.languages import base_language
from jointnmt.text.moses import Moses, PunctuationNormalizer

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Signature
    from sacrebleu.metrics.bleu import BLEU

    from jointnmt.evaluation.resampling import Numbers

METRICS = ("bleu", "chrf", "ter", "multi_bleu")
"""Keys of the usual metrics, in the order of tables; `multi_bleu` is the papers' tokenised, lower-cased BLEU."""

ALL_METRICS = (*METRICS, "compound_bleu")
"""`METRICS` and `compound_bleu`, the tokenised BLEU of WMT14 of Vaswani et al. 2017 and many later papers: cased, with
words split at hyphens. It is higher than the others, and comparable with such numbers alone."""

TITLES = {
    "bleu": "BLEU",
    "chrf": "chrF2",
    "ter": "TER",
    "multi_bleu": "BLEU (tokenised, lower-cased)",
    "compound_bleu": "BLEU (tokenised, compounds split)",
    "nll": "nll",
}

HYPHEN = re.compile(r"(\S)-(\S)")

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per sentence, or several lists of them, each parallel to the sentences; an empty text in any list but
the first means no reference."""


def as_several(texts: Sequence[str] | Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Lists of texts; a single list of texts is wrapped in one."""
    return [texts] if not texts or isinstance(texts[0], str) else texts  # type: ignore[list-item, return-value]


@dataclass(frozen=True)
class MetricScore:
    """The value of one metric over a corpus (0 to 100; TER may be above), and its signature."""

    value: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """Result of `corpus_scores`; metrics that were not asked for are None."""

    sentences: int
    hypothesis_tokens: int
    """Hypothesis tokens, counted by BLEU's tokeniser for the language."""
    reference_tokens: int
    bleu: MetricScore
    chrf: MetricScore | None = None
    ter: MetricScore | None = None
    multi_bleu: MetricScore | None = None
    compound_bleu: MetricScore | None = None

    @property
    def length_ratio(self) -> float:
        """Hypothesis tokens over reference tokens; 0 if the references are empty."""
        return self.hypothesis_tokens / self.reference_tokens if self.reference_tokens else 0.0

    def plain(self) -> dict[str, Any]:
        """The scores as JSON-compatible values."""
        return {**asdict(self), "length_ratio": self.length_ratio}


@dataclass(frozen=True)
class CorpusMetric:
    """A sacrebleu metric for one language, with the preprocessing of its texts."""

    metric: Metric
    language: str
    moses: Moses | None = None
    """Tokeniser applied before the metric; None: none."""
    punctuation: PunctuationNormalizer | None = None
    """Replaces Unicode punctuation before the tokeniser; a hyphen inside a word is then a token by itself. None: no."""
    _known: dict[tuple[str, ...], Sequence[float]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cached statistics by hypothesis and references, as systems and subsets of a text have many in common."""

    def prepare(self, texts: Sequence[str]) -> list[str]:
        """The texts, tokenised, and with punctuation replaced and split at hyphens if the metric needs it."""
        plain = texts if self.punctuation is None else map(self.punctuation.replace_unicode, texts)
        tokenized = list(plain) if self.moses is None else [self.moses.tokenize(text) for text in plain]
        return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", text) for text in tokenized] if self.punctuation else tokenized

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Numbers:
        """Sufficient statistics of each sentence, `[sentences, counts]`; the score is a function of their sum."""
        import numpy as np  # of an extra, which reading commands' help needs nothing of

        rows = list(zip(hypotheses, *references, strict=True))
        if new := list(dict.fromkeys(row for row in rows if row not in self._known)):
            texts, first, *others = map(self.prepare, zip(*new, strict=True))
            more = [[text if text.strip() else None for text in each] for each in others]
            found = self.metric._extract_corpus_statistics(texts, [first, *more])  # type: ignore[list-item]
            self._known.update(zip(new, found, strict=True))
        missing = any(not text.strip() for each in references[1:] for text in each)
        self.metric.num_refs = -1 if missing else len(references)  # for the signature
        return np.array([self._known[row] for row in rows], np.float64)

    def total(self, summed: Numbers) -> Any:
        """sacrebleu's score for the sum of `statistics`."""
        return self.metric._compute_score_from_stats(summed.tolist())

    def of_each(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """The score of each sentence by itself; BLEU counts only n-grams that a sentence is long enough for."""
        alone = copy(self.metric)
        if hasattr(alone, "effective_order"):  # of BLEU
            alone.effective_order = True
        rows = self.statistics(hypotheses, references).tolist()
        return [float(alone._compute_score_from_stats(row).score) for row in rows]

    def describe(self, signature: Signature) -> str:
        """sacrebleu's signature, extended by the preprocessing of the texts."""
        parts = [signature.format()]
        parts += [f"pre:moses-{self.language}-{version('sacremoses')}"] if self.moses else []
        parts += ["pre:unicode-punctuation", "pre:compounds"] if self.punctuation else []
        return "|".join(parts)


def corpus_metrics(
    language: str, metrics: Iterable[str] = METRICS, tokenized: bool = False, lowercase: bool = False
) -> dict[str, CorpusMetric]:
    """The metrics, by their keys in `ALL_METRICS`, for texts in `language`, whose region is ignored.

    `multi_bleu` is what `multi-bleu.perl -lc` computes on Moses-tokenised text, without smoothing; `compound_bleu` is
    what it computes, cased, of texts in which replace-unicode-punctuation.perl has replaced punctuation, and `a-b` is
    `a ##AT##-##AT## b` after tokenisation. Vaswani et al. replace punctuation in translations alone, as their
    references are normalised.
    With `tokenized`, `multi_bleu` and `compound_bleu` do not tokenise the texts again. With `lowercase`, BLEU and chrF
    ignore case; TER and `multi_bleu` always do, `compound_bleu` never. In Chinese and Japanese, which have no spaces
    between words, TER splits characters (tercom's `asian_support`, normalised).

    Raises:
        MissingPackageError: if sacrebleu or BLEU's tokeniser of the language (MeCab for Japanese and Korean) is not
            installed.
    """
    with extra("report"):
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
        from sacrebleu.metrics.ter import TER

    found, language = {}, base_language(language)
    for key in metrics:
        if key == "bleu":
            found[key] = CorpusMetric(_bleu(language, tokenized, lowercase), language)
        elif key == "chrf":
            found[key] = CorpusMetric(CHRF(lowercase=lowercase), language)
        elif key == "ter":
            by_character = language in ("zh", "ja")
            found[key] = CorpusMetric(TER(normalized=by_character, asian_support=by_character), language)
        elif key == "multi_bleu":
            bleu = BLEU(lowercase=True, tokenize="none", smooth_method="none", force=True)
            found[key] = CorpusMetric(bleu, language, None if tokenized else Moses(language))
        elif key == "compound_bleu":
            bleu = BLEU(tokenize="none", smooth_method="none", force=True)
            found[key] = CorpusMetric(
                bleu, language, None if tokenized else Moses(language), PunctuationNormalizer(language)
            )
        else:
            raise ValueError(f"there is no metric {key!r}; choose from {', '.join(ALL_METRICS)}")
    return found


def corpus_scores(
    hypotheses: Sequence[str],
    references: References,
    language: str,
    metrics: Sequence[str] = METRICS,
    tokenized: bool = False,
    lowercase: bool = False,
) -> Scores:
    """Scores of `hypotheses` against one reference each, or several, all as raw text in the target `language`.

    With several references, BLEU counts n-grams of any of them, and uses the closest length; chrF uses the one with the
    best score, TER the one with the fewest edits, over their mean length.

    BLEU is always computed, as its tokeniser counts lengths; `metrics` names the others (TER is slow). For `tokenized`
    and `lowercase` see `corpus_metrics`.

    Raises:
        DataError: if there are no sentences, or the numbers of hypotheses and references differ.
        MissingPackageError: if BLEU's tokeniser of the language is not installed.
    """
    measures = corpus_metrics(language, dict.fromkeys(["bleu", *metrics]), tokenized, lowercase)
    return scores_by(measures, hypotheses, references)


def scores_by(measures: Mapping[str, CorpusMetric], hypotheses: Sequence[str], references: References) -> Scores:
    """Scores by given metrics, including BLEU, whose cached statistics are reused.

    Raises:
        DataError: as in `corpus_scores`.
    """
    sets = as_several(references)
    for each in sets:
        check_parallel(hypotheses, each)
    results = {key: measure.total(measure.statistics(hypotheses, sets).sum(0)) for key, measure in measures.items()}
    scores = {
        key: MetricScore(result.score, measures[key].describe(measures[key].metric.get_signature()))
        for key, result in results.items()
    }
    lengths = int(results["bleu"].sys_len), int(results["bleu"].ref_len)
    return Scores(len(hypotheses), *lengths, scores["bleu"], *(scores.get(key) for key in ALL_METRICS[1:]))


def _bleu(language: str, tokenized: bool, lowercase: bool) -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    try:
        # Without `force`, sacrebleu warns of text that looks tokenised.
        return BLEU(trg_lang=language, lowercase=lowercase, force=tokenized)
    except (ImportError, RuntimeError) as error:
        raise MissingPackageError(
            f"BLEU needs a tokeniser for the target language {language!r} that is not installed: "
            f"pip install 'sacrebleu[{language}]'. (If it is, it is broken: --debug shows how.)"
        ) from error


def check_parallel(
    texts: Sequence[str], references: Sequence[str], name: str = "hypotheses", reference_name: str = "references"
) -> None:
    """Refuse texts that are not parallel line by line; the names are for the message.

    Raises:
        DataError: if there are no references, or the numbers of lines differ.
    """
    if not references:
        raise DataError(f"{reference_name}: there are no sentences to measure.")
    if len(texts) != len(references):
        raise DataError(
            f"{name} and {reference_name} are not parallel: {len(texts)} and {len(references)} lines. Line i of one "
            "must go with line i of the other: check that both are complete."
        )
