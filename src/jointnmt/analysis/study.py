"""The lexical study of a run: trains its probes, and measures its states and gates on held-out text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jointnmt.analysis.fonts import any_script, save_figure
from jointnmt.analysis.held_out import TaggedText, select_text
from jointnmt.analysis.lexical import LayerMeasurement, measure_gates, measure_states
from jointnmt.analysis.lexical_figures import topic_csv, topic_figure, topics
from jointnmt.analysis.probes import ProbeConfig
from jointnmt.analysis.probing import ProbeTask, ShowProgress, train_probes
from jointnmt.analysis.states import Side
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.training_text import open_text_of_run
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LexicalStudy:
    """The measurements of one run."""

    measurements: list[LayerMeasurement]
    facts: Mapping[str, Any]
    """Run, settings and amount of text of the measurements, as JSON-compatible values."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {**self.facts, "measured": [asdict(each) for each in self.measurements]}


def study_run(
    run: Path, translator: Translator, text: TaggedText, config: ProbeConfig, folder: Path, show: ShowProgress
) -> LexicalStudy:
    """Train the probes of a run, or resume their training, and measure its states and gates.

    Args:
        run: the RUN directory.
        translator: the run's translator; its training text trains the probes, its validation text stops them early.
        text: the held-out text to measure on.
        config: settings of the probes.
        folder: folder of the probes' files.
        show: shows the progress of each part.

    Raises:
        ConfigurationError: if the folder holds probes of another study.
        DataError: if the training or validation text is missing, or has changed since the training; and as in
            `select_text`.
    """
    data, segmentation, model = translator.experiment.data, translator.segmentation, translator.only_model()
    train = open_text_of_run(run, data, segmentation)
    stop = open_text_of_run(run, data, segmentation, "validation")
    held_out = select_text(text, translator, [train, stop])
    facts = {"model": RunDirectory(run).model_digest(), "train": train.fingerprint, "stop": stop.fingerprint}
    width = translator.experiment.model.embed_dim
    sizes: dict[Side, tuple[int, int]] = {
        "source": (width, segmentation.source.vocabulary_size),
        "target": (width, segmentation.target.vocabulary_size),
    }
    task = ProbeTask(model, sizes, train, stop, config, facts, segmentation.source.tag_ids)
    if not config.max_rounds and any(folder.glob("*.safetensors")):
        raise ConfigurationError(
            f"{folder}: holds trained probes, and max_rounds is 0. Choose another folder for --out."
        )
    trainings = train_probes(task, folder, show) if config.max_rounds else []
    probes = {training.state: training.best_probe() for training in trainings}
    sentences = len(held_out.text.pairs)
    with show("measuring states", sentences) as advance:
        measurements = [*measure_states(model, held_out.text, probes, advance)]
    if model.has_shortcuts:
        with show("measuring gates", sentences) as advance:
            measurements += measure_gates(model, held_out.text, advance)
    if text.tags and not (probes or model.has_shortcuts):
        logger.warning("%s: tags have no effect, as neither probes nor gates are measured", run)
    rounds = {
        str(each.state): {"rounds": each.rounds, "best_round": each.best_round, "stopping_accuracies": each.accuracies}
        for each in trainings
    }
    held = {
        "sentences": sentences,
        "left_out_as_known": held_out.known,
        "left_out_as_half_known": held_out.half_known,
        "left_out_as_empty": held_out.empty,
    }
    settings = {"settings": config.plain(), "held_out": held, "probes": rounds}
    return LexicalStudy(measurements, {"run": str(run), **facts, **settings})


def write_studies(studies: Mapping[str, LexicalStudy], out: Path) -> None:
    """Write figures (.png) with their numbers (.csv) of all runs together, and `probe.json`."""
    out.mkdir(parents=True, exist_ok=True)
    found = list(topics({name: study.measurements for name, study in studies.items()}))
    for topic in found:
        write_text(out / f"{topic.name}.csv", topic_csv(topic))
        with any_script():
            save_figure(topic_figure(topic), out / f"{topic.name}.png", dpi=150)
    values = json.dumps({name: study.plain() for name, study in studies.items()}, ensure_ascii=False, indent=1)
    write_text(out / "probe.json", values + "\n")
    logger.info("wrote %d figures with their numbers to %s", len(found), out)
