"""`jointnmt translate`: raw text in, raw text out."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jointnmt.cli.lines import STANDARD_INPUT, input_lines, open_output
from jointnmt.cli.options import EnsembleArgument, OutputOption
from jointnmt.cli.resumption import Write, digest_of, resumable_output
from jointnmt.config import override
from jointnmt.data.lines import text_lines
from jointnmt.errors import ConfigurationError
from jointnmt.runs.members import members_of
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.translator import TextLimits, Translation, TranslationOptions, Translator

logger = logging.getLogger(__name__)

InputOption = Annotated[
    Path | None, typer.Option("--input", "-i", help="Lines to translate (also .gz, .xz). Default: standard input.")
]
PrefixOption = Annotated[
    Path | None, typer.Option(help="A file with a target prefix for each line, which may be empty.")
]
JsonLinesOption = Annotated[
    bool, typer.Option("--json", help="Write one JSON object a line: translation, scores, tokens.")
]
AlignmentsOption = Annotated[bool, typer.Option("--alignments", help="With --json: align source and target tokens.")]
GatesOption = Annotated[
    bool, typer.Option("--gates", help="With --json: the mean gates of lexical shortcuts, layer by layer.")
]
NumBestOption = Annotated[
    int, typer.Option(min=1, help="Translations per line, each written as line number, score, text (tabs).")
]
SplitLongOption = Annotated[
    bool, typer.Option("--split-long", help="Split lines that are too long for the model at sentence ends.")
]
TagOption = Annotated[
    str | None,
    typer.Option(metavar="'<TAG>'", help="Put before every line, such as '<2en>'; the model was trained with it."),
]
InvalidOption = Annotated[
    Literal["error", "skip"],
    typer.Option(
        "--on-invalid",
        help="What to do about a line that is no UTF-8 text, too long or otherwise cannot be translated: end with an "
        "error, after the lines before it; or write an empty line and count it.",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue --output where an interrupted call with the same --input stopped.")
]
UntrustedOption = Annotated[
    bool, typer.Option("--untrusted", help="Refuse lines and searches that would cost too much; see --limit.")
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="With --untrusted, another limit: line_characters, sentence_tokens, beam_size, num_best or "
        "sentence_cells. Repeatable.",
    ),
]


def _option(panel: str, text: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **settings)


SEARCH, SAMPLING, COMPUTATION = "Search (default: as in the run)", "Sampling", "Computation"

BeamOption = Annotated[int | None, _option(SEARCH, "Beam size.", min=1)]
LengthPenaltyOption = Annotated[
    float | None, _option(SEARCH, "Exponent p of score = log-probability / length ** p.", min=0)
]
FactorOption = Annotated[
    float | None, _option(SEARCH, "Factor of the maximum length in tokens: factor * source + offset.", min=0)
]
OffsetOption = Annotated[
    int | None, _option(SEARCH, "Offset of the maximum length in tokens: factor * source + offset.", min=0)
]
NoUnknownOption = Annotated[bool, _option(SEARCH, "Never generate `<unk>`.", "--no-unknown")]
SampleOption = Annotated[bool, _option(SAMPLING, "Sample instead of beam search.", "--sample")]
TemperatureOption = Annotated[
    float | None, _option(SAMPLING, "Temperature; below 1 favours likely tokens. Default: 1.")
]
TopKOption = Annotated[int | None, _option(SAMPLING, "Sample from the k most likely tokens. Default: all.", min=1)]
TopPOption = Annotated[
    float | None, _option(SAMPLING, "Sample from the fewest tokens with this total probability. Default: 1.")
]
SeedOption = Annotated[int | None, _option(SAMPLING, "Random seed. Default: 0.", min=0)]
TranslationDeviceOption = Annotated[
    str, _option(COMPUTATION, "auto, cpu or cuda. Default: auto, a GPU if there is one.")
]
TranslationPrecisionOption = Annotated[
    Literal["float32", "bfloat16", "float16", "int8"],
    _option(COMPUTATION, "Of the model's computations; int8 on a CPU only. Default: float32."),
]
TranslationCellsOption = Annotated[
    int | None,
    _option(
        COMPUTATION,
        "Largest batch in cells: hypotheses * source * target. 1: each sentence by itself. Unless it is 1, scores in "
        "float16, on a GPU or without the CPU kernels depend a little on the batch, and rarely a text does.",
        min=1,
    ),
]
WindowOption = Annotated[
    int | None,
    _option(
        COMPUTATION,
        "Lines read ahead for batches of similar lengths. Default: 1024; 1 on a terminal. Use 1 in pipes that wait.",
        min=1,
    ),
]


def translate(
    run: EnsembleArgument,
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
    device: TranslationDeviceOption = "auto",
    precision: TranslationPrecisionOption = "float32",
    batch_cells: TranslationCellsOption = None,
    window: WindowOption = None,
    on_invalid: InvalidOption = "error",
    resume: ResumeOption = False,
    untrusted: UntrustedOption = False,
    limit: LimitOption = None,
) -> None:
    """Translate raw text, line by line: from standard input to standard output, or from file to file.

    Empty lines stay empty. Translations are written in the order of the lines, each as soon as it is computed. After an
    interruption the lines so far are in `NAME.part`, and `--resume` goes on.
    """
    if alignments and not as_json:
        raise ConfigurationError("--alignments needs --json: plain text cannot hold them.")
    if gates and not as_json:
        raise ConfigurationError("--gates needs --json: plain text cannot hold them.")
    if resume and (input is None or output is None):
        raise ConfigurationError("--resume needs --input and --output: what has been read before can be read again.")
    if limit and not untrusted:
        raise ConfigurationError("--limit changes a limit of --untrusted: add --untrusted.")
    rules = {
        "length_penalty": length_penalty,
        "max_length_factor": max_length_factor,
        "max_length_offset": max_length_offset,
        "allow_unknown": False if no_unknown else None,
    }
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    _check_kind(sample, {"--beam": beam}, {**sampling, "--seed": seed})
    translator = Translator.load(members_of(run), device, precision, batch_cells)
    options = TranslationOptions(
        search=_search(translator.experiment.search, sample, {"beam_size": beam, **rules, **sampling}),
        num_best=num_best,
        alignments=alignments,
        gates=gates,
        long="split" if split_long else "error",
        tag=tag,
        on_invalid=on_invalid,
        limits=TextLimits.parse(override({}, limit or []), origin="--limit") if untrusted else None,
        seed=seed or 0,
        window=window or (1 if input is None and sys.stdin and sys.stdin.isatty() else TranslationOptions.window),
    )
    if input is None and sys.stdin is None:
        raise ConfigurationError("Standard input is closed: there is nothing to translate. Name a file by --input.")
    job = Job(input, output, prefix, options, as_json)
    began, number = time.perf_counter(), 0
    with job.opened(translator, resume) as (write, done):
        number = done
        for number, translation in enumerate(job.translations(translator, done), start=done + 1):
            for line in _rendered(translation, number, as_json, num_best):
                write(line)
    seconds, count = time.perf_counter() - began, number - done
    logger.info("%d lines in %.1f s, %.1f a second", count, seconds, count / seconds)


@dataclass(frozen=True)
class Job:
    """What is translated, how, and where to."""

    input: Path | None
    output: Path | None
    prefix: Path | None
    options: TranslationOptions
    as_json: bool

    @contextmanager
    def opened(self, translator: Translator, resume: bool) -> Iterator[tuple[Write, int]]:
        """A function that writes a line of output, and how many lines of input are done already."""
        files = [path for path in (self.input, self.prefix) if path is not None]
        from_files = self.input is not None and all(path.is_file() for path in files)  # a pipe is read only once
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
        origin = str(self.input or STANDARD_INPUT)
        return translator.translate_stream(input_lines(self.input), self.options, prefixes, origin, done)

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
            **{name: digest_of(path) for name, path in files.items() if path is not None},
        }


def _check_kind(sample: bool, of_beam: dict[str, Any], of_sampling: dict[str, Any]) -> None:
    """Refuse options of beam search with sampling, and the reverse."""
    wrong = [name for name, value in (of_beam if sample else of_sampling).items() if value is not None]
    if wrong:
        option = f"--{wrong[0].removeprefix('--').replace('_', '-')}"
        reason = "does not go with --sample, which has no beam" if sample else "is for sampling: add --sample"
        raise ConfigurationError(f"{option} {reason}.")


def _search(default: SearchConfig, sample: bool, given: dict[str, Any]) -> SearchConfig | SamplingConfig:
    """The run's search settings, overridden by the given ones."""
    kind = SamplingConfig if sample else SearchConfig
    settings = {name: value for name, value in default.plain().items() if name in kind.model_fields}
    settings |= {name: value for name, value in given.items() if value is not None}
    return kind.parse(settings, origin="options")


def _rendered(translation: Translation, number: int, as_json: bool, num_best: int) -> list[str]:
    """The lines to write for a line of input."""
    if as_json:
        return [json.dumps({"line": number, **translation.plain(num_best > 1)}, ensure_ascii=False)]
    if num_best == 1:
        return [translation.text]
    candidates = [(each.score, each.text) for each in translation.candidates] or [(0.0, "")]
    return [f"{number}\t{score:.6f}\t{text}" for score, text in candidates]
