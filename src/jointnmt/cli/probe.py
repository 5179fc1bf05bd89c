"""`jointnmt probe`: how much of the words is left in each layer?"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from jointnmt.analysis.lexical import Measured, measure_gates, measure_states
from jointnmt.analysis.lexical_figures import Topic, topic_csv, topic_figure, topics
from jointnmt.analysis.probes import ProbeConfig
from jointnmt.analysis.probing import ProbeTask, train_probes
from jointnmt.analysis.states import Side
from jointnmt.cli.console import stderr, stdout
from jointnmt.cli.probe_text import TaggedText, read_text, sort_text
from jointnmt.config import override
from jointnmt.data.store import build_store
from jointnmt.testset.measuring import check_runs
from jointnmt.testset.records import run_name
from jointnmt.translator import Translator

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_REPORTS = 30.0


def probe(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The runs to look into.")],
    source: Annotated[Path, typer.Option(help="File of held-out source sentences (plain, .gz, .xz).")],
    target: Annotated[Path, typer.Option(help="File of their translations, line by line.")],
    out: Annotated[Path, typer.Option(help="Folder for probes, figures (.png), numbers (.csv), probe.json.")],
    source_tags: Annotated[
        Path | None, typer.Option(help="Part-of-speech tags of the source: one for each word, line by line.")
    ] = None,
    target_tags: Annotated[Path | None, typer.Option(help="Likewise of the target.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting of the probes, as rate=0.001. Repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Measure how much lexical information the layers of models hold, by probes (Emelin et al. 2019).

    A probe learns to recover the piece from a layer's hidden state of it. It learns from the run's training text, stops
    by its validation text, and is measured on --source and --target, from which pairs of those two texts are left out.
    Accuracy is given by layer, training frequency and, with tags, class of the word; besides, the cosine similarity
    between embeddings and layers, and gates of lexical shortcuts with their sparseness. Interrupted, the same command
    goes on after the last whole round.
    """
    config = ProbeConfig.parse(override(ProbeConfig().plain(), settings or []), origin="--set")
    check_runs(runs)
    tags: dict[Side, Path | None] = {"source": source_tags, "target": target_tags}
    given = {side: path for side, path in tags.items() if path is not None}
    text = read_text({"source": source, "target": target}, given)
    measured: dict[str, list[Measured]] = {}
    facts: dict[str, Any] = {}
    for name, run in ((run_name(run), run) for run in runs):
        measured[name], facts[name] = _look(run, Translator.load(run, device), text, config, out / name)
        _write(measured, facts, out)
    if as_json:
        typer.echo(json.dumps(_plain(measured, facts), ensure_ascii=False))
        return
    for topic in topics(measured):
        if topic.grouping == "all":
            stdout().print(_table(topic))


def _look(
    run: Path, translator: Translator, text: TaggedText, config: ProbeConfig, folder: Path
) -> tuple[list[Measured], dict[str, Any]]:
    """What is measured of a run, and what it was measured with; its probes are in `folder`."""
    data, segmentation, model = translator.experiment.data, translator.segmentation, translator.trained
    train, stop = build_store(data, segmentation, "train"), build_store(data, segmentation, "validation")
    held_out = sort_text(text, translator, [train, stop])
    with (run / "model.safetensors").open("rb") as weights:
        model_digest = hashlib.file_digest(weights, "sha256").hexdigest()
    facts = {"model": model_digest, "train": train.fingerprint, "stop": stop.fingerprint}
    width = translator.experiment.model.embed_dim
    sizes: dict[Side, tuple[int, int]] = {
        "source": (width, segmentation.source.vocabulary_size),
        "target": (width, segmentation.target.vocabulary_size),
    }
    task = ProbeTask(model, sizes, train, stop, config, facts)
    trainings = train_probes(task, folder, _shown) if config.max_rounds else []
    probes = {training.state: training.best_probe() for training in trainings}
    sentences = len(held_out.text.pairs)
    with _shown("measuring states", sentences) as advance:
        numbers = [*measure_states(model, held_out.text, probes, advance)]
    if model.has_shortcuts:
        with _shown("measuring gates", sentences) as advance:
            numbers += measure_gates(model, held_out.text, advance)
    rounds = {
        str(each.state): {"rounds": each.rounds, "best_round": each.best_round, "stopping_accuracies": each.accuracies}
        for each in trainings
    }
    held = {"sentences": sentences, "left_out_as_known": held_out.known, "left_out_as_empty": held_out.empty}
    return numbers, {"run": str(run), **facts, "settings": config.plain(), "held_out": held, "probes": rounds}


@contextmanager
def _shown(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; elsewhere a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = stderr().is_terminal and logger.isEnabledFor(logging.INFO)
    done, told = 0, time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=stderr(), disable=not shown, transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(more: int) -> None:
            nonlocal done, told
            done += more
            bar.update(task, completed=done)
            if not shown and time.monotonic() - told > SECONDS_BETWEEN_REPORTS:
                told = time.monotonic()
                logger.info("%s: %d of %d sentences", what, done, total)

        yield advance


def _plain(measured: Mapping[str, Sequence[Measured]], facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**facts[name], "measured": [asdict(each) for each in numbers]} for name, numbers in measured.items()}


def _write(measured: Mapping[str, Sequence[Measured]], facts: Mapping[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for topic in (found := list(topics(measured))):
        (out / f"{topic.name}.csv").write_text(topic_csv(topic), encoding="utf-8")
        topic_figure(topic).savefig(out / f"{topic.name}.png", dpi=150)
    values = json.dumps(_plain(measured, facts), ensure_ascii=False, indent=1)
    (out / "probe.json").write_text(values + "\n", encoding="utf-8")
    logger.info("%d figures with their numbers are in %s", len(found), out)


def _table(topic: Topic) -> Table:
    """Layers by systems and stacks."""
    table = Table(title=topic.title, caption="95% intervals by bootstrap")
    for heading in ("system", "stack", "layer"):
        table.add_column(heading)
    for heading in (f"n ({topic.unit})", topic.measure, "interval"):
        table.add_column(heading, justify="right")
    for (system, stack), layers in topic.stacks.items():
        for layer, (each, *_) in layers.items():
            numbers = ("" if x is None else f"{x:.3f}" for x in (each.value, each.low, each.high))
            value, low, high = numbers
            table.add_row(system, stack, layer, f"{each.size:,}", value, f"{low} to {high}" if low else "")
    return table
