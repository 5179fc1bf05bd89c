"""`jointnmt align`: word alignments of sentence pairs."""

from __future__ import annotations

from typing import Annotated

import typer

from jointnmt.analysis.alignment import align_words, pharaoh, word_numbers
from jointnmt.cli.lines import check_output, check_parallel, open_output
from jointnmt.cli.options import (
    BatchCellsOption,
    DeviceOption,
    OutputOption,
    PrecisionOption,
    RunArgument,
    SourceOption,
    TargetOption,
)
from jointnmt.data.lines import text_lines
from jointnmt.text.languages import check_sides
from jointnmt.translator import Aligned, Translator


def align(
    run: RunArgument,
    source: SourceOption,
    target: TargetOption,
    pieces: Annotated[bool, typer.Option("--pieces", help="Align pieces instead of words.")] = False,
    output: OutputOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    batch_cells: BatchCellsOption = None,
) -> None:
    """Align the words of sentences and their translations, in the Pharaoh format: `0-0 1-2`, source word first.

    Each target word is linked to the source word with the greatest weight: in the reduction of a Reformer, averaged
    over features; in the cross-attention of a Transformer, averaged over layers and heads. A target word with the
    greatest weight on the end mark stays unaligned. Words are separated by spaces, after Moses tokenisation if the run
    has that; of languages written without spaces, align pieces (--pieces). The alignment of an empty line is an empty
    line.
    """
    check_output(output, [source, target])
    check_parallel(source, target)
    translator = Translator.load(run, device, precision, batch_cells)
    whole_words = pieces or translator.experiment.segmentation.kind == "word"
    check_sides(str(source), str(target), translator.segmentation.languages)
    with open_output(output) as write:
        for aligned in translator.align_stream(text_lines(source), text_lines(target), str(source)):
            write(_links(aligned, whole_words))


def _links(aligned: Aligned, whole_words: bool) -> str:
    if aligned.alignment is None:
        return ""
    words = (word_numbers(tokens[:-1], whole_words) for tokens in (aligned.source_tokens, aligned.target_tokens))
    return pharaoh(align_words(aligned.alignment, *words))
