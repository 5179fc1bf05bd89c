"""Quality against cost: BLEU of short trainings on the validation text over the time of training and translating."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from jointnmt.analysis.figures import COLOURS, MARKERS
from jointnmt.errors import DataError
from jointnmt.evaluation.scores import corpus_metrics
from jointnmt.evaluation.significance import resample
from jointnmt.extras import extra
from results.layout import COSTS, CorpusSettings
from results.trials import Trial

with extra("report"):
    from matplotlib.figure import Figure

TASKS = ("training", "translating")


@dataclass(frozen=True)
class Cost:
    """A trial's quality and cost."""

    name: str
    bleu: float
    """BLEU at its end."""
    half_width: float | None
    """Half of the 95% bootstrap interval over sentences; None if its translations were not kept."""
    training: float
    """Time of equally many updates, relative to the first trial."""
    translating: float
    """Time of the same text, relative to the first trial."""


def read_costs(
    corpus: Path, settings: CorpusSettings, trials: Sequence[Trial], references: Sequence[str]
) -> Iterator[Cost]:
    """Costs of the trials in `settings.costs`, if measured; `references` are those of the validation text.

    Raises:
        DataError: if one of them is not kept, or not measured.
    """
    file, kept = corpus / COSTS, {trial.key: trial for trial in trials}
    if not file.is_file():
        return
    measured = json.loads(file.read_text(encoding="utf-8"))["systems"]
    for key, name in settings.costs.items():
        if key not in kept:
            raise DataError(f"{corpus}: costs names {key}, which is not kept there. Collect it, or take it out.")
        if any(key not in measured[task] for task in TASKS):
            raise DataError(f"{file}: lacks {key}, which costs names. Measure it with the others, or take it out.")
        training, translating = (measured[task][key]["ratio"] for task in TASKS)
        half_width = _half_width(kept[key], settings, references)
        yield Cost(name, kept[key].curves.bleu[-1][1], half_width, training, translating)


def _half_width(trial: Trial, settings: CorpusSettings, references: Sequence[str]) -> float | None:
    """Half of the 95% interval over sentences, if the translations are kept."""
    if trial.translations is None:
        return None
    measures = corpus_metrics(settings.target_language, ("bleu",))
    (scored,) = resample({"": trial.translations}, references, measures)
    return scored.comparison().systems[0].half_width


def costs_figure(costs: Sequence[Cost]) -> Figure:
    """Figure of BLEU over the time of training, and over that of translating."""
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, task in zip(panels, TASKS, strict=True):
        for cost, colour, marker in zip(costs, cycle(COLOURS), cycle(MARKERS), strict=False):
            style = {"color": colour, "marker": marker, "capsize": 3, "linestyle": ""}
            axes.errorbar(getattr(cost, task), cost.bleu, yerr=cost.half_width or 0, **style, label=cost.name)
        axes.set_xlabel(f"time of {task}, {costs[0].name} = 1")
        axes.margins(0.1)
        axes.set_xlim(left=0)
        axes.grid(color="0.85", linewidth=0.8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_ylabel("BLEU of the validation text")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
