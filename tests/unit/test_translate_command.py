"""`jointnmt translate` and `jointnmt score`: streams, files, formats, wrong input."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.translator import Translator
from support.tiny_run import write_run

TEXT = "der Hund sieht die Katze .\n\ndie Katze\nder Hund hört die Katze nicht und die Katze sieht der Hund !\n"
LINES = TEXT.splitlines()

Invoke = Callable[..., Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), model={"max_length": 20})


@pytest.fixture
def invoke(run: Path) -> Invoke:
    """Runs a command on the run, in this process."""
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})

    def call(command: str, *arguments: object, text: str | bytes = TEXT) -> Result:
        every = [command, str(run), "--device", "cpu", *map(str, arguments)]
        return runner.invoke(app, every, input=text)

    return call


@pytest.fixture
def expected(run: Path) -> list[str]:
    return Translator.load(run, "cpu").translate(LINES)


def test_translates_standard_input_to_standard_output(invoke: Invoke, expected: list[str]) -> None:
    assert all(expected[n] for n in (0, 2, 3)), "the random model has something to say"
    result = invoke("translate")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == expected
    assert "4 lines in" in result.stderr
    assert invoke("translate", text=TEXT.replace("\n", "\r\n").removesuffix("\r\n")).stdout == result.stdout
    assert invoke("translate", text=b"\xef\xbb\xbf" + TEXT.encode()).stdout == result.stdout
    assert invoke("translate", "--window", 1, "--batch-cells", 1).stdout == result.stdout
    assert invoke("translate", text="").stdout == ""


def test_translates_files(invoke: Invoke, expected: list[str], tmp_path: Path) -> None:
    source, target = tmp_path / "text.de.gz", tmp_path / "text.en"
    source.write_bytes(gzip.compress(TEXT.encode()))
    result = invoke("translate", "--input", source, "--out", target)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert target.read_text().splitlines() == expected
    assert set(tmp_path.iterdir()) == {source, target}


def test_text_on_the_command_line_is_translated_at_once(
    invoke: Invoke, expected: list[str], tmp_path: Path, run: Path
) -> None:
    result = invoke("translate", LINES[0], "--text", LINES[2], "--text", LINES[3], text="")
    assert result.exit_code == 0, result.stderr
    assert "a second" not in result.stderr
    assert result.stdout.splitlines() == [expected[0], *expected[2:4]]
    (tmp_path / "de").write_text(TEXT)
    for refused, reason in (
        ([tmp_path / "de"], "is a file. To translate its lines, name it by --input"),
        ([run], "is a RUN too. For an ensemble of several, write A+B"),
        (["package:tatoeba-de-en-transformer"], "is a RUN too"),
        ([LINES[0], "--input", tmp_path / "de"], "either as arguments or by --input"),
        (["--input", tmp_path / "de", "--input", tmp_path / "de"], "given twice"),
        (["--input", ""], "is empty, and should name a file"),
        ([LINES[0], "--out", ""], "is empty, and should name a file"),
    ):
        result = invoke("translate", *refused)
        assert (result.exit_code, result.stdout) == (2, "")
        assert reason in " ".join(result.stderr.split())
    assert "text:2: a sentence has" in invoke("translate", "und", "Hund sieht die Katze " * 6).stderr
    assert "text:1: a sentence has" in invoke("translate", "Hund sieht die Katze " * 99).stderr  # too long for a name


def test_text_is_split_into_sentences_and_lines_of_files_are_not(invoke: Invoke, tmp_path: Path) -> None:
    sentences = ["Hund sieht .", "Katze hört ."]
    by_sentence = " ".join(invoke("translate", text="\n".join(sentences)).stdout.splitlines())
    line = " ".join(sentences)
    as_one, given = invoke("translate", text=line), invoke("translate", line)
    assert given.stdout == invoke("translate", "--split", "always", text=line).stdout == f"{by_sentence}\n"
    assert as_one.stdout == invoke("translate", "--split", "never", line).stdout != given.stdout
    (tmp_path / "prefix").write_text("not\n")
    begun = invoke("translate", line, "--prefix", tmp_path / "prefix")
    assert begun.exit_code == 0 and begun.stdout.startswith("not "), "what has one prefix is one"
    refused = invoke("translate", line, "--prefix", tmp_path / "prefix", "--split", "always")
    assert refused.exit_code == 3 and "--split never" in " ".join(refused.stderr.split())
    several = "1 of 1 lines hold several sentences, and were translated as one"
    assert several in " ".join(as_one.stderr.split()) and several not in " ".join(given.stderr.split())


def test_the_last_of_two_settings_counts(invoke: Invoke) -> None:
    """As for any command, for aliases with one's own settings; files are different."""
    assert invoke("translate", "--beam", 3, "--beam", 1).stdout == invoke("translate", "--beam", 1).stdout


@pytest.mark.slow
def test_a_terminal_is_greeted_and_ctrl_d_ends(run: Path, expected: list[str]) -> None:
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "jointnmt", "translate", str(run), "--device", "cpu"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    said = read_until(main, "de> ")
    assert "run" in said and "reformer-fast, de to en, " in said and "Ctrl-D ends" in said
    os.write(main, f"{LINES[0]}\n".encode())
    assert f"\r\n{expected[0]}\r\n" in read_until(main, "de> ")
    os.write(main, ("Hund sieht die Katze " * 6 + "\n").encode())
    assert "too long" in read_until(main, "de> ").replace("at most", "too long")  # the conversation continues
    os.write(main, b"\x04")
    assert process.wait(120) == 0
    os.close(main)


def read_until(descriptor: int, end: str) -> str:
    """Output of a terminal up to a prompt."""
    said = ""
    while not said.endswith(end):
        said += os.read(descriptor, 4096).decode()
    return said


def test_an_unfinished_file_does_not_get_the_name_of_a_finished_one(invoke: Invoke, tmp_path: Path) -> None:
    target = tmp_path / "text.en"
    result = invoke("translate", "-o", target, "--window", 1, text=TEXT.encode() + b"\xff\n")
    assert result.exit_code == 3
    assert not target.exists()
    assert len((tmp_path / "text.en.part").read_text().splitlines()) == 4
    assert "text.en.part" in " ".join(result.stderr.split())


def test_json_gives_everything(invoke: Invoke, expected: list[str]) -> None:
    result = invoke("translate", "--json", "--alignments", "--num-best", 2)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["translation"] for record in records] == expected
    assert [record["source"] for record in records] == LINES
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    empty = {"score": 0.0, "log_probability": 0, "tokens": [], "token_log_probabilities": [], "source_tokens": []}
    assert records[1] == {"line": 2, "source": "", "translation": "", "complete": True, "n_best": [], **empty}
    for record in (records[0], records[2], records[3]):
        assert record["source_tokens"] == [*record["source"].split(), "</s>"]
        assert len(record["tokens"]) == len(record["token_log_probabilities"]) == len(record["alignment"])
        assert record["score"] == pytest.approx(record["log_probability"] / len(record["tokens"]))
        assert len(record["n_best"]) == 2
        assert record["n_best"][0]["translation"] == record["translation"]


def test_gates_are_told_layer_by_layer(tmp_path: Path, invoke: Invoke) -> None:
    shortcuts = {"places": ["prenet", "target"]}
    run = write_run(tmp_path / "gated", model={"shortcuts": shortcuts, "num_layers": 2})
    result = CliRunner().invoke(app, ["translate", str(run), "--json", "--gates"], input=TEXT)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert "gates" not in records[1]
    for record in (records[0], records[2], records[3]):
        assert {place: len(layers) for place, layers in record["gates"].items()} == {"prenet": 1, "target": 2}
        assert all(0 < layer[side] < 1 for layer in record["gates"]["target"] for side in ("keys", "values"))
    refused = invoke("translate", "--json", "--gates")
    assert refused.exit_code == 2
    assert "no lexical shortcuts" in " ".join(refused.stderr.split())


def test_n_best_lines_have_number_and_score(invoke: Invoke, expected: list[str]) -> None:
    rows = [line.split("\t") for line in invoke("translate", "--num-best", 2).stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3", "4", "4"]
    assert [rows[n][2] for n in (0, 2, 3, 5)] == expected
    assert all(float(rows[n][1]) >= float(rows[n + 1][1]) for n in (0, 3, 5))


def test_search_can_be_changed(invoke: Invoke, run: Path) -> None:
    greedy = invoke("translate", "--beam", 1).stdout
    assert greedy == invoke("translate", "--sample", "--top-k", 1).stdout
    short = invoke("translate", "--max-length-factor", 0, "--max-length-offset", 2)
    assert all(len(line.split()) <= 1 for line in short.stdout.splitlines())
    assert "reached the maximum length" in " ".join(short.stderr.split())
    samples = invoke("translate", "--sample", "--temperature", 2, "--top-p", 0.99, "--seed", 3).stdout
    assert samples == invoke("translate", "--sample", "--temperature", 2, "--top-p", 0.99, "--seed", 3).stdout
    assert samples != invoke("translate", "--sample", "--temperature", 2, "--top-p", 0.99, "--seed", 4).stdout
    assert "<unk>" not in invoke("translate", "--no-unknown", "--beam", 10, "--num-best", 10).stdout


def test_prefixes_come_from_a_file(invoke: Invoke, tmp_path: Path) -> None:
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("the cat\n\nnot\n\n")
    lines = invoke("translate", "--prefix", prefixes).stdout.splitlines()
    assert lines[0].startswith("the cat")
    assert lines[2].startswith("not")
    prefixes.write_text("the cat\n")
    result = invoke("translate", "--prefix", prefixes)
    assert result.exit_code == 3
    assert "standard input: there are more lines than target prefixes" in " ".join(result.stderr.split())


def test_long_lines_are_split_when_asked(invoke: Invoke) -> None:
    text = "Hund sieht die Katze . " * 6 + "\n"
    refused = invoke("translate", text="und\n" + text)
    assert refused.exit_code == 3
    assert "standard input:2: a sentence has 31 tokens" in refused.stderr
    single = invoke("translate", text="Hund sieht die Katze .\n").stdout.strip()
    assert invoke("translate", "--split", "long", text=text).stdout.strip() == " ".join([single] * 6)


@pytest.mark.slow
def test_a_closed_standard_output_matters_only_where_it_is_written_to(
    run: Path, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "de").write_text(TEXT)
    command = [sys.executable, "-m", "jointnmt", "translate", str(run), "-i", str(tmp_path / "de"), "--device", "cpu"]
    shell = ["sh", "-c", '"$@" >&-', "sh", *command]
    refused = subprocess.run(shell, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert (refused.returncode, "Standard output is closed" in refused.stderr) == (2, True), refused.stderr
    written = subprocess.run([*shell, "-o", str(tmp_path / "en")], capture_output=True, text=True)
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "en").read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("arguments", "text", "code", "message"),
    [
        (["--alignments"], TEXT, 2, "--alignments needs --json"),
        (["--gates"], TEXT, 2, "--gates needs --json"),
        (["--temperature", "0.5"], TEXT, 2, "--temperature is for sampling: add --sample"),
        (["--seed", "0"], TEXT, 2, "--seed is for sampling: add --sample"),
        (["--sample", "--beam", "2"], TEXT, 2, "--beam does not go with --sample"),
        (["--sample", "--top-p", "0"], TEXT, 2, "top_p"),
        (["--num-best", "4"], TEXT, 2, "beam_size is 3"),
        (["--device", "nonsense"], TEXT, 2, "'nonsense'"),
        ([], b"gut\n" + "schön\n".encode("latin-1"), 3, "standard input:2: is not valid UTF-8 (byte 4"),
        ([], "a\0b\n", 3, "standard input:1: holds a NUL byte"),
        (["--input", "nowhere.txt"], "", 3, "nowhere.txt"),
    ],
)
def test_wrong_use_and_wrong_input_have_their_exit_codes(
    invoke: Invoke, arguments: list[str], text: str | bytes, code: int, message: str
) -> None:
    result = invoke("translate", *arguments, text=text)
    assert result.exit_code == code, result.stderr
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["translate", "score", "align"])
@pytest.mark.parametrize("unfinished", ["", ".part", ".part.json"])
def test_a_file_that_is_read_is_not_written_over(invoke: Invoke, tmp_path: Path, command: str, unfinished: str) -> None:
    source, target = tmp_path / "de", tmp_path / "en"
    source.write_text("und\n")
    (tmp_path / f"en{unfinished}").symlink_to(source)
    read = ["--input", source] if command == "translate" else ["--source", source, "--target", source]
    result = invoke(command, *read, "--out", target)
    assert result.exit_code == 2 and "the result would overwrite it" in " ".join(result.stderr.split())
    assert source.read_text() == "und\n" and target.is_symlink() is not bool(unfinished)


@pytest.mark.parametrize("command", ["translate", "score", "align"])
@pytest.mark.parametrize("file", ["model.safetensors", "experiment.yaml", "segmentation/source.json"])
def test_a_file_of_a_model_is_not_written_over(invoke: Invoke, tmp_path: Path, command: str, file: str) -> None:
    text = tmp_path / "de"
    text.write_text("und\n")
    run = write_run(tmp_path / "other")
    content = (run / file).read_bytes()
    read = ["--input", text] if command == "translate" else ["--source", text, "--target", text]
    result = invoke(command, *read, "--out", run / file)
    assert result.exit_code == 2 and "belongs to the run" in " ".join(result.stderr.split())
    assert (run / file).read_bytes() == content


@pytest.mark.parametrize("folder", [".", "..", "/"])
def test_a_folder_without_a_name_is_refused_as_output(invoke: Invoke, folder: str) -> None:
    result = invoke("translate", "und", "--out", folder)
    assert result.exit_code == 2 and "is a folder" in " ".join(result.stderr.split())


def test_a_link_leads_to_the_file_that_is_written(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "en").symlink_to(tmp_path / "disk" / "english")
    (tmp_path / "de").write_text("und\n")
    assert invoke("translate", "--input", tmp_path / "de", "--out", tmp_path / "en").exit_code == 0
    assert (tmp_path / "en").is_symlink() and [each.name for each in (tmp_path / "disk").iterdir()] == ["english"]
    assert (
        invoke("score", "--source", tmp_path / "de", "--target", tmp_path / "de", "--out", tmp_path / "en").exit_code
        == 0
    )
    assert (tmp_path / "en").is_symlink() and "-" in (tmp_path / "disk" / "english").read_text()


def test_a_full_disk_is_named(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "de").write_text("und\n")
    result = invoke("translate", "--input", tmp_path / "de", "--out", "/dev/full")
    assert result.exit_code == 2 and "/dev/full: No space left on device" in " ".join(result.stderr.split())


def test_a_prefix_that_is_no_text_is_an_invalid_line(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "de").write_text("und\nund\nund\n")
    (tmp_path / "prefix").write_bytes(b"\n\xff\n\n")
    files = "--input", tmp_path / "de", "--prefix", tmp_path / "prefix"
    result = invoke("translate", *files, "--on-invalid", "skip")
    assert (
        result.exit_code == 0
        and result.stdout.splitlines()[1] == ""
        and "prefix:2: is not valid UTF-8" in result.stderr
    )
    assert invoke("translate", *files).exit_code == 3


def test_what_nobody_sees_is_an_empty_target(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("und\n\u200b\n", encoding="utf-8")
    for command in ("score", "align"):
        assert invoke(command, "--source", tmp_path / "text", "--target", tmp_path / "text").exit_code == 0


def test_what_an_interrupted_call_has_left_is_not_discarded_in_silence(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "de").write_text(TEXT)
    (tmp_path / "en.part").write_text("and\n")
    files = "--input", tmp_path / "de", "--out", tmp_path / "en"
    assert "--resume would have continued it" in " ".join(invoke("translate", *files).stderr.split())
    assert "--resume" not in invoke("translate", *files).stderr


def test_what_mends_a_line_may_change_on_resuming(invoke: Invoke, tmp_path: Path) -> None:
    """The finished lines had no errors; another beam would have translated them differently."""
    (tmp_path / "de").write_bytes(b"und\n" * 200 + b"\xff\nund\n")
    files = "--input", tmp_path / "de", "--out", tmp_path / "en"
    assert invoke("translate", *files).exit_code == 3
    done = (tmp_path / "en.part").read_bytes()
    assert done
    assert invoke("translate", *files, "--resume", "--on-invalid", "skip", "--beam", "2").exit_code == 2
    result = invoke("translate", *files, "--resume", "--on-invalid", "skip")
    assert result.exit_code == 0, result.stderr
    lines = (tmp_path / "en").read_bytes()
    assert lines.startswith(done) and lines.splitlines()[200:] == [b"", lines.splitlines()[0]]


def test_a_missing_model_has_its_exit_code(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["translate", str(tmp_path)], input=TEXT)
    assert result.exit_code == 4
    assert "no trained model here" in " ".join(result.stderr.split())


def test_scores_equal_those_of_translating(invoke: Invoke, tmp_path: Path) -> None:
    records = [json.loads(line) for line in invoke("translate", "--json", "--no-unknown").stdout.splitlines()]
    source, target = tmp_path / "de", tmp_path / "en"
    source.write_text(TEXT)
    target.write_text("".join(f"{record['translation']}\n" for record in records))
    result = invoke("score", "--source", source, "--target", target, "--json")
    assert result.exit_code == 0, result.stderr
    for record, line in zip(records, result.stdout.splitlines(), strict=True):
        score = json.loads(line)
        assert score["line"] == record["line"]
        assert score["target"] == record["translation"]
        assert score["log_probability"] == pytest.approx(record.get("log_probability", 0.0), abs=1e-4)
        assert score["token_log_probabilities"] == pytest.approx(record.get("token_log_probabilities", []), abs=1e-5)
        assert score["tokens"] == record.get("tokens", [])
    plain = invoke("score", "--source", source, "--target", target).stdout.splitlines()
    for record, row in zip(records, plain, strict=True):
        total, tokens = row.split("\t")
        assert float(total) == pytest.approx(sum(map(float, tokens.split())), abs=1e-4)
        assert float(total) == pytest.approx(record.get("log_probability", 0.0), abs=1e-4)


def test_texts_that_do_not_belong_together_are_not_scored(invoke: Invoke, tmp_path: Path) -> None:
    source, target = tmp_path / "de", tmp_path / "en"
    source.write_text("und\nund\n")
    target.write_text("and\n")
    result = invoke("score", "--source", source, "--target", target)
    assert result.exit_code == 3
    result = invoke("score", "--source", source, "--target", target, "--out", "-")
    assert result.exit_code == 2 and "leave it out to write to standard output" in result.stderr
    result = invoke("score", "--source", source, "--target", target)
    assert f"{source} and {target} are not parallel: 2 and 1 lines" in " ".join(result.stderr.split()).replace(
        "- ", "-"
    )
    target.write_text("and\n\n")
    source.write_text("und\n\n")
    assert invoke("score", "--source", source, "--target", target).exit_code == 0
    target.write_text("and\nand\n")
    assert invoke("score", "--source", source, "--target", target).exit_code == 3


def start(run: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jointnmt", "translate", str(run), "--device", "cpu", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.slow
def test_answers_each_line_at_once_and_stops_at_ctrl_c(run: Path, expected: list[str]) -> None:
    process = start(run, "--window", "1")
    assert process.stdin and process.stdout and process.stderr
    for line, translation in zip(LINES, expected, strict=True):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode() == f"{translation}\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert process.stderr.read().decode().strip().endswith("interrupted.")
    process.communicate()


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_quietly(run: Path) -> None:
    process = start(run, "--quiet")
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(TEXT.encode())
    process.stdin.close()
    assert process.wait(120) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
