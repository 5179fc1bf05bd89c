"""`jointnmt translate`: raw text in, raw text out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jointnmt.cli.conversation import at_a_terminal
from jointnmt.cli.lines import check_output
from jointnmt.cli.options import BatchCellsOption, DeviceOption, EnsembleArgument, OutputOption, PrecisionChoiceOption
from jointnmt.cli.translate_job import TranslationJob
from jointnmt.cli.translate_options import (
    AlignmentsOption,
    GatesOption,
    GivenSearch,
    InputOption,
    InvalidOption,
    JsonLinesOption,
    LimitOption,
    NumBestOption,
    PrefixOption,
    ResumeOption,
    SplitByInputOption,
    TagOption,
    TextOption,
    TextsArgument,
    UntrustedOption,
    WindowOption,
)
from jointnmt.config import override
from jointnmt.errors import ConfigurationError
from jointnmt.runs.members import members_of
from jointnmt.shipped import is_model
from jointnmt.translator import TextLimits, TranslationOptions, Translator


def translate(
    run: EnsembleArgument,
    texts: TextsArgument = None,
    text: TextOption = None,
    input: InputOption = None,
    output: OutputOption = None,
    prefix: PrefixOption = None,
    as_json: JsonLinesOption = False,
    alignments: AlignmentsOption = False,
    gates: GatesOption = False,
    num_best: NumBestOption = 1,
    split: SplitByInputOption = None,
    tag: TagOption = None,
    search: GivenSearch = GivenSearch(),  # noqa: B008 (frozen)
    device: DeviceOption = "auto",
    precision: PrecisionChoiceOption = "auto",
    batch_cells: BatchCellsOption = None,
    window: WindowOption = None,
    on_invalid: InvalidOption = None,
    resume: ResumeOption = False,
    untrusted: UntrustedOption = False,
    limit: LimitOption = None,
) -> None:
    """Translate raw text: the TEXT given, or line by line from standard input or a file.

    Empty lines stay empty. Translations are written in the order of the lines, each as soon as it is computed. After an
    interruption the lines so far are in `NAME.part`, and `--resume` continues.
    """
    input = None if input == Path("-") else input  # standard input, as in a pipe of commands
    given = _given(texts or [], text or [], input)
    if resume and (input is None or output is None):
        raise ConfigurationError("--resume needs --input and --out: files, which can be read again.")
    for name, wanted in (("--alignments", alignments), ("--gates", gates)):
        if wanted and not as_json:
            raise ConfigurationError(f"{name} needs --json: plain text cannot hold them.")
    if limit and not untrusted:
        raise ConfigurationError("--limit changes a limit of --untrusted: add --untrusted.")
    check_output(output, [input, prefix])
    translator = Translator.load(members_of(run), device, precision, batch_cells)
    typed = given is None and at_a_terminal()
    options = TranslationOptions(
        search=search.changed(translator.search),
        num_best=num_best,
        alignments=alignments,
        gates=gates,
        split=split or ("always" if (typed or isinstance(given, list)) and prefix is None else "never"),
        tag=tag,
        on_invalid=on_invalid or ("skip" if typed else "error"),
        limits=_limits(limit or []) if untrusted else None,
        seed=search.seed or 0,
        window=window or (1 if typed else TranslationOptions.window),
    )
    TranslationJob(given, output, prefix, options, as_json, typed).run(translator, resume)


def _limits(changed: Sequence[str]) -> TextLimits:
    """The limits of untrusted text, with the changes of `--limit`."""
    return TextLimits.parse(override({}, changed, "--limit beam_size=8"), origin="--limit")


def _given(texts: Sequence[str], more: Sequence[str], input: Path | None) -> list[str] | Path | None:
    """The texts of the command line, or the file; None: standard input.

    Raises:
        ConfigurationError: if there are texts and a file, or one of the texts is the name of a file or of a RUN; if
            there is nothing to read.
    """
    if texts == ["-"] and not more and input is None:
        return None
    given = [*texts, *more]
    if given and input is not None:
        raise ConfigurationError("Give the text either as arguments or by --input, not both.")
    if names := [each for each in texts if os.path.isfile(each)]:  # noqa: PTH113 (a text may be too long for a name)
        raise ConfigurationError(
            f"{names[0]}: is a file. To translate its lines, name it by --input; to translate this name, by --text."
        )
    if runs := [each for each in texts if is_model(each)]:
        raise ConfigurationError(
            f"{runs[0]}: is a RUN too. For an ensemble of several, write A+B; to translate this name, use --text."
        )
    if not given and input is None and sys.stdin is None:
        raise ConfigurationError("Standard input is closed: there is nothing to translate. Name a file by --input.")
    return given or input
