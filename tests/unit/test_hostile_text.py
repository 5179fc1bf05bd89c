"""Lines that cannot be translated, outputs that are resumed, and limits on untrusted text."""

from __future__ import annotations

import fcntl
import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.data.corpus import lines_of_stream
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.search import SearchConfig
from jointnmt.serving.settings import Limits
from jointnmt.translator import TextLimits, TranslationOptions, Translator
from support.tiny_run import write_run

Invoke = Callable[..., Result]

GOOD = ["der Hund sieht die Katze .", "die Katze", "und", "", "der Hund hört nicht !"]
LONG = "und " * 30
BAD = {"utf-8": b"\xff\xfe", "NUL": b"und\0", "long": LONG.encode()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), model={"max_length": 20})


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run, "cpu")


@pytest.fixture
def invoke(run: Path) -> Invoke:
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})

    def call(*arguments: object, text: bytes = b"") -> Result:
        return runner.invoke(app, ["translate", str(run), "--device", "cpu", *map(str, arguments)], input=text)

    return call


def with_bad(bad: bytes) -> bytes:
    return b"\n".join([*(line.encode() for line in GOOD), bad, b"und", b""])


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_was_read_before_an_invalid_line_comes_out_first(
    invoke: Invoke, translator: Translator, bad: bytes
) -> None:
    result = invoke(text=with_bad(bad))
    assert result.exit_code == 3
    assert "standard input:6: " in " ".join(result.stderr.split())
    assert result.stdout.splitlines() == translator.translate(GOOD)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_invalid_line_is_skipped_and_counted_if_that_is_wanted(
    invoke: Invoke, translator: Translator, bad: bytes
) -> None:
    result = invoke("--on-invalid", "skip", text=with_bad(bad))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [*translator.translate(GOOD), "", *translator.translate(["und"])]
    said = " ".join(result.stderr.split())
    assert "1 of 7 lines could not be translated and were left empty. The first: standard input:6: " in said
    as_json = invoke("--on-invalid", "skip", "--json", text=with_bad(bad)).stdout
    records = [json.loads(line) for line in as_json.splitlines()]
    assert ["error" in record for record in records] == [False] * 5 + [True, False]
    assert records[5]["translation"] == ""


def test_skipping_goes_on_with_prefixes(invoke: Invoke, tmp_path: Path) -> None:
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("\nthe\nthe\nthe the the the the the the the the the the the\n", encoding="utf-8")
    result = invoke("--on-invalid", "skip", "--prefix", prefixes, text=b"und\n\xff\nHund\nund\n")
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines), lines[1], lines[3]) == (0, 4, "", "")
    assert lines[2].startswith("the")


def test_a_line_that_fails_to_be_read_comes_after_those_before(translator: Translator) -> None:
    def texts() -> Iterator[str]:
        yield from GOOD
        raise OSError("the disk is gone")

    found = []
    with pytest.raises(OSError, match="gone"):
        for translation in translator.translate_stream(texts()):
            found.append(translation.text)
    assert found == translator.translate(GOOD)


def test_half_a_character_is_one_lines_error(translator: Translator) -> None:
    found = list(translator.translate_stream(["und", "\ud800", "und"], TranslationOptions(on_invalid="skip")))
    assert [each.error is None for each in found] == [True, False, True]
    with pytest.raises(DataError, match=r"^input:2: holds an unpaired surrogate"):
        translator.translate(["und", "\ud800", "und"])


def test_a_line_of_standard_input_is_as_long_as_one_of_a_file_may_be(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.data.corpus.MAX_LINE_BYTES", 60)
    text = b"und\n" + b"x" * 10_000 + b"\nund\n"
    (tmp_path / "text").write_bytes(text)
    for arguments in ([], ["--input", tmp_path / "text"]):
        result = invoke(*arguments, text=text)
        assert (result.exit_code, len(result.stdout.splitlines())) == (3, 1)
        assert ":2: this line is longer than 60 bytes" in " ".join(result.stderr.split())
        assert len(invoke(*arguments, "--on-invalid", "skip", text=text).stdout.splitlines()) == 3


def test_no_more_of_a_line_is_held_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jointnmt.data.corpus.MAX_LINE_BYTES", 10)
    text = b"\xef\xbb\xbfab\r\n" + b"0123456789\n" + b"x" * 11 + b"\n" + b"y" * 95 + b"\n\n" + b"z" * 30
    lines = list(lines_of_stream(io.BytesIO(text), "text"))
    assert lines == [b"ab", b"0123456789", b"x" * 11, b"y" * 11, b"", b"z" * 11]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.de"
    path.write_text("".join(f"{'und ' * (1 + n % 7)}{['Hund', 'Katze'][n % 2]}\n" for n in range(60)))
    return path


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Lets the next translations end with Ctrl-C after so many lines."""
    translate = Translator.translate_stream

    def after(lines: int | None) -> None:
        def stream(self: Translator, *arguments: Any) -> Iterator[Any]:
            yield from islice(translate(self, *arguments), lines)
            if lines is not None:
                raise KeyboardInterrupt

        monkeypatch.setattr(Translator, "translate_stream", stream)

    return after


N_BEST, SAMPLES = ["--num-best", "3"], ["--sample", "--seed", "3"]
STOPS = [([], 0, 0), ([], 20, 1), ([], 60, 0), (["--json"], 45, 30), (N_BEST, 1, 0), (N_BEST, 20, 1), (SAMPLES, 45, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "lines", "lost"), STOPS)
def test_a_translation_to_a_file_goes_on(
    invoke: Invoke, interrupt: Callable[[int | None], None], source: Path, form: list[str], lines: int, lost: int
) -> None:
    """Wherever it stopped, even with half a line left by a killed process or lost machine, the result is the same."""
    whole, out = source.with_name("whole"), source.with_name("out")
    assert invoke("--input", source, "--out", whole, "--resume", *form).exit_code == 0
    arguments = ["--input", source, "--out", out, *form]
    interrupt(lines)
    stopped = invoke(*arguments)
    assert stopped.exit_code == 130
    assert "the same command with --resume continues" in " ".join(stopped.stderr.split())
    part = source.with_name("out.part")
    part.write_bytes(part.read_bytes()[: part.stat().st_size - lost])
    interrupt(None)
    result = invoke(*arguments, "--resume")
    assert result.exit_code == 0, result.stderr
    assert out.read_bytes() == whole.read_bytes()
    assert {path.name for path in source.parent.iterdir()} == {"text.de", "whole", "out"}
    if lines == 20 and not form:
        assert "continuing after line 19" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_a_file_of_another_input_or_other_options_is_not_gone_on_with(
    invoke: Invoke, interrupt: Callable[[int | None], None], source: Path
) -> None:
    arguments = ["--input", source, "--out", source.with_name("out")]
    interrupt(20)
    invoke(*arguments)
    interrupt(None)
    part = source.with_name("out.part").read_bytes()
    assert "beam_size: 3 -> 2" in refusal(invoke(*arguments, "--resume", "--beam", 2))
    text = source.read_bytes()
    source.write_bytes(text.replace(b"Hund", b"Katze"))
    assert "input: " in refusal(invoke(*arguments, "--resume"))
    source.write_bytes(text)
    source.with_name("out.part.json").write_text("{")
    assert "missing or damaged" in refusal(invoke(*arguments, "--resume"))
    assert source.with_name("out.part").read_bytes() == part
    assert invoke(*arguments).exit_code == 0  # from the beginning
    assert "--input and --out" in refusal(invoke("--resume", "--out", source, text=b"und"))
    assert "no pipes" in refusal(invoke("--resume", "--input", source, "--out", "/dev/null"))


def refusal(result: Result) -> str:
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


def test_two_processes_do_not_write_one_file(invoke: Invoke, source: Path) -> None:
    out = source.with_name("out")
    with source.with_name("out.part").open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert "another process is writing it" in refusal(invoke("--input", source, "--out", out))


def test_untrusted_lines_cost_no_more_than_their_limits(invoke: Invoke, tmp_path: Path) -> None:
    text = b"und\n" + b"x" * 5001 + b"\nund und und\nund\n"
    limits = ["--untrusted", "--limit", "sentence_tokens=3", "--on-invalid", "skip"]
    result = invoke(*limits, text=text)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [bool(line) for line in lines] == [True, False, False, True]
    assert "standard input:2: A line has 5001 characters; at most 5000 are taken." in " ".join(result.stderr.split())
    assert "at most 16 is taken" in refusal(invoke("--untrusted", "--beam", 17, text=text))
    assert "--untrusted" in refusal(invoke("--limit", "beam_size=3", text=text))
    assert "beamsize" in refusal(invoke("--untrusted", "--limit", "beamsize=3", text=text))
    assert "--limit beam_size: expected" in refusal(invoke("--untrusted", "--limit", "beam_size", text=text))
    cells = invoke("--untrusted", "--limit", "sentence_cells=10", text=b"und\n")
    assert (cells.exit_code, cells.stdout) == (3, "")
    assert "needs up to 30 cells (3 hypotheses, 5 target tokens); at most 10" in " ".join(cells.stderr.split())


def test_of_a_line_that_is_too_long_nothing_is_held(translator: Translator) -> None:
    options = TranslationOptions(limits=TextLimits(), on_invalid="skip")
    (found,) = translator.translate_stream(["x" * 100_000], options)
    assert found.source == ""
    assert "100000 characters" in str(found.error)


def test_the_limits_of_the_server_are_those_of_untrusted_text() -> None:
    assert issubclass(Limits, TextLimits)
    assert Limits().plain().items() >= TextLimits().plain().items()


def test_a_search_beyond_the_limits_is_refused(translator: Translator) -> None:
    options = TranslationOptions(SearchConfig(beam_size=20), limits=TextLimits())
    with pytest.raises(ConfigurationError, match="beam_size is 20"):
        list(translator.translate_stream(["und"], options))
