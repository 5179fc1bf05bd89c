"""`jointnmt export`: a run in the format of another engine."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.options import RunArgument

logger = logging.getLogger(__name__)


def export(
    run: RunArgument,
    to: Annotated[Literal["ctranslate2"], typer.Option("--to", help="The engine.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to write.")],
    weights: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"],
        typer.Option(help="Precision of the stored weights; the engine may compute in another."),
    ] = "float32",
) -> None:
    """Write a trained Transformer for CTranslate2, with its vocabularies and its segmentation.

    Joint representations and lexical shortcuts cannot be expressed there and are refused.
    """
    from jointnmt.export import export_ctranslate2

    export_ctranslate2(run, out, weights)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    logger.info("%s: %.2f MB for %s, weights in %s", out, size / 1e6, to, weights)
