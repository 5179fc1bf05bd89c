"""Results of one run for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jointnmt.analysis.attention import Panel, View, attention_panels
from jointnmt.analysis.parameters import Parameters, count_parameters
from jointnmt.experiment import Experiment
from jointnmt.report.curves import LearningCurves, read_learning_curves
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import RunOutputs, run_outputs, training_counts
from jointnmt.testset.records import ProgressCallback
from jointnmt.translator import Translator, attend


@dataclass(frozen=True)
class ReportedSystem:
    """A run with everything that the report shows about it."""

    run: Path
    experiment: Experiment
    vocabularies: tuple[int, int]
    """Vocabulary sizes of source and target."""
    parameters: Parameters
    learning: LearningCurves
    outputs: RunOutputs
    counts: Sequence[int] | None
    """Counts of target pieces in the training text; None if the text was not found, or has changed."""
    attention: Mapping[int, Sequence[Panel]]
    """Panels of some lines, by line number from 0; none if source or translation is empty."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.outputs.name


def read_system(
    translator: Translator, run: Path, eval_set: EvalSet, attention_lines: Sequence[int], progress: ProgressCallback
) -> ReportedSystem:
    """Compute the results of a run. Errors are those of `run_outputs`; a missing training text is a warning."""
    sizes = tuple(side.vocabulary_size for side in (translator.segmentation.source, translator.segmentation.target))
    outputs = run_outputs(translator, run, eval_set, progress)
    return ReportedSystem(
        run=run,
        experiment=translator.experiment,
        vocabularies=(sizes[0], sizes[1]),
        parameters=count_parameters(translator.experiment.model, *sizes),
        learning=read_learning_curves(run, outputs.name),
        outputs=outputs,
        counts=training_counts(translator, run),
        attention={
            line: _panels(translator, eval_set.sources[line], outputs.translations[line]) for line in attention_lines
        },
    )


def _panels(translator: Translator, source: str, translation: str) -> list[Panel]:
    """The alignment, and the self-attention of the last piece of either side (Li et al. 2020, Figure 5)."""
    if not source.strip() or not translation.strip():
        return []
    trace = attend(translator, source, translation)
    last = View(source=len(trace.source_pieces) - 1, target=len(trace.target_pieces))
    return attention_panels(trace.attn_weights, trace.source_pieces, trace.target_pieces, last)
