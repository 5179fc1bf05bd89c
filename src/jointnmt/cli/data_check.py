"""`jointnmt data check`."""

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from jointnmt.cli.texts import (
    ColumnsOption,
    EncodingOption,
    SourceLanguageOption,
    TargetLanguageOption,
    check_different,
    read_texts,
)
from jointnmt.errors import ConfigurationError

logger = logging.getLogger(__name__)


def data_check(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Two files of lines, or files of pairs: TSV, CSV, JSONL, TMX, XLIFF; also compressed."
        ),
    ],
    fix: Annotated[Path | None, typer.Option("--fix", metavar="DIR", help="Write a clean copy to this folder.")] = None,
    source: SourceLanguageOption = None,
    target: TargetLanguageOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write even if the folder is not empty.")] = False,
) -> None:
    """Find all problems of parallel text at once, and write a clean copy.

    Encodings, headers, extra columns, empty and over-long lines, duplicates, overlap of training with validation and
    test text (recognised by file names), other languages, copies, odd length ratios, and lines that are shifted
    against each other: each with its count and the first lines that have it. FILES are not changed.
    """
    from jointnmt.data.quality.clean import REMOVED, check_folder, write_clean
    from jointnmt.data.quality.report import quality_report

    if overwrite and fix is None:
        raise ConfigurationError("--overwrite is for the folder of --fix: add --fix DIR.")
    if fix is not None:
        check_folder(fix, overwrite)
    checked, languages = read_texts(files, source, target, columns, encoding)
    codes = languages[0].language or "source", languages[1].language or "target"
    if fix is not None:
        check_different(codes)
    report = quality_report(checked, languages)
    typer.echo(json.dumps(report.plain(), ensure_ascii=False) if as_json else report.render())
    if fix is not None:
        for part, count in write_clean(checked, fix, codes).items():
            logger.info("%s: %s pairs in %s.%s and %s.%s", fix, f"{count:,}", part, codes[0], part, codes[1])
        logger.info("%s: %s pairs left out, with reasons, in %s", fix, f"{report.pairs - report.good:,}", REMOVED)
