"""Several models on one sentence: the translation by each, and its scores of the others' translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jointnmt.errors import ConfigurationError, DataError
from jointnmt.text.invisible import is_blank
from jointnmt.text.languages import base_language
from jointnmt.translator.results import ScoredTranslation
from jointnmt.translator.translator import Translator


@dataclass(frozen=True)
class ModelComparison:
    """Translations of a sentence by several models, and given ones if any, each scored by every model."""

    source: str
    texts: tuple[str, ...]
    """Distinct translations: the models' in the order of the models, then the given ones."""
    by: tuple[tuple[str, ...], ...]
    """For each text, the models that translate the source so."""
    scores: Mapping[str, tuple[ScoredTranslation, ...]]
    """For each model, its score of each text. The text is segmented again, so that all models score the same text; the
    pieces may differ from those that search found."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {
            "source": self.source,
            "models": list(self.scores),
            "texts": [{"text": text, "by": list(by)} for text, by in zip(self.texts, self.by, strict=True)],
            "scores": {name: [each.plain() for each in scores] for name, scores in self.scores.items()},
        }


def compare(translators: Mapping[str, Translator], source: str, targets: Sequence[str] = ()) -> ModelComparison:
    """Translate a sentence by all models, and score each translation, and `targets`, by each model.

    Raises:
        ConfigurationError: if the models have different language pairs, regions aside.
        DataError: if the source is empty, or too long for one of the models.
    """
    if isinstance(targets, str):
        raise TypeError("targets should be a list of texts, not a single one")
    if is_blank(source):
        raise DataError("The source is empty: there is nothing to compare.")
    pairs = {tuple(map(base_language, translator.languages)) for translator in translators.values()}
    if len(pairs) > 1:
        named = " and ".join(sorted("-".join(pair) for pair in pairs))
        raise ConfigurationError(f"Models of different language pairs ({named}) cannot be compared.")
    by: dict[str, list[str]] = {}
    for name, translator in translators.items():
        by.setdefault(translator.translate([source])[0], []).append(name)
    for target in targets:
        by.setdefault(target, [])
    scores = {name: tuple(translator.score([source] * len(by), list(by))) for name, translator in translators.items()}
    return ModelComparison(source, tuple(by), tuple(map(tuple, by.values())), scores)
