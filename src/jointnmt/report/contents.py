"""Contents of the report: scores, comparisons, analyses and sample translations of several systems."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jointnmt.analysis.corpus import Analysis
from jointnmt.evaluation.scores import METRICS, Scores, corpus_metrics, scores_by
from jointnmt.evaluation.significance import Comparison, likelihood_bootstrap, paired_bootstrap
from jointnmt.report.analyses import analyses
from jointnmt.report.samples import Sample, different_lines, sample, spread_lines
from jointnmt.report.systems import ReportedSystem
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import ignores_case

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportContents:
    """Everything that the page shows, with the systems in the same order throughout."""

    eval_set: EvalSet
    systems: Sequence[ReportedSystem]
    scores: Sequence[Scores]
    comparisons: Sequence[Comparison]
    """Comparisons by each metric, and by `nll` for systems with the first one's pieces; none for a single system."""
    analyses: Sequence[Analysis]
    samples: Mapping[str, Sequence[Sample]]
    """Samples by the way they were chosen."""

    def plain(self) -> dict[str, Any]:
        """The numbers as JSON-compatible values."""
        systems = [
            {
                "name": system.name,
                "run": str(system.run),
                "model": system.experiment.model.plain(),
                "vocabularies": system.vocabularies,
                "parameters": system.parameters.plain(),
                "learning": asdict(system.learning),
                "scores": scores.plain(),
                "perplexity": system.outputs.perplexity,
            }
            for system, scores in zip(self.systems, self.scores, strict=True)
        ]
        return {
            "source": self.eval_set.source_name,
            "reference": self.eval_set.reference_name,
            "systems": systems,
            "comparisons": [asdict(each) for each in self.comparisons],
            "analyses": [asdict(each) for each in self.analyses],
            "samples": {title: [asdict(each) for each in samples] for title, samples in self.samples.items()},
            "attention": [
                {"system": system.name, "line": line + 1, "panels": [panel.plain() for panel in panels]}
                for system in self.systems
                for line, panels in system.attention.items()
            ],
        }


def collect_contents(systems: Sequence[ReportedSystem], eval_set: EvalSet) -> ReportContents:
    """Score, compare and analyse the systems, and choose sample sentences."""
    outputs = [system.outputs for system in systems]
    language = outputs[0].languages[1]
    logger.info("scoring %d systems by %s", len(systems), ", ".join(METRICS))
    lowercase = ignores_case(outputs)
    measures = corpus_metrics(language, lowercase=lowercase)
    scores = [scores_by(measures, each.translations, eval_set.references) for each in outputs]
    comparisons = []
    if len(systems) > 1:
        logger.info("comparing %d systems on resampled test sets", len(systems))
        translations = {each.name: each.translations for each in outputs}
        comparisons = paired_bootstrap(translations, eval_set.references, measures)
        comparisons += likelihood_bootstrap({each.name: [each.likelihood] for each in outputs})
    counts = {system.name: system.counts for system in systems if system.counts is not None}
    spread = spread_lines(len(eval_set.sources))
    different = [line for line in different_lines(outputs, eval_set, len(spread) * 2) if line not in spread]
    samples = {
        "Lines evenly spread over the text": [sample(outputs, eval_set, line) for line in spread],
        "Lines on which the systems differ most": [
            sample(outputs, eval_set, line) for line in different[: len(spread)]
        ],
    }
    return ReportContents(eval_set, systems, scores, comparisons, analyses(outputs, eval_set, counts), samples)
