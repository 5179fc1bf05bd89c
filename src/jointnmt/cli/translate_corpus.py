"""`jointnmt translate-corpus`: a corpus translated by workers on this machine or on a cluster."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import typer

from jointnmt.cli.console import counted
from jointnmt.cli.options import COMPUTATION, BatchCellsOption, DeviceOption, EnsembleArgument, PrecisionOption, panel
from jointnmt.cli.progress import ProgressBars
from jointnmt.cli.translate_options import (
    GivenSearch,
    SplitOption,
    TagOption,
)
from jointnmt.errors import ConfigurationError
from jointnmt.extras import extra
from jointnmt.runs.members import members_of
from jointnmt.translator import Translator
from jointnmt.translator.options import LoadOptions, TranslationOptions

logger = logging.getLogger(__name__)

InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="File, folder or pattern ('FOLDER/*.jsonl'): local, or any fsspec address (s3://...)."
    ),
]
FolderOption = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Folder for the translations, local or an fsspec address. Rows in it are not translated again.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Literal["text", "jsonl", "parquet"] | None,
    typer.Option("--format", help="Format of the files.", show_default="by their file name extension"),
]
ColumnOption = Annotated[str, typer.Option(help="Column to translate, for JSON lines and Parquet.")]
IntoOption = Annotated[str, typer.Option(help="Name of the new column, for JSON lines and Parquet.")]
ShardRowsOption = Annotated[int, typer.Option(min=1, help="Most rows of an output file.")]

CLUSTER = "Cluster"
AddressOption = Annotated[
    str | None,
    panel(
        CLUSTER,
        "A Ray cluster: auto (the one of this machine) or HOST:PORT.",
        show_default="this machine alone",
    ),
]
WorkersOption = Annotated[
    int | None,
    panel(CLUSTER, "Processes that translate, a model in each.", min=1, show_default="one for each GPU, or CPU"),
]
CpusOption = Annotated[int, panel(COMPUTATION, "Processor cores of each worker.", "--worker-cpus", min=1)]


def translate_corpus(
    run: EnsembleArgument,
    input: InputArgument,
    out: FolderOption,
    format: FormatOption = None,
    column: ColumnOption = "text",
    into: IntoOption = "translation",
    shard_rows: ShardRowsOption = 5000,
    split: SplitOption = "never",
    tag: TagOption = None,
    address: AddressOption = None,
    workers: WorkersOption = None,
    search: GivenSearch = GivenSearch(),  # noqa: B008 (frozen)
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
    cpus: CpusOption = 1,
) -> None:
    """Translate a corpus of text, JSON lines or Parquet with many workers, on this machine or on a Ray cluster.

    FOLDER gets numbered files in the order of the rows, with all columns and a new one, which is empty for rows that
    cannot be translated; these are listed in FOLDER/_untranslated with the reason. After an interruption, the same
    command continues.
    """
    if column == into:
        raise ConfigurationError(f"--column and --into are both {column!r}. Give the new column another name.")
    with extra("cluster"):
        import ray  # noqa: F401 (imported where it is used, after the model has been read)

        from jointnmt.cluster import translation
        from jointnmt.cluster.corpus import InputCorpus, check_outside
        from jointnmt.cluster.shards import UNTRANSLATED, CorpusJob
    check_outside(out, input)
    model = Translator.load(members_of(run), "cpu")
    options = TranslationOptions(
        search=search.changed(model.experiment.search),
        split=split,
        on_invalid="skip",
        tag=tag,
        seed=search.seed or 0,
    )
    corpus = InputCorpus.find(input, format, column=column, into=into)
    job = CorpusJob(corpus, out, options, LoadOptions(device, precision, batch_cells))
    with ProgressBars("rows") as progress:
        found = translation.translate_corpus(
            model,
            job,
            shard_rows,
            translation.Workers(workers, cpus, address),
            lambda done, total: progress.update("translated", done, total),
        )
    logger.info("%s: %s, of which %d were done before", out, counted(found.rows, "row"), found.before)
    if found.untranslated:
        logger.warning("%s could not be translated: see %s/%s", counted(found.untranslated, "row"), out, UNTRANSLATED)
