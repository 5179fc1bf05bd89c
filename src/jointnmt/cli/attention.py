"""`jointnmt attention`: the attention weights of one translation, as a figure."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jointnmt.cli.lines import check_output
from jointnmt.cli.options import COMPUTATION, DeviceOption, RunArgument, panel
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text
from jointnmt.text.pieces import SPACE
from jointnmt.text.special import BOS
from jointnmt.translator import Translator, attend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

PICTURES = (".png", ".pdf", ".svg")
DOTS_PER_INCH = 150
MOST_DOTS = 80_000_000
"""Largest .png, in pixels: one with each head of many layers would not fit in memory."""


def attention(
    run: RunArgument,
    text: Annotated[str, typer.Option(help="The sentence to translate.")],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help=f"Figure to write ({', '.join(PICTURES)}); numbers go beside it, as .json."),
    ],
    translation: Annotated[str | None, typer.Option(help="Its translation.", show_default="the model's own")] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIDE:TOKEN",
            help="Show the self-attention of one token: source:. or target:fine, or the third: source:#3. Repeatable.",
        ),
    ] = None,
    by: Annotated[
        Literal["mean", "layer", "head"],
        typer.Option(help="Mean over layers and heads; each layer; each head of each layer."),
    ] = "mean",
    device: DeviceOption = "auto",
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "int8"],
        panel(
            COMPUTATION,
            "Precision of the search for the model's own translation: float32, bfloat16, float16 or, on a CPU only, "
            "int8. Attention weights are always computed in float32.",
            metavar="PRECISION",
        ),
    ] = "float32",
) -> None:
    """Draw the attention of one translation, and write its weights beside the figure as JSON.

    For a Reformer: the alignment (the weights of the reduction) and the attention along both axes of the grid. For a
    Transformer: cross-attention (the alignment), and self-attention of encoder and decoder. On the grid, a token has
    different weights under each token of the other side: their mean is drawn, or with --of all of them (Li et al. 2020,
    Figure 5). The translation goes to standard output.
    """
    from jointnmt.analysis.attention import View, attention_numbers, attention_panels, self_attention_tokens
    from jointnmt.analysis.attention_figures import attention_figure

    if out.suffix not in PICTURES:
        raise ConfigurationError(f"--out {out}: the name of a figure ends in {', '.join(PICTURES)}.")
    wanted = _sides(of or ())
    out.parent.mkdir(parents=True, exist_ok=True)
    check_output(out)
    translator = Translator.load(run, device, precision)
    trace = attend(translator, text, translation, "--text")
    pieces = trace.source_pieces, trace.target_pieces
    tokens = dict(zip(("source", "target"), self_attention_tokens(*pieces), strict=True))
    view = View(by, **{side: token_place(side, tokens[side], token) for side, token in wanted.items()})
    _save(attention_figure(attention_panels(trace.attn_weights, *pieces, view), f"{text}\n{trace.translation}"), out)
    numbers = out.with_suffix(".json")
    write_text(numbers, json.dumps(attention_numbers(trace.attn_weights, *pieces, view), ensure_ascii=False) + "\n")
    typer.echo(trace.translation)
    logger.info("the figure is in %s, its weights in %s", out, numbers)


def _save(figure: Figure, out: Path) -> None:
    from jointnmt.analysis.fonts import save_figure

    width, height = figure.get_size_inches()
    dots = min(DOTS_PER_INCH, (MOST_DOTS / (width * height)) ** 0.5)
    if out.suffix == ".png" and dots < DOTS_PER_INCH:
        logger.warning("%s: large figure, drawn at %d dots per inch; .pdf and .svg have full resolution", out, dots)
    save_figure(figure, out, dpi=dots)


def _sides(wanted: Sequence[str]) -> Mapping[str, str]:
    sides: dict[str, str] = {}
    for each in wanted:
        side, colon, token = each.partition(":")
        if side not in ("source", "target") or not colon or not token:
            raise ConfigurationError(f"--of {each}: name the side and the token, as in source:. or target:fine.")
        if side in sides:
            raise ConfigurationError(
                f"--of {each}: a {side} token is already chosen ({sides[side]}). Choose one per side."
            )
        sides[side] = token
    return sides


def token_place(side: str, tokens: Sequence[str], wanted: str) -> int:
    """The position of a token given as text, with or without its space mark, or by its number, as #3 or 3.

    A number without # is first looked up as a token; it is a position only if no token of the sentence is a number.
    """
    first = tokens[0] == BOS  # the begin mark has no number
    texts = [token.strip(SPACE) or token for token in tokens]
    pairs = enumerate(zip(tokens, texts, strict=True))
    numbered = wanted.removeprefix("#")
    by_number = numbered != wanted and numbered.isdecimal()
    places = [] if by_number else [place for place, pair in pairs if wanted in pair]
    if len(places) == 1:
        return places[0]
    known = by_number or (wanted.isdecimal() and not any(text.isdecimal() for text in texts))
    if known and 1 <= int(numbered) <= len(tokens) - first:
        return int(numbered) - 1 + first
    listed = ", ".join(f"#{number} {token}" for number, token in enumerate(tokens[first:], start=1))
    problem = "there are several such tokens" if places else "there is no such token"
    raise ConfigurationError(f"--of {side}:{wanted}: {problem}. Give the position of one, as in {side}:#1: {listed}.")
