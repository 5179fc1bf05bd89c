"""`jointnmt init`."""

import logging
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jointnmt.cli.texts import (
    ColumnsOption,
    EncodingOption,
    SourceLanguageOption,
    TargetLanguageOption,
    check_different,
    check_language,
    read_texts,
)
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.extras import extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jointnmt.data.quality.check import CheckedText
    from jointnmt.data.quality.languages import SideLanguage
    from jointnmt.planning.approaches import Approach
    from jointnmt.planning.project import Project
    from jointnmt.planning.sizing import PlannedFamily

logger = logging.getLogger(__name__)

MOST_LOST = 0.01
"""Largest share of pairs that are left out as not UTF-8 without --encoding being asked for."""


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    more: Annotated[list[Path] | None, typer.Argument(metavar="FILES", help="Further files of --from.")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FILES...", help="Your text, in any format that `jointnmt data check` reads."),
    ] = None,
    source: SourceLanguageOption = None,
    target: TargetLanguageOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    family: Annotated[
        Literal["transformer", "reformer-base", "reformer-fast"] | None,
        typer.Option(help="Model family.", show_default="transformer"),
    ] = None,
    longer: Annotated[
        bool,
        typer.Option("--longer", help="Plan 2.5 times as many updates, with dropout: slower, better translations."),
    ] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Fine-tune this trained model (a RUN, a shared folder or package:NAME) instead of training a new one.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the held-out sample and of the training.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write even if the folder is not empty.")] = False,
) -> None:
    """Start a project from your own text: check it, hold out test text, and write a recipe for it and this machine.

    DIR gets `data/` (training, validation and test text without overlap; files that are named valid, dev or test are
    taken as such), `removed.tsv` (what was left out, and why) and `recipe.yaml`. FILES are not changed.
    """
    with extra("data", "train"):  # so that one error names both
        import py3langid  # noqa: F401

        if find_spec("lightning_fabric") is None:  # its import, and torch's, take longer than reading the text
            raise ModuleNotFoundError(name="lightning_fabric")

    from jointnmt.data.quality.clean import check_folder
    from jointnmt.data.quality.report import quality_report

    if not files:
        raise ConfigurationError(f"--from is missing: name your text, as in `jointnmt init {directory} --from my.tsv`.")
    check_folder(directory, overwrite)
    if start_from is not None:
        _check_start(start_from, family, longer)
    checked, languages = read_texts([*files, *(more or [])], source, target, columns, encoding)
    if encoding is None:
        _check_encodings(checked)
    codes = _agreed(languages)

    from jointnmt.evaluation.scores import corpus_metrics
    from jointnmt.planning.approaches import FineTuning, FromScratch
    from jointnmt.planning.project import write_project

    corpus_metrics(codes[1], ["bleu"])  # a missing tokeniser is an error now, not in the training
    typer.echo(quality_report(checked, languages).render())
    approach: Approach = FineTuning(start_from) if start_from else FromScratch(family or "transformer", longer)
    project = write_project(checked, directory, codes, approach, seed)
    for line in _summary(project, start_from, longer):
        typer.echo(line)


def _check_start(start: Path, family: "PlannedFamily | None", longer: bool) -> None:
    """Check that there is a model to start from, and that nothing is asked for that its own settings decide."""
    from jointnmt.planning.approaches import FineTuning

    if family is not None:
        raise ConfigurationError("--family is for a new model: the model of --start-from has its own family.")
    if longer:
        raise ConfigurationError(
            "--longer is for a new model: fine-tuning has a length of its own (training.max_epochs)."
        )
    FineTuning(start).check()


def _check_encodings(checked: "Sequence[CheckedText]") -> None:
    """Refuse text of which more than `MOST_LOST` of the pairs would be lost, as it is not UTF-8."""
    from jointnmt.data.quality.problems import NUMBERS
    from jointnmt.data.quality.texts import NOT_UTF8

    for text in checked:
        lost = int((text.problems == NUMBERS["unreadable"]).sum())
        note = next((note for note in text.text.notes if NOT_UTF8 in note), "")
        if note and lost > len(text) * MOST_LOST:
            raise DataError(
                f"{note}: {lost:,} of {len(text):,} pairs would be left out. Give its encoding, as in "
                "--encoding cp1252; or --encoding utf-8, to leave them out."
            )


def _agreed(languages: "tuple[SideLanguage, SideLanguage]") -> tuple[str, str]:
    """The languages; uncertain ones are asked for at a terminal."""
    codes = []
    for side, option in zip(languages, ("source", "target"), strict=True):
        if side.sure:
            codes.append(side.language)
        elif sys.stdin.isatty() and sys.stderr.isatty():
            question = f"Code of the {option} language ({side.reason})"
            codes.append(str(typer.prompt(question, default=side.language or None, err=True)).strip())
            check_language(f"the {option} language", codes[-1])
        else:
            raise ConfigurationError(f"The {option} language is {side.reason}. Give it: --{option} CODE, such as de.")
    agreed = codes[0], codes[1]
    check_different(agreed)
    return agreed


def _summary(project: "Project", start: Path | None, longer: bool) -> list[str]:
    """Lines that say what was written, how long training takes, what to expect, and the next commands.

    Args:
        project: what was written.
        start: the model to start from, if there is one.
        longer: whether a longer training was asked for.
    """
    from jointnmt.planning.expectation import OF_FINE_TUNING, expectation
    from jointnmt.planning.sizing import LONGER

    parts, family, directory = project.parts, project.experiment.model.family, project.directory
    counts = ", ".join(f"{part} {count:,}" for part, count in parts.pairs.items())
    left_out = f"; {parts.left_out:,} more share a sentence with what is held out" if parts.left_out else ""
    left_out += f"; {project.too_long:,} more are longer than the model takes" if project.too_long else ""
    given = f" ({' and '.join(parts.given)} as given)" if parts.given else ""
    tuned, systems = ("", "") if start is None else (f" from {start}", f"{shlex.quote(str(start))} ")
    expected = expectation(project.corpus.pairs, family) if start is None else OF_FINE_TUNING
    advice = "" if longer or start is not None else f"; with --longer {LONGER} times as long, for better translations"
    rate = project.machine.rates[project.machine.precision]
    recipe, run, source, target = (
        shlex.quote(str(path)) for path in (project.recipe, directory / "run", *parts.paths("test"))
    )
    return [
        "",
        f"{parts.directory}: sentence pairs: {counts}{given}{left_out}",
        *(
            f"{copies.kind}: {len(copies.pairs):,} copies of training pairs {copies.description}"
            for copies in parts.copies
        ),
        f"{project.recipe}: {family}{tuned}, {project.vocabulary:,} pieces, {project.updates:,} updates",
        f"time: about {_duration(project.seconds)} on this machine ({project.machine.precision}, {rate:,.0f} target "
        f"pieces a second, measured){advice}",
        f"expect: {expected}.",
        "",
        "next:",
        f"  jointnmt train {recipe} --out {run}",
        f"  jointnmt evaluate {systems}{run} --source {source} --reference {target}",
        f"  jointnmt translate {run} < {source}",
    ]


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes <= 1:
        return "a minute"
    return f"{minutes} minutes" if minutes < 120 else f"{seconds / 3600:.1f} hours"
