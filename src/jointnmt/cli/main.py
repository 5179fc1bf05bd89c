"""The frame of the command line: commands, shared options, errors and exit codes.

Each command is the function of the same name in `jointnmt.cli.<name>`, imported on use, so that `jointnmt --help` and
shell completion do not wait for torch.
"""

import gc
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import jointnmt
from jointnmt.cli.command import HelpIsFlag, command_of
from jointnmt.errors import ConfigurationError, JointNMTError, MissingPackageError
from jointnmt.extras import Extra, extra
from jointnmt.interruption import Interruption, StopSignals, exit_code

COMMANDS = {
    "init": "Start a project from your own text: check it, hold out test text, write a recipe for it.",
    "data": "Check your own text (data check), prepare a corpus of the catalogue, or print the catalogue.",
    "recipes": "List the recipes that come with the package, or print one.",
    "prepare": "Segment the text of a recipe before its training: on all cores, or on a Ray cluster.",
    "train": "Train a model from a recipe, or resume its training.",
    "average": "Average the weights of checkpoints of a run.",
    "translate": "Translate raw text, line by line.",
    "translate-corpus": "Translate a corpus with many workers: on this machine, or on a Ray cluster.",
    "score": "Score given translations by their log-probabilities.",
    "evaluate": "Evaluate translations: BLEU, chrF, TER, perplexity, significance.",
    "contrast": "Evaluate a model on contrastive translation pairs.",
    "scale": "Scale a recipe in depth and width by the gradient of its validation loss.",
    "info": "Count the parameters of a recipe or a run, without data or training.",
    "attention": "Draw the attention of one translation.",
    "align": "Align the words of sentences and their translations.",
    "analyse": "Compare runs by sentence length, target position and token frequency.",
    "probe": "Measure the lexical information of each layer by probes.",
    "serve": "Serve models over HTTP: LibreTranslate's API, and a typed one.",
    "explore": "Explore models on sentences: cells, attention, search, in one page that opens without a server.",
    "report": "Write a report on several runs: scores, curves, analyses, samples, attention.",
    "share": "Save a run as a small folder to share, with a card.",
    "export": "Write a trained Transformer for another engine, CTranslate2.",
    "kernels": "Build the custom CPU kernels, or show their status.",
}

NEEDED: dict[str, tuple[Extra, ...]] = {
    "init": ("data", "train"),
    "data_check": ("data",),
    "prepare": ("train",),
    "train": ("train",),
    "average": ("train",),
    "evaluate": ("report",),
    "scale": ("train",),
    "attention": ("report",),
    "analyse": ("report",),
    "probe": ("report",),
    "serve": ("serve",),
    "explore": ("report",),
    "report": ("report",),
    "share": ("report",),
    "translate-corpus": ("cluster",),
    "export": ("export",),
}
"""The extras that commands always need. An extra that only some uses of a command need is reported where it is used."""

SUBCOMMANDS = {("data", "check"): "data_check"}
"""Commands of two words, and the function and module of each; `data` is a command by itself too."""

HUNG_UP, INTERRUPTED, WARNED, BROKEN_PIPE, TERMINATED = 129, 130, 138, 141, 143
SIGNALLED = 128
"""Exit codes above it are 128 plus the number of a signal."""
EXIT_CODES = {
    0: "done",
    1: "an error in jointnmt itself, or in a family of another package",
    2: "wrong usage or configuration",
    3: "bad input data",
    4: "missing, damaged or incompatible model",
    5: "a package that this command needs is not installed (most belong to an extra), or is broken",
    6: "another process of the training, or Ray, has ended or cannot be reached",
    HUNG_UP: "stopped by SIGHUP (the terminal was closed)",
    INTERRUPTED: "interrupted by SIGINT (Ctrl-C)",
    WARNED: "stopped by SIGUSR1 (a cluster's warning before the end)",
    BROKEN_PIPE: "the output was closed by its reader (as in `| head`)",
    TERMINATED: "stopped by SIGTERM",
}

EPILOG = "\n\n".join(
    [
        "Data goes to standard output; progress, logs and errors go to standard error.",
        "Exit codes:\n\n" + "\n".join(f"- {code}: {meaning}" for code, meaning in EXIT_CODES.items()),
    ]
)

HELP = """Neural machine translation with joint representations: turn a parallel corpus into a translation model, and
translate raw text with it.

A model is trained from a recipe (YAML) into a RUN directory, which the other commands take:

jointnmt train package:demo --out RUN

jointnmt translate RUN < source.txt > translation.txt

`--debug`, `--verbose` and `--quiet` may be given before or after the command. `jointnmt COMMAND --help` explains a
command.
"""

SHARED_FLAGS = frozenset({"--debug", "--verbose", "-v", "--quiet", "-q"})
ISSUES = "the project's issue tracker"

# Base of usage errors, in typer's own copy of click or in the separate package.
UsageError: Any = typer.BadParameter.__base__

logger = logging.getLogger("jointnmt")


class Commands(HelpIsFlag, TyperGroup):
    """The group of all commands: loads them on use, and turns exceptions into messages and exit codes."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line; help written to a closed pipe exits like any other output to one."""
        try:
            return super().main(*args, **options)
        except SystemExit as error:  # rich and typer turn a broken pipe into their own exit
            if isinstance(error.__context__, BrokenPipeError):
                raise SystemExit(BROKEN_PIPE) from None
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept shared flags before or after the command."""
        end = args.index("--") if "--" in args else len(args)
        flags = [argument for argument in args[:end] if argument in SHARED_FLAGS]
        others = [argument for argument in args[:end] if argument not in SHARED_FLAGS]
        return super().parse_args(ctx, [*flags, *others, *args[end:]])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Load the command in place of its entry."""
        name, entry, rest = super().resolve_command(ctx, args)
        if name is not None and rest and (name, rest[0]) in SUBCOMMANDS:
            return f"{name} {rest[0]}", _load(SUBCOMMANDS[name, rest[0]]), rest[1:]
        return name, entry if name is None else _load(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an exception becomes one paragraph on standard error and an exit code."""
        stop = StopSignals()
        try:
            with stop:
                result = super().invoke(ctx)
            if sys.stdout:  # None if standard output is closed
                sys.stdout.flush()  # here: at exit, a broken pipe could not be handled
            return result
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except BrokenPipeError:
            # Discard what is left in the buffer, or the interpreter would fail to flush it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except (Exception, KeyboardInterrupt) as error:
            if ctx.params.get("debug"):
                traceback.print_exc(file=sys.stderr)
            if stop.asked is not None and not isinstance(error, JointNMTError):
                error = Interruption(stop.asked)  # whatever it was raised as: an import of torch ends in other errors
            message, code = _explain(error)
            with suppress(OSError):  # the terminal has gone
                typer.echo(f"jointnmt: {message}", err=True)
            raise typer.Exit(code) from None


def _load(name: str) -> Any:
    """The command `name`, with its options, from its module."""
    function = name.replace("-", "_")
    if name not in NEEDED:
        return command_of(name, getattr(_imported(f"jointnmt.cli.{function}"), function))
    with extra(*NEEDED[name]):
        loaded = getattr(_imported(f"jointnmt.cli.{function}"), function)
    return command_of(name, extra(*NEEDED[name])(loaded))


def _imported(module: str) -> ModuleType:
    """Import a module, the first time without garbage collection, which would traverse all of torch repeatedly.

    What is there afterwards stays, so later ones leave it out.
    """
    if module in sys.modules or not gc.isenabled():
        return importlib.import_module(module)
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _explain(error: BaseException) -> tuple[str, int]:
    """The message and the exit code of an error that ended a command."""
    if isinstance(error, JointNMTError):
        return f"{'' if error.exit_code > SIGNALLED else 'error: '}{error}", error.exit_code
    if isinstance(error, KeyboardInterrupt):
        by = f" by {error}" if isinstance(error, Interruption) and exit_code(error) != INTERRUPTED else ""
        return f"interrupted{by}.", exit_code(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror}. Check the path, the permissions and the free space.", (
            ConfigurationError.exit_code
        )
    if isinstance(error, ImportError) and not (error.name or "").startswith("jointnmt"):
        package = f"The package {error.name.partition('.')[0]}" if error.name else "A package that this needs"
        return f"error: {package} is not installed, or is broken ({error}). Install it again.", (
            MissingPackageError.exit_code
        )
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    if (place := _in_a_family(error)) is not None:
        return f"error: {place}: {what}. This is in a family of another package; --debug shows the traceback.", 1
    return (
        f"error: this is an error in jointnmt {jointnmt.__version__} itself ({what}). Please run the command "
        f"again with --debug and report what it prints, with the command itself, to {ISSUES}.",
        1,
    )


def _in_a_family(error: BaseException) -> str | None:
    """File, line and function of another package's family that an error comes from; None if it does not."""
    families = sys.modules.get("jointnmt.models.families")
    roots = families.roots() if families else ()
    frames = [
        f"{Path(frame.f_code.co_filename)}:{line}, in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] in roots
    ]
    return frames[-1] if frames else None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jointnmt {jointnmt.__version__}")
        raise typer.Exit


def _listed() -> None:
    """A placeholder in the list of commands; `Commands.resolve_command` loads the command."""


app = typer.Typer(
    name="jointnmt",
    cls=Commands,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _summary in COMMANDS.items():
    app.command(_name, help=_summary)(_listed)


@app.callback()
def shared(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="JOINTNMT_DEBUG", metavar="", help="Show the traceback of an error.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", metavar="", help="Log details as well.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", metavar="", help="Log only warnings and errors, no progress.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if verbose and quiet:
        raise ConfigurationError("--verbose and --quiet exclude each other: give one of them.")
    level = logging.DEBUG if verbose or debug else logging.WARNING if quiet else logging.INFO
    ctx.with_resource(_logging_to_stderr(level))


@contextmanager
def _logging_to_stderr(level: int) -> Iterator[None]:
    """Log from `level` on, in colour on a terminal; other packages log only warnings. Settings are restored at exit."""
    from jointnmt.cli.console import shows_standard_error, stderr

    handler: logging.Handler = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s %(message)s"
    if shows_standard_error():
        from rich.logging import RichHandler

        handler, form = RichHandler(console=stderr(), show_path=False, log_time_format="[%X]"), "%(message)s"
    handler.setFormatter(logging.Formatter(form, "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    before = root.handlers[:], root.level, logger.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(level)
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        logger.setLevel(before[2])


def main() -> None:
    """Run the command line and exit."""
    app()
