"""A run as a folder to share: compact weights, and a card with their scores on test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jointnmt.evaluation.scores import Scores, corpus_scores
from jointnmt.runs.folder import new_folder
from jointnmt.runs.weights import StoredPrecision
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import run_outputs
from jointnmt.testset.records import ProgressCallback
from jointnmt.translator import Translator

CARD_METRICS = ("bleu", "chrf", "ter")


@dataclass(frozen=True)
class ShareOptions:
    """How a run is shared, and what its card states."""

    weights: StoredPrecision = "float16"
    card: Mapping[str, str] = field(default_factory=dict)
    """Arguments of `HubFolder.generate_model_card`, such as `licence`."""
    tests: Mapping[str, EvalSet] = field(default_factory=dict)
    """Test sets to measure the stored weights on, by their names in the card."""
    device: str = "auto"


def share_run(run: Path, folder: Path, options: ShareOptions, progress: ProgressCallback) -> dict[str, Scores]:
    """Save a run as a folder, measure the saved model, and state the scores in its card; returns them.

    The folder gets its name when it is complete.

    Raises:
        ConfigurationError: if the folder exists and is not empty; if the precision is too narrow.
        DataError: if a test set does not fit the run.
        ModelError: if the run is incomplete.
    """
    from jointnmt.hub import HubFolder  # after the packages of scores, whose extra has those of the Hub, too

    with new_folder(folder) as unfinished:
        Translator.load(run, options.device).save_pretrained(unfinished, weights=options.weights)
        saved = Translator.load(unfinished, options.device)
        scores = {
            name: _measured(saved, unfinished, test, lambda _, *counts: progress(run.name, *counts))
            for name, test in options.tests.items()
        }
        shown = folder.resolve().name if folder.is_absolute() or not folder.name else folder.as_posix()
        card: dict[str, Any] = {"folder": shown, "weights": options.weights, "scores": scores, **options.card}
        HubFolder(saved).generate_model_card(**card).save(unfinished / "README.md")
    return scores


def _measured(translator: Translator, run: Path, test: EvalSet, progress: ProgressCallback) -> Scores:
    outputs = run_outputs(translator, run, test, progress)
    lowercase = translator.segmentation.config.lowercase
    language = outputs.languages[1]
    return corpus_scores(outputs.translations, test.references, language, CARD_METRICS, lowercase=lowercase)
