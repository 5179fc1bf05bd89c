"""Framework of the command line: help, shared options, errors and their exit codes."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from typer.testing import CliRunner, Result

import jointnmt
from jointnmt.cli.command import command_of
from jointnmt.cli.main import COMMANDS, EXIT_CODES, app
from jointnmt.errors import ConfigurationError, DataError, JointNMTError, MissingPackageError, ModelError
from jointnmt.interruption import STOP_SIGNALS
from jointnmt.runs.loading import read_experiment
from jointnmt.shipped import locate_run
from support.tiny import tiny_recipe, write_corpus
from support.tiny_run import write_run

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Runs the command line in this process, on a wide terminal."""
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments, **options: runner.invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Replaces the command `info` by a function."""

    def replace(function: Callable[[], None]) -> None:
        module = ModuleType("jointnmt.cli.info")
        module.info = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jointnmt.cli.info", module)

    return replace


def fail_with(error: BaseException) -> Callable[[], None]:
    def info() -> None:
        raise error

    return info


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def test_help_lists_every_command_and_exit_code(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for name, summary in COMMANDS.items():
        assert name in result.output
        assert summary in result.output
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning.replace('`', '')}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(invoke: Invoke, name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    assert f"jointnmt {name}" in result.output
    assert len(result.output.splitlines()) > 8


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_one_style(invoke: Invoke, name: str) -> None:
    """Arguments and values in capitals or as choices, flags without; defaults in brackets, and not in words."""
    shown = invoke(name, "--help").output
    usage = next(line for line in shown.splitlines() if "Usage" in line)
    assert not re.search(r"[{}]|<", usage), usage
    assert not re.search(r"<(path|bool|str|int|float|list)|Default:|May be repeated", shown)


def test_one_name_for_one_thing() -> None:
    """Options of several commands have one kind: the same name never takes a file here and text there."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for name in COMMANDS:
        function = name.replace("-", "_")
        for param in command_of(name, getattr(import_module(f"jointnmt.cli.{function}"), function)).params:
            kinds.update({each: kinds[each] | {param.metavar} for each in param.opts if each.startswith("--")})
    differing = {name: found for name, found in kinds.items() if len(found) > 1}
    # A file or a folder; recipes or other settings; an address of a corpus; for `init`, language codes; types that a
    # format can store.
    assert set(differing) == {"--out", "--set", "--from", "--source", "--target", "--weights"}, differing
    assert differing["--source"] == differing["--target"] == {"FILE", "CODE"}
    assert not {"--output", "--samples", "--checkpoints"} & set(kinds)


@pytest.mark.parametrize("name", ["translate", "score", "align", "contrast", "evaluate", "analyse", "report"])
def test_help_says_where_results_depend_on_their_batch(invoke: Invoke, name: str) -> None:
    shown = " ".join(invoke(name, "--help").output.replace("│", " ").split())
    assert "results in float16, on a GPU, or without the CPU kernels depend slightly on" in shown


def test_help_and_completion_do_not_wait_for_torch() -> None:
    code = (
        "import sys; from jointnmt.cli.main import app; app(['--help'], standalone_mode=False);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'pydantic', 'sacrebleu')))"
    )
    assert python("-c", code).returncode == 0


def test_importing_the_package_does_not_wait_for_torch() -> None:
    code = "import sys, jointnmt; print(jointnmt.__version__); sys.exit('torch' in sys.modules)"
    result = python("-c", code)
    assert result.returncode == 0
    assert result.stdout.strip() == jointnmt.__version__


def test_importing_a_command_collects_no_garbage() -> None:
    """Each collection would traverse all objects of torch, which takes longer than translating a line."""
    code = """
import gc
collections = []
from jointnmt.cli.main import app
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
app(["translate", "--help"], standalone_mode=False)
print(max(collections, default=0) < 2, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "True True True"


def test_an_unknown_attribute_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Translater"):
        _ = jointnmt.Translater


def test_version(invoke: Invoke) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"jointnmt {jointnmt.__version__}\n")


def test_running_the_package_is_running_the_command() -> None:
    assert python("-m", "jointnmt", "--version").stdout == f"jointnmt {jointnmt.__version__}\n"


def test_completion_completes_commands() -> None:
    result = python("-m", "jointnmt", _JOINTNMT_COMPLETE="complete_bash", COMP_WORDS="jointnmt tra", COMP_CWORD="1")
    # `python -m` has another name, so the variable of the console script is also tried.
    script = subprocess.run(
        [str(Path(sys.executable).with_name("jointnmt"))],
        capture_output=True,
        text=True,
        env={**os.environ, "_JOINTNMT_COMPLETE": "complete_bash", "COMP_WORDS": "jointnmt tra", "COMP_CWORD": "1"},
    )
    assert script.stdout.split() == ["train", "translate", "translate-corpus"], result


@pytest.mark.parametrize("arguments", [["train"], ["nonsense"], ["--nonsense"], ["info", "--nonsense"], []])
def test_wrong_usage_is_2(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_mistyped_command_is_recognised(invoke: Invoke) -> None:
    assert "Did you mean 'translate'" in invoke("trasnlate").stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("model.layers: is not a known key."), 2),
        (DataError("train.de:17: this line is not valid UTF-8."), 3),
        (ModelError("run/model.safetensors: is damaged."), 4),
        (JointNMTError("something else."), 1),
        (OSError(28, "No space left on device", "run/model.safetensors"), 2),
    ],
)
def test_errors_are_one_paragraph_and_a_code(
    invoke: Invoke, command: Callable[[Callable[[], None]], None], error: Exception, code: int
) -> None:
    command(fail_with(error))
    result = invoke("info")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("jointnmt: error: ")
    assert result.stderr.count("\n") == 1
    for part in error.args[1:] if isinstance(error, OSError) else error.args:
        assert part.rstrip(".") in result.stderr


def test_a_fault_of_ours_is_1_and_says_how_to_report_it(
    invoke: Invoke, command: Callable[[Callable[[], None]], None]
) -> None:
    command(fail_with(ZeroDivisionError("division by zero")))
    result = invoke("info")
    assert result.exit_code == 1
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "--debug" in result.stderr
    assert jointnmt.__version__ in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interruption_is_130(invoke: Invoke, command: Callable[[Callable[[], None]], None]) -> None:
    command(fail_with(KeyboardInterrupt()))
    result = invoke("info")
    assert (result.exit_code, result.stderr) == (130, "jointnmt: interrupted.\n")


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_any_command_with_128_and_its_number(
    invoke: Invoke, command: Callable[[Callable[[], None]], None], number: signal.Signals
) -> None:
    inherited = signal.getsignal(number)
    if inherited == signal.SIG_IGN:  # like SIGHUP under nohup: the command would ignore it too
        signal.signal(number, signal.SIG_DFL)
    before = signal.getsignal(number)

    def info() -> None:
        os.kill(os.getpid(), number)

    command(info)
    result = invoke("info")
    by = "" if number == signal.SIGINT else f" by {number.name}"
    assert (result.exit_code, result.stderr) == (128 + number, f"jointnmt: interrupted{by}.\n")
    assert signal.getsignal(number) == before
    signal.signal(number, inherited)
    assert 128 + number in EXIT_CODES


def test_a_signal_is_named_whatever_error_it_has_led_to(
    invoke: Invoke, command: Callable[[Callable[[], None]], None]
) -> None:
    """During an import, Python and torch turn it into other errors."""

    def info() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise RecursionError from None

    command(info)
    result = invoke("info")
    assert (result.exit_code, result.stderr) == (143, "jointnmt: interrupted by SIGTERM.\n")


def test_a_training_that_was_stopped_says_so_without_calling_it_an_error(
    invoke: Invoke, command: Callable[[Callable[[], None]], None]
) -> None:
    class StoppedError(JointNMTError):
        exit_code = 130

    command(fail_with(StoppedError("stopped after update 7, saved.")))
    result = invoke("info")
    assert (result.exit_code, result.stderr) == (130, "jointnmt: stopped after update 7, saved.\n")


@pytest.mark.parametrize("arguments", [["--debug", "info"], ["info", "--debug"]])
def test_debug_shows_the_traceback(
    invoke: Invoke, command: Callable[[Callable[[], None]], None], arguments: list[str]
) -> None:
    command(fail_with(DataError("train.de: is missing.")))
    result = invoke(*arguments)
    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert "raise error" in result.stderr
    assert result.stderr.endswith("jointnmt: error: train.de: is missing.\n")


def test_debug_by_the_environment(invoke: Invoke, command: Callable[[Callable[[], None]], None]) -> None:
    command(fail_with(DataError("train.de: is missing.")))
    assert "Traceback" in invoke("info", env={"JOINTNMT_DEBUG": "1"}).stderr


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["info"], {"note", "warning"}),
        (["info", "--quiet"], {"warning"}),
        (["-q", "info"], {"warning"}),
        (["info", "-v"], {"detail", "note", "warning"}),
        (["--verbose", "info"], {"detail", "note", "warning"}),
    ],
)
def test_logs_go_to_standard_error_as_much_as_is_wanted(arguments: list[str], shown: set[str]) -> None:
    code = f"""
import logging, sys, types
module = types.ModuleType("jointnmt.cli.info")
def info():
    log = logging.getLogger("jointnmt.part")
    log.debug("detail"), log.info("note"), log.warning("warning")
    sys.stdout.write("data")
module.info = info
sys.modules["jointnmt.cli.info"] = module
from jointnmt.cli.main import app
app({arguments!r})
"""
    result = python("-c", code)
    assert result.stdout == "data"
    assert {word for word in ("detail", "note", "warning") if word in result.stderr} == shown


def test_loud_and_quiet_exclude_each_other(invoke: Invoke) -> None:
    result = invoke("-v", "-q", "info", "recipe.yaml")
    assert result.exit_code == 2
    assert "--quiet" in result.stderr


def test_flags_behind_a_double_dash_are_arguments(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def info(word: str) -> None:
        sys.stdout.write(word)

    module = ModuleType("jointnmt.cli.info")
    module.info = info  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jointnmt.cli.info", module)
    assert invoke("info", "--", "--debug").stdout == "--debug"


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_stops_early_is_no_error_message(lines: int) -> None:
    code = f"""
import sys, types
module = types.ModuleType("jointnmt.cli.info")
def info():
    for _ in range({lines}):
        sys.stdout.write("line\\n")
module.info = info
sys.modules["jointnmt.cli.info"] = module
from jointnmt.cli.main import app
app(["info"])
"""
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (process.returncode, process.stderr) == (141, "")


@pytest.mark.parametrize("command", [[], ["translate"]])
def test_help_for_a_reader_that_stops_early_exits_likewise(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "jointnmt", *command, "--help"]
    process = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (process.returncode, process.stderr) == (141, "")


def test_a_command_leaves_logging_as_it_was() -> None:
    """Programs and tests that call a command log afterwards as before."""
    package, root = logging.getLogger("jointnmt"), logging.getLogger()
    before = package.level, root.level, root.handlers[:]
    for arguments in (["--quiet", "info", "no-file"], ["--debug", "kernels", "status"]):
        CliRunner().invoke(app, arguments)
        assert (package.level, root.level, root.handlers) == before


FORBIDDEN = {
    *("datasets", "pandas", "sacrebleu", "sacremoses", "huggingface_hub", "lightning_fabric", "tensorboard", "pyarrow"),
    *("matplotlib", "jinja2", "fastapi", "langcodes", "rich", "filelock", "scipy", "requests", "httpx", "numpy"),
    *("tokenizers", "language_data"),
}
"""Packages that translating a line does not need, installed or not."""

NEEDED_FOR_A_LINE = {
    *("jointnmt", "jaxtyping", "wadler_lindig", "safetensors", "typer", "click", "shellingham", "annotated_doc"),
    *("pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions", "yaml", "colorama"),
    "typeguard",  # jaxtyping checks for it
}
"""All its imports besides torch and its packages, which determine the size of an installation for translating."""


@pytest.mark.slow
def test_translating_a_line_looks_for_no_package_that_it_does_not_need(tmp_path: Path) -> None:
    """Seconds would depend on the machine; imports, including those of packages that are not installed, do not."""
    run = write_run(tmp_path / "run")
    code = f"""
import sys
wanted = set()

class Watching:
    @staticmethod
    def find_spec(name, path=None, target=None):
        wanted.add(name.partition(".")[0])

sys.meta_path.insert(0, Watching)
import torch
of_torch = frozenset(wanted)
wanted.clear()
from jointnmt.cli.main import app
app(["translate", {str(run)!r}, "der Hund", "--device", "cpu", "--quiet"], standalone_mode=False)
sys.stdout.write(" ".join(wanted - of_torch))
"""
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    looked_for = set(result.stdout.splitlines()[-1].split())
    assert {"jointnmt", "safetensors"} <= looked_for
    assert not looked_for & FORBIDDEN
    assert not {name for name in looked_for if not name.startswith("_")} - sys.stdlib_module_names - NEEDED_FOR_A_LINE


@pytest.mark.slow
def test_a_wrong_file_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").touch()
    code = f"""
import sys
from jointnmt.cli.main import app
try:
    app(["init", {str(tmp_path / "new")!r}, "--from", {str(tmp_path / "mine.tsv")!r}])
finally:
    sys.stdout.write(" ".join(sys.modules.keys() & {{"torch", "lightning_fabric"}}))
"""
    result = python("-c", code)
    assert (result.returncode, result.stdout) == (3, ""), result.stderr
    assert "mine.tsv: is empty" in result.stderr


def test_a_text_of_several_lines_is_no_sentence(invoke: Invoke, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for text, problem in (("der Hund\ndie Katze", "several lines"), ("der\0Hund", "NUL byte")):
        result = invoke("translate", run, text)
        assert result.exit_code == DataError.exit_code and problem in result.stderr
    assert invoke("translate", run, "der Hund\n").exit_code == 0


@pytest.mark.parametrize("given", [["-"], ["--input", "-"]])
def test_a_minus_is_standard_input(invoke: Invoke, tmp_path: Path, given: list[str]) -> None:
    run = write_run(tmp_path / "run")
    assert invoke("translate", run, *given, input="der\n").stdout == invoke("translate", run, "der").stdout


def test_results_are_not_written_as_if_they_were_compressed(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("translate", write_run(tmp_path / "run"), "der", "--out", tmp_path / "out.en.gz")
    assert result.exit_code == ConfigurationError.exit_code and "Name out.en" in result.stderr
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("wrong", [["--tag", "<x>"], ["--num-best", 9]])
def test_wrong_options_do_not_touch_what_an_interrupted_call_has_left(
    invoke: Invoke, tmp_path: Path, wrong: list[object]
) -> None:
    (tmp_path / "in.de").write_text("der\n")
    part = tmp_path / "out.en.part"
    part.write_text("line\n")
    run = write_run(tmp_path / "run")
    result = invoke("translate", run, "--input", tmp_path / "in.de", "--out", tmp_path / "out.en", *wrong)
    assert result.exit_code == ConfigurationError.exit_code
    assert part.read_text() == "line\n"


def test_an_average_replaces_nothing_of_a_training(invoke: Invoke, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    model = run / "model.safetensors"
    (run / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "recipe.yaml").write_text("name: mine\n")
    for out in (run / "experiment.yaml", run / "checkpoints" / "last.safetensors", model, tmp_path / "recipe.yaml"):
        before = out.read_bytes() if out.exists() else b""
        result = invoke("average", run, "--checkpoint", model, "--out", out)
        assert result.exit_code == ConfigurationError.exit_code, result.output
        assert (out.read_bytes() if out.exists() else b"") == before
    assert invoke("average", run, "--checkpoint", model, "--out", tmp_path / "mean.safetensors").exit_code == 0


def test_a_package_that_is_broken_is_no_error_of_ours(invoke: Invoke, command: Callable[..., None]) -> None:
    def broken() -> None:
        raise ImportError("libcudart.so.12: cannot open shared object file", name="torch._C")

    command(broken)
    result = invoke("info")
    assert result.exit_code == MissingPackageError.exit_code
    assert "torch is not installed, or is broken (libcudart.so.12" in result.stderr


def test_an_ensemble_where_one_model_is_wanted_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for find, name in ((read_experiment, f"{run}+{run}"), (locate_run, "package:one+package:two")):
        with pytest.raises(ModelError, match=r"Ensembles, A\+B, are for translate"):
            find(Path(name))


def test_a_training_is_not_written_to_a_file(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    write_corpus(tmp_path)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny_recipe(tmp_path)))
    result = invoke("train", tmp_path / "recipe.yaml", "--out", tmp_path / "file")
    assert result.exit_code == ConfigurationError.exit_code, result.output
    assert (tmp_path / "file").read_text() == "text"
