"""`jointnmt attention`: what does a model look at while it translates?"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import torch
import typer

from jointnmt.analysis.attention import attention_figure, attention_numbers, attention_panels
from jointnmt.data.batch import Batch
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.models import AttentionMaps
from jointnmt.translator import Translator
from jointnmt.translator.parts import Line, Preparation

logger = logging.getLogger(__name__)

PICTURES = (".png", ".pdf", ".svg")


def attention(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a trained model.")],
    source: Annotated[str, typer.Option(help="The sentence to translate.")],
    out: Annotated[
        Path, typer.Option(help=f"The picture to write ({', '.join(PICTURES)}); numbers go beside it, as .json.")
    ],
    target: Annotated[str | None, typer.Option(help="Its translation. Default: the model's own.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Draw the attention of one translation, and write its numbers beside the picture as JSON.

    Of a Reformer: the alignment, which is the weights of the reduction, and the attention of both axes of the grid. Of
    a Transformer: attention from target to source (the alignment), and that of encoder and decoder. All are averaged
    over layers and heads. The translation goes to standard output.
    """
    if out.suffix not in PICTURES:
        raise ConfigurationError(f"--out {out}: the name of a picture ends in {', '.join(PICTURES)}.")
    translator = Translator.load(run, device)
    target = translator.translate([source])[0] if target is None else target
    segmentation = translator.segmentation
    preparation = Preparation(segmentation, translator.experiment.model.max_length)
    parts = preparation.parts([Line(1, "--source", source, target)])[0]
    if not parts or not parts[0].target:
        raise DataError("There is nothing to draw: the source or its translation is empty.")
    source_ids, target_ids = parts[0].source[:-1], parts[0].target
    maps = AttentionMaps()
    batch = Batch.collate([source_ids], [target_ids]).to(translator.device)
    with torch.no_grad():
        translator.model(batch.source, batch.target_input, maps)
    pieces = [segmentation.source.piece(i) for i in source_ids], [segmentation.target.piece(i) for i in target_ids]
    out.parent.mkdir(parents=True, exist_ok=True)
    attention_figure(attention_panels(maps, *pieces), f"{source}\n{target}").savefig(out, dpi=150)
    numbers = out.with_suffix(".json")
    numbers.write_text(json.dumps(attention_numbers(maps, *pieces), ensure_ascii=False) + "\n", encoding="utf-8")
    typer.echo(target)
    logger.info("the picture is in %s, its numbers in %s", out, numbers)
