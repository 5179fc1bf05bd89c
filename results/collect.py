"""Adding a training run to `results/`: its log, its recipe, and its translations."""

from __future__ import annotations

from pathlib import Path

from benchmarks.machine import commit

from jointnmt.analysis.parameters import count_parameters
from jointnmt.errors import ConfigurationError
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.folder import new_folder
from jointnmt.testset.outputs import RunOutputs, run_outputs
from jointnmt.testset.records import ProgressCallback
from jointnmt.translator import Translator
from results.layout import TEXTS, CollectedMeasures, CorpusSettings, copy_records, likelihood_file, seed_folder


def collect(run: Path, system: Path, device: str, progress: ProgressCallback, root: Path = Path()) -> Path:
    """Translate the texts of the corpus by a run, and write all files that are kept of it; returns the folder.

    Args:
        run: a RUN directory; its seed names the folder.
        system: `results/CORPUS/SYSTEM`, a system that `results.yaml` names.
        device: device of translation.
        progress: called with lines that are done.
        root: root of the repository.

    Raises:
        ConfigurationError: if the system has no name, the languages differ, or the seed is already collected.
        DataError: if a text does not fit the run.
        ModelError: if the run is incomplete.
    """
    settings = CorpusSettings.load(system.parent)
    if system.name not in settings.systems:
        known = ", ".join(settings.systems)
        raise ConfigurationError(f"{system}: results.yaml names no such system; it names {known}. Add it there.")
    translator = Translator.load(run, device)
    languages = settings.source_language, settings.target_language
    if translator.segmentation.languages != languages:
        other = "-".join(translator.segmentation.languages)
        raise ConfigurationError(f"{run}: translates {other}, but {system.parent} is {'-'.join(languages)}.")
    folder = seed_folder(system, translator.experiment.seed)
    with new_folder(folder) as unfinished:
        outputs = {name: run_outputs(translator, run, settings.eval_set(name, root), progress) for name in TEXTS}
        _write(unfinished, run, translator, outputs)
    return folder


def _write(folder: Path, run: Path, translator: Translator, outputs: dict[str, RunOutputs]) -> None:
    copy_records(run, folder)
    segmentation = translator.segmentation
    for name, found in outputs.items():
        lines = "".join(f"{text}\n" for text in found.translations)
        (folder / f"{name}.{segmentation.target.language}").write_text(lines, encoding="utf-8")
        likelihood = found.likelihood
        numbers = zip(likelihood.log_probabilities, likelihood.pieces, strict=True)
        likelihood_file(folder, name).write_text("".join(f"{each:.4f}\t{count}\n" for each, count in numbers))
    sizes = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    counts = count_parameters(translator.experiment.model, *sizes)
    CollectedMeasures(
        weights=RunDirectory(run).model_digest(),
        segmentation=segmentation.fingerprint(),
        lowercase=segmentation.config.lowercase,
        parameters=sum(counts.rest.values()),
        embeddings=sum(counts.embeddings.values()),
        perplexity={name: found.perplexity for name, found in outputs.items()},
        cut={name: found.cut for name, found in outputs.items()},
        commit=commit(),
    ).write(folder)
