"""Reading parallel text: every format gives the same pairs, and nothing is lost silently."""

import bz2
import gzip
import json
import logging
import lzma
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from jointnmt.data.corpus import DataConfig, ParallelText
from jointnmt.data.filters import FilterReport
from jointnmt.data.pairs import read_pairs
from jointnmt.errors import ConfigurationError, DataError

SOURCES = ["ein Haus", "zwei Häuser", "drei\u2028Zeilen\x0bkeine\x85"]
TARGETS = ["a house", "two houses", "three lines, not"]
PAIRS = list(zip(SOURCES, TARGETS, strict=True))


def config(root: Path, *texts: dict[str, Any], **filters: Any) -> DataConfig:
    return DataConfig.parse(
        {"root": root, "source_language": "de", "target_language": "en", "train": texts, "filters": filters}, "test"
    )


def read(data: DataConfig, report: FilterReport | None = None) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(data.train, data, report)]


def two_files(root: Path, source: bytes, target: bytes, **filters: Any) -> DataConfig:
    (root / "a.de").write_bytes(source)
    (root / "a.en").write_bytes(target)
    return config(root, {"source": "a.de", "target": "a.en"}, **filters)


def joined(lines: list[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".GZ", gzip.compress)],
)
class TestFormats:
    def test_two_files(self, tmp_path: Path, suffix: str, compress: Any) -> None:
        (tmp_path / f"a.de{suffix}").write_bytes(compress(joined(SOURCES)))
        (tmp_path / f"a.en{suffix}").write_bytes(compress(joined(TARGETS)))
        assert read(config(tmp_path, {"source": f"a.de{suffix}", "target": f"a.en{suffix}"})) == PAIRS

    def test_tsv(self, tmp_path: Path, suffix: str, compress: Any) -> None:
        rows = [f"{target}\tx\t{source}" for source, target in PAIRS]
        (tmp_path / f"a.b.tsv{suffix}").write_bytes(compress(joined(rows)))
        assert read(config(tmp_path, {"path": f"a.b.tsv{suffix}", "source_field": 2, "target_field": 0})) == (PAIRS)

    def test_json_lines(self, tmp_path: Path, suffix: str, compress: Any) -> None:
        rows = [json.dumps({"id": 1, "pair": {"de": s, "en": t}}, ensure_ascii=False) for s, t in PAIRS]
        (tmp_path / f"a.jsonl{suffix}").write_bytes(compress(joined(rows)))
        text = {"path": f"a.jsonl{suffix}", "source_field": "pair.de", "target_field": "pair.en"}
        assert read(config(tmp_path, text)) == PAIRS


def test_default_fields(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\tmore\n")
    (tmp_path / "a.jsonl").write_text('{"target": "two", "source": "zwei"}\n')
    assert read(config(tmp_path, {"path": "a.tsv"}, {"path": "a.jsonl"})) == [("eins", "one"), ("zwei", "two")]


def test_keys_may_have_dots_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text.de": "zwei", "text": {"de": "other", "x.en": "two"}}\n')
    assert read(config(tmp_path, {"path": "a.jsonl", "source_field": "text.de", "target_field": "text.x.en"})) == [
        ("zwei", "two")
    ]


def test_a_file_of_pairs_may_have_a_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress(b"\xef\xbb\xbfeins\tone\r\nzwei\ttwo"))
    assert read(config(tmp_path, {"path": "a.tsv.xz"})) == [("eins", "one"), ("zwei", "two")]
    backwards = {"path": "a.tsv.xz", "source_field": 1, "target_field": 0}
    assert read(config(tmp_path, backwards)) == [("one", "eins"), ("two", "zwei")]


def test_byte_order_mark_carriage_returns_and_a_missing_last_line_end(tmp_path: Path) -> None:
    data = two_files(tmp_path, b"\xef\xbb\xbfeins\r\nzwei\r\n", b"one\ntwo")
    assert read(data) == [("eins", "one"), ("zwei", "two")]


def test_pairs_say_where_they_stand(tmp_path: Path) -> None:
    data = two_files(tmp_path, b"eins\nzwei\n", b"one\ntwo\n")
    assert [pair.origin for pair in read_pairs(data.train, data)] == [f"{tmp_path}/a.de:1", f"{tmp_path}/a.de:2"]


def test_relative_paths_start_from_root_and_absolute_ones_do_not(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    two_files(tmp_path / "folder", b"eins\n", b"one\n")
    text = {"source": "a.de", "target": tmp_path / "folder" / "a.en"}
    assert read(config(Path("folder"), text)) == [("eins", "one")]


@pytest.mark.parametrize(("source_lines", "target_lines"), [(2, 5), (5, 2), (0, 1)])
def test_unequal_line_counts_are_an_error_with_both_counts(
    tmp_path: Path, source_lines: int, target_lines: int
) -> None:
    data = two_files(tmp_path, b"x\n" * source_lines, b"y\n" * target_lines, invalid="drop", empty="drop")
    with pytest.raises(DataError) as caught:
        read(data)
    longer, shorter = ("a.en", "a.de") if target_lines > source_lines else ("a.de", "a.en")
    most, least = max(source_lines, target_lines), min(source_lines, target_lines)
    assert f"{longer}:{least + 1}: " in str(caught.value)
    assert f"{longer} has {most} lines" in str(caught.value)
    assert f"{shorter} has {least}" in str(caught.value)


BAD_PAIRS = {
    "invalid UTF-8": ("invalid", b"gut\nb\xfcse\n", b"good\nbad\n", "a.de:2"),
    "NUL byte": ("invalid", b"gut\nschlecht\n", b"good\nb\0d\n", "a.en:2"),
    "empty source": ("empty", b"gut\n\n", b"good\nbad\n", "a.de:2"),
    "empty target": ("empty", b"gut\nschlecht\n", b"good\n \xe2\x80\x83\t\n", "a.en:2"),
}


@pytest.mark.parametrize("reason", BAD_PAIRS)
def test_bad_pairs_are_an_error_or_are_dropped_and_counted(tmp_path: Path, reason: str, caplog: Any) -> None:
    kind, source, target, place = BAD_PAIRS[reason]
    with pytest.raises(DataError, match=rf"{place}: {reason}.*data\.filters\.{kind}=drop"):
        read(two_files(tmp_path, source, target))

    data = two_files(tmp_path, source, target, **{kind: "drop"})
    report = FilterReport()
    assert read(data, report) == [("gut", "good")]
    assert (report.read, report.kept, report.removed) == (2, 1, {reason: 1})
    assert report.examples[reason] == f"{tmp_path}/{place}"

    with caplog.at_level(logging.WARNING):
        read(data)
    assert reason in caplog.text


BAD_LINES = {
    "a.tsv": [
        ("only one column", "no column 1"),
        ("\t\t", "another number of columns than before, 3 instead of 2"),
        ("a\ttab\ttoo many", "another number of columns than before, 3 instead of 2"),
    ],
    "a.jsonl": [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no string under the key 'source'"),
        ('{"source": "x"}', "no string under the key 'target'"),
        ('{"source": 1, "target": "y"}', "no string under the key 'source'"),
        (r'{"source": "\u0000", "target": "y"}', "NUL byte"),
        (r'{"source": "\ud800", "target": "y"}', "half of a surrogate pair"),
    ],
}


@pytest.mark.parametrize(("name", "line", "reason"), [(name, *case) for name in BAD_LINES for case in BAD_LINES[name]])
def test_bad_lines_in_files_of_pairs(tmp_path: Path, name: str, line: str, reason: str) -> None:
    good = "x\ty" if name == "a.tsv" else '{"source": "x", "target": "y"}'
    (tmp_path / name).write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(DataError, match=f"{name}:2: {reason}"):
        read(config(tmp_path, {"path": name}))
    report = FilterReport()
    assert len(read(config(tmp_path, {"path": name}, invalid="drop"), report)) == 2
    assert sum(report.removed.values()) == 1


@pytest.mark.parametrize(
    ("name", "lines", "reason"),
    [
        ("a.tsv", ["", " ", "\u200b", "\r"], "empty line"),
        ("a.jsonl", ["", " \t", "\u200b", "\r"], "empty line"),
        ("a.tsv", ["\t"], "empty source"),
    ],
)
def test_a_blank_line_in_a_file_of_pairs_is_empty(tmp_path: Path, name: str, lines: list[str], reason: str) -> None:
    good = "x\ty" if name == "a.tsv" else '{"source": "x", "target": "y"}'
    for line in lines:
        (tmp_path / name).write_text(f"{line}\n{good}\n{line}\n", newline="")
        with pytest.raises(DataError, match=rf"{name}:1: {reason}.*data\.filters\.empty=drop"):
            read(config(tmp_path, {"path": name}, invalid="drop"))
        report = FilterReport()
        assert read(config(tmp_path, {"path": name}, empty="drop"), report) == [("x", "y")]
        assert report.removed == {reason: 2}


@pytest.mark.parametrize("compression", [gzip, lzma, bz2])
@pytest.mark.parametrize("damage", ["truncated", "altered", "not compressed"])
def test_damaged_compression_is_an_error(tmp_path: Path, compression: Any, damage: str) -> None:
    whole = compression.compress(b"".join(b"%d\n" % (i * i) for i in range(10_000)))
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 0xFF
    content = {"truncated": whole[:-100], "altered": bytes(altered), "not compressed": b"text\n" * 100}[damage]
    name = {gzip: "a.de.gz", lzma: "a.de.xz", bz2: "a.de.bz2"}[compression]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "a.en").write_bytes(b"y\n" * 10_000)
    with pytest.raises(DataError, match=rf"{name}"):
        read(config(tmp_path, {"source": name, "target": "a.en"}, invalid="drop"))


def test_missing_file_and_folder_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.en").mkdir()
    (tmp_path / "b.en").write_text("y\n")
    with pytest.raises(DataError, match=r"a\.de: the file cannot be read"):
        read(config(tmp_path, {"source": "a.de", "target": "b.en"}))
    with pytest.raises(DataError, match=r"a\.en: the file cannot be read"):
        read(config(tmp_path, {"source": "b.en", "target": "a.en"}))


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("jointnmt.data.corpus.MAX_LINE_BYTES", 100)
    with pytest.raises(DataError, match=r"a\.de:2: .* longer than 100 bytes"):
        read(two_files(tmp_path, b"x\n" + b"x" * 1000, b"y\ny\n"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    data = two_files(tmp_path, b"ein Satz von einiger Laenge\n" * 10_000, b"a sentence of some length\n" * 10_000)
    pairs = read_pairs(data.train, data)
    list(islice(pairs, 1000))
    tracemalloc.start()
    for _ in pairs:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000  # bytes; the text has 540,000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "none of them"),
        ({"source": "a"}, "given: source"),
        ({"source": "a", "target": "b", "path": "c.tsv"}, "source, target, path"),
        ({"path": "a.txt"}, "a.txt should end in .tsv or .jsonl"),
        ({"path": "a.gz"}, "a.gz should end in .tsv or .jsonl"),
        ({"path": "a.tsv", "source_field": "de"}, "source_field of a.tsv .* 'de'"),
        ({"path": "a.tsv", "target_field": -1}, "target_field of a.tsv .* -1"),
        ({"path": "a.jsonl", "target_field": 1}, "target_field of a.jsonl .* 1"),
        ({"source": "a", "target": "b", "source_field": 1}, "go with path"),
        ({"path": "a.tsv", "source_field": 1}, "source and target of a.tsv would both be 1"),
        ({"path": "a.jsonl", "target_field": "source"}, "would both be 'source'"),
    ],
)
def test_wrong_descriptions_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ParallelText.parse(values, "test")


def test_no_training_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="train"):
        config(Path())
