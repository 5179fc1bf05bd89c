"""The options of `jointnmt translate`, and of the search of `jointnmt translate-corpus`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from jointnmt.cli.options import COMPRESSED, COMPUTATION, panel
from jointnmt.errors import ConfigurationError
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.translator.options import Split, changed_search

TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Text to translate.", show_default="lines of --input"),
]
TextOption = Annotated[
    list[str] | None,
    typer.Option("--text", help="Text to translate, like the argument TEXT. Repeatable."),
]
InputOption = Annotated[
    Path | None,
    typer.Option("--input", "-i", help=f"Lines to translate ({COMPRESSED}).", show_default="standard input"),
]
PrefixOption = Annotated[
    Path | None,
    typer.Option(help=f"A target prefix for each line, which may be empty, or end within a word ({COMPRESSED})."),
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
SPLIT = "Which lines to split into sentences, each translated by itself: long, those that are too long for the model; \
always, all, for a model that was trained on single sentences."
SplitOption = Annotated[Split, typer.Option(help=SPLIT, show_default="never")]
SplitByInputOption = Annotated[
    Split | None,
    typer.Option(help=SPLIT, show_default="never; always of TEXT and on a terminal"),
]
TagOption = Annotated[
    str | None,
    typer.Option(
        metavar="'<TAG>'",
        help="Tag to put before every line, such as '<2en>'; the model was trained with it.",
        show_default="none",
    ),
]
InvalidOption = Annotated[
    Literal["error", "skip"] | None,
    typer.Option(
        "--on-invalid",
        help="What to do about a line that is not UTF-8, too long, or otherwise cannot be translated: end with an "
        "error, after the lines before it; or write an empty line and count it.",
        show_default="error; skip on a terminal",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue --out where an interrupted call with the same --input stopped.")
]
UntrustedOption = Annotated[
    bool, typer.Option("--untrusted", help="Refuse lines and searches that would cost too much; see --limit.")
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="With --untrusted: change a limit: line_characters, sentence_tokens, beam_size, num_best or "
        "sentence_cells. Repeatable.",
    ),
]

SEARCH, SAMPLING = "Search", "Sampling"
OF_RUN = "as in the run"

BeamOption = Annotated[int | None, panel(SEARCH, "Beam size.", min=1, show_default=OF_RUN)]
LengthPenaltyOption = Annotated[
    float | None,
    panel(SEARCH, "Exponent p of score = log-probability / length ** p.", min=0, show_default=OF_RUN),
]
LengthOffsetOption = Annotated[
    float | None,
    panel(
        SEARCH,
        "Offset o of the penalty: the length counts as (o + length) / (o + 1); 5: GNMT (Wu et al. 2016).",
        min=0,
        show_default=OF_RUN,
    ),
]
FactorOption = Annotated[
    float | None,
    panel(SEARCH, "Factor of the maximum length in tokens: factor * source + offset.", min=0, show_default=OF_RUN),
]
OffsetOption = Annotated[
    int | None,
    panel(SEARCH, "Offset of the maximum length in tokens: factor * source + offset.", min=0, show_default=OF_RUN),
]
NoUnknownOption = Annotated[bool, panel(SEARCH, "Never generate `<unk>`.", "--no-unknown")]
SampleOption = Annotated[bool, panel(SAMPLING, "Sample instead of beam search.", "--sample")]
TemperatureOption = Annotated[
    float | None, panel(SAMPLING, "Temperature; below 1 favours likely tokens.", show_default="1")
]
TopKOption = Annotated[int | None, panel(SAMPLING, "Sample from the k most likely tokens.", min=1, show_default="all")]
TopPOption = Annotated[
    float | None, panel(SAMPLING, "Sample from the fewest tokens with this total probability.", show_default="1")
]
SeedOption = Annotated[int | None, panel(SAMPLING, "Random seed.", min=0, show_default="0")]
WindowOption = Annotated[
    int | None,
    panel(
        COMPUTATION,
        "Lines read ahead for batches of similar lengths. 1: each is translated as soon as it is read, for interactive "
        "pipes.",
        min=1,
        show_default="1024; 1 on a terminal",
    ),
]


@dataclass(frozen=True, kw_only=True)
class GivenSearch:
    """The search options on the command line; None: as in the run.

    Raises:
        ConfigurationError: if a sampling option is given without --sample, or --beam with it.
    """

    beam: BeamOption = None
    length_penalty: LengthPenaltyOption = None
    length_offset: LengthOffsetOption = None
    max_length_factor: FactorOption = None
    max_length_offset: OffsetOption = None
    no_unknown: NoUnknownOption = False
    sample: SampleOption = False
    temperature: TemperatureOption = None
    top_k: TopKOption = None
    top_p: TopPOption = None
    seed: SeedOption = None

    def __post_init__(self) -> None:
        of_other_kind = ("beam",) if self.sample else ("temperature", "top_k", "top_p", "seed")
        reason = "does not go with --sample, which has no beam" if self.sample else "is for sampling: add --sample"
        for name in of_other_kind:
            if getattr(self, name) is not None:
                raise ConfigurationError(f"--{name.replace('_', '-')} {reason}.")

    def changed(self, default: SearchConfig | SamplingConfig) -> SearchConfig | SamplingConfig:
        """The run's search with the given settings replaced."""
        settings = {
            "beam_size": self.beam,
            "length_penalty": self.length_penalty,
            "length_offset": self.length_offset,
            "max_length_factor": self.max_length_factor,
            "max_length_offset": self.max_length_offset,
            "allow_unknown": False if self.no_unknown else None,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        return changed_search(default, self.sample, given)
