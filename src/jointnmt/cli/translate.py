"""`jointnmt translate`: raw text in, raw text out."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jointnmt.cli.console import counted, stderr
from jointnmt.cli.conversation import at_a_terminal, greeting, prompted
from jointnmt.cli.lines import STANDARD_INPUT, input_lines, open_output
from jointnmt.cli.options import BatchCellsOption, DeviceOption, EnsembleArgument, OutputOption, PrecisionChoiceOption
from jointnmt.cli.resumption import Write, digest_of, resumable_output
from jointnmt.cli.translate_options import (
    AlignmentsOption,
    BeamOption,
    FactorOption,
    GatesOption,
    InputOption,
    InvalidOption,
    JsonLinesOption,
    LengthPenaltyOption,
    LimitOption,
    NoUnknownOption,
    NumBestOption,
    OffsetOption,
    PrefixOption,
    ResumeOption,
    SampleOption,
    SeedOption,
    SplitLongOption,
    TagOption,
    TemperatureOption,
    TextOption,
    TextsArgument,
    TopKOption,
    TopPOption,
    UntrustedOption,
    WindowOption,
    check_kind,
    given_of,
)
from jointnmt.config import override
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.runs.members import members_of
from jointnmt.translator import TextLimits, Translation, TranslationOptions, Translator
from jointnmt.translator.options import changed_search

logger = logging.getLogger(__name__)


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
    split_long: SplitLongOption = False,
    tag: TagOption = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    max_length_factor: FactorOption = None,
    max_length_offset: OffsetOption = None,
    no_unknown: NoUnknownOption = False,
    sample: SampleOption = False,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = None,
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
    interruption the lines so far are in `NAME.part`, and `--resume` goes on.
    """
    given = _given_texts(texts or [], text or [], input)
    if alignments and not as_json:
        raise ConfigurationError("--alignments needs --json: plain text cannot hold them.")
    if gates and not as_json:
        raise ConfigurationError("--gates needs --json: plain text cannot hold them.")
    if resume and (input is None or output is None):
        raise ConfigurationError("--resume needs --input and --out: what has been read before can be read again.")
    if limit and not untrusted:
        raise ConfigurationError("--limit changes a limit of --untrusted: add --untrusted.")
    rules = {
        "length_penalty": length_penalty,
        "max_length_factor": max_length_factor,
        "max_length_offset": max_length_offset,
        "allow_unknown": False if no_unknown else None,
    }
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    check_kind(sample, {"--beam": beam}, {**sampling, "--seed": seed})
    translator = Translator.load(members_of(run), device, precision, batch_cells)
    typed = not given and input is None and at_a_terminal()
    options = TranslationOptions(
        search=changed_search(translator.experiment.search, sample, given_of({"beam_size": beam, **rules, **sampling})),
        num_best=num_best,
        alignments=alignments,
        gates=gates,
        long="split" if split_long else "error",
        tag=tag,
        on_invalid=on_invalid or ("skip" if typed else "error"),
        limits=TextLimits.parse(override({}, limit or []), origin="--limit") if untrusted else None,
        seed=seed or 0,
        window=window or (1 if typed else TranslationOptions.window),
    )
    if not given and input is None and sys.stdin is None:
        raise ConfigurationError("Standard input is closed: there is nothing to translate. Name a file by --input.")
    job = Job(given or input, output, prefix, options, as_json)
    began, number = time.perf_counter(), 0
    if typed and logger.isEnabledFor(logging.INFO):
        stderr().print(greeting(translator), highlight=False, soft_wrap=True)
    with job.opened(translator, resume) as (write, done):
        number = done
        for number, translation in enumerate(job.translations(translator, done), start=done + 1):
            if typed and translation.error:
                logger.error(translation.error)
            for line in _rendered(translation, number, as_json, num_best):
                write(line)
    if not typed and not given:
        seconds, count = time.perf_counter() - began, number - done
        logger.info("%s in %.1f s, %.1f a second", counted(count, "line"), seconds, count / seconds)


def _given_texts(texts: Sequence[str], more: Sequence[str], input: Path | None) -> list[str]:
    """The texts of a command line.

    Raises:
        ConfigurationError: if there is a file as well, or one of them is the name of a file.
    """
    given = [*texts, *more]
    if given and input is not None:
        raise ConfigurationError("Give what to translate either as text or by --input, not both.")
    if names := [each for each in texts if Path(each).is_file()]:
        raise ConfigurationError(
            f"{names[0]}: is a file. To translate its lines, name it by --input; to translate this name, by --text."
        )
    return given


@dataclass(frozen=True)
class Job:
    """What is translated, how, and where to."""

    input: Path | list[str] | None
    """A file, texts, or standard input."""
    output: Path | None
    prefix: Path | None
    options: TranslationOptions
    as_json: bool

    @contextmanager
    def opened(self, translator: Translator, resume: bool) -> Iterator[tuple[Write, int]]:
        """A function that writes a line of output, and how many lines of input are done already."""
        files = [path for path in (self.input, self.prefix) if isinstance(path, Path)]
        from_files = isinstance(self.input, Path) and all(path.is_file() for path in files)  # a pipe is read only once
        if self.output is None or not from_files or (self.output.exists() and not self.output.is_file()):
            if resume:
                raise ConfigurationError("--resume is for files that can be read again: no pipes or devices.")
            with open_output(self.output) as write:
                yield write, 0
            return
        several_rows = self.options.num_best > 1 and not self.as_json
        with resumable_output(self.output, self._facts(translator), several_rows, resume) as opened:
            yield opened

    def translations(self, translator: Translator, done: int) -> Iterator[Translation]:
        """The translations of the lines after the first `done`."""
        prefixes = None if self.prefix is None else text_lines(self.prefix)
        if isinstance(self.input, list):
            return translator.translate_stream(self.input, self.options, prefixes, "text")
        lines = input_lines(self.input)
        if self.input is None and at_a_terminal() and logger.isEnabledFor(logging.INFO):
            lines = prompted(lines, f"{translator.segmentation.languages[0]}> ")
        return translator.translate_stream(lines, self.options, prefixes, str(self.input or STANDARD_INPUT), done)

    def _facts(self, translator: Translator) -> dict[str, Any]:
        """All that the output depends on."""
        options = asdict(self.options)
        for name in ("search", "limits"):
            options[name] = options[name] and options[name].plain()
        files = {"input": self.input, "prefix": self.prefix}
        return {
            **translator.facts(),
            "computed": [translator.device.type, translator.precision, translator.max_cells],
            "options": options,
            "format": "json" if self.as_json else "text",
            **{name: digest_of(path) for name, path in files.items() if isinstance(path, Path)},
        }


def _rendered(translation: Translation, number: int, as_json: bool, num_best: int) -> list[str]:
    """The lines to write for a line of input."""
    if as_json:
        return [json.dumps({"line": number, **translation.plain(num_best > 1)}, ensure_ascii=False)]
    if num_best == 1:
        return [translation.text]
    candidates = [(each.score, each.text) for each in translation.candidates] or [(0.0, "")]
    return [f"{number}\t{score:.6f}\t{text}" for score, text in candidates]
