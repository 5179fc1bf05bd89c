"""`jointnmt probe`: lexical information in the layers of models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from jointnmt.cli.console import numeric, stdout
from jointnmt.cli.lines import check_output_folder
from jointnmt.cli.options import DeviceOption, JsonOption, ReferenceOption, RunsArgument, SourceOption
from jointnmt.cli.progress import ProgressBars
from jointnmt.config import override
from jointnmt.testset.records import run_name
from jointnmt.translator import Translator

if TYPE_CHECKING:
    from jointnmt.analysis.lexical_figures import Topic
    from jointnmt.analysis.states import Side
    from jointnmt.analysis.study import LexicalStudy


def probe(
    runs: RunsArgument,
    source: SourceOption,
    reference: ReferenceOption,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to write probes, figures (.png), numbers (.csv), probe.json.")
    ],
    source_tags: Annotated[
        Path | None, typer.Option(help="Part-of-speech tags of the source: one per word, line by line.")
    ] = None,
    reference_tags: Annotated[Path | None, typer.Option(help="The same of the reference.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a setting of the probes, such as rate=0.001. Repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Measure how much lexical information the layers of models hold, by probes (Emelin et al. 2019).

    A probe predicts the piece from its hidden state in a layer. It is trained on the run's training text, stopped early
    on its validation text, and measured on --source and --reference, without pairs that occur in those texts. Accuracy
    is given by layer, training frequency and, with tags, word class. The cosine similarity between embeddings and
    layers and the gates of lexical shortcuts with their sparseness are measured too. After an interruption, the same
    command resumes after the last complete round.
    """
    from jointnmt.analysis.held_out import read_text
    from jointnmt.analysis.lexical_figures import topics
    from jointnmt.analysis.probes import ProbeConfig
    from jointnmt.analysis.study import study_run, write_studies
    from jointnmt.testset.outputs import check_runs

    config = ProbeConfig.parse(override(ProbeConfig().plain(), settings or []), origin="--set")
    check_runs(runs)
    for run in runs:
        check_output_folder(out / run_name(run))
    tags: dict[Side, Path | None] = {"source": source_tags, "target": reference_tags}
    given = {side: path for side, path in tags.items() if path is not None}
    text = read_text({"source": source, "target": reference}, given)
    found: dict[str, LexicalStudy] = {}
    for name, run in ((run_name(run), run) for run in runs):
        found[name] = study_run(run, Translator.load(run, device), text, config, out / name, _shown)
        write_studies(found, out)
    if as_json:
        typer.echo(json.dumps({name: each.plain() for name, each in found.items()}, ensure_ascii=False))
        return
    for topic in topics({name: each.measurements for name, each in found.items()}):
        if topic.grouping == "all":
            stdout().print(_table(topic))


@contextmanager
def _shown(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress of one part; the function is called with the number of further sentences done."""
    done = 0
    with ProgressBars("sentences") as progress:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            progress.update(what, done, total)

        yield advance


def _table(topic: Topic) -> Table:
    """Values by system, stack and layer."""
    columns = numeric(f"n ({topic.unit})", topic.measure, "interval")
    table = Table("system", "stack", "layer", *columns, title=topic.title, caption="95% intervals by bootstrap")
    for (system, stack), layers in topic.stacks.items():
        for layer, (each, *_) in layers.items():
            value, low, high = ("" if x is None else f"{x:.3f}" for x in (each.value, each.low, each.high))
            table.add_row(system, stack, layer, f"{each.size:,}", value, f"{low} to {high}" if low else "")
    return table
