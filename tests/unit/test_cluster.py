"""Corpora in shards, their rows in each format, folders at any address, and what a worker writes: without Ray."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import parquet

from jointnmt import errors
from jointnmt.cluster import translation
from jointnmt.cluster.corpus import InputCorpus, check_outside, shards_of
from jointnmt.cluster.rows import Format
from jointnmt.cluster.session import connected, room_for_workers
from jointnmt.cluster.shards import CorpusJob, ShardTranslator, load_packed, packed, translate_each
from jointnmt.data.corpus import cut_lines
from jointnmt.errors import ConfigurationError, DataError, JointNMTError, LostProcessError, MissingPackageError
from jointnmt.interruption import Interruption
from jointnmt.runs.storage import Folder
from jointnmt.search import SamplingConfig
from jointnmt.translator import Translation, TranslationOptions, Translator
from jointnmt.translator.options import LoadOptions
from jointnmt.translator.preprocessing import Line
from support.tiny_run import SOURCE_WORDS, write_run

BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("cluster") / "run", model={"max_length": 12})


def sentences(count: int, seed: int = 0) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(SOURCE_WORDS, k=dice.randint(0, 9))) for _ in range(count)]


def translated(run: Path, corpus: InputCorpus, out: str, shard_rows: int, **options: object) -> Folder:
    """The folder after one worker has translated every shard, in random order."""
    job = CorpusJob(corpus, out, TranslationOptions(on_invalid="skip", **options), LoadOptions("cpu"))  # type: ignore[arg-type]
    work = ShardTranslator(job, lambda: load_packed(packed([run]), job.load, threads=1))
    shards = shards_of(corpus.index(shard_rows), shard_rows)
    for shard in random.Random(1).sample(shards, len(shards)):
        work.translate(shard)
    return Folder(out)


def content(folder: Folder, under: str = "") -> bytes:
    """Content of all files of a folder, concatenated."""
    prefix = f"{under}/" if under else ""
    return b"".join(folder.read(prefix + name) or b"" for name in sorted(folder.names(under)) if "part-" in name)


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
@pytest.mark.parametrize("shard_rows", [1, 3, 4, 100])
def test_shards_of_text_have_every_line_once_in_order(
    packing: str, end: bytes, shard_rows: int, tmp_path: Path
) -> None:
    data = BOM + b"a\r\n\nb c\n" + BOM + b"d\n\xff\ne\r\r\nf\ng" + end
    path = tmp_path / ("x.txt" if packing == "plain" else "x.txt.gz")
    path.write_bytes(data if packing == "plain" else gzip.compress(data))
    corpus = InputCorpus.find(str(path))
    files = corpus.index(shard_rows)
    shards = shards_of(files, shard_rows)
    rows = [corpus.read(shard) for shard in shards]
    expected = [line.decode("utf-8", errors="replace") for line in cut_lines(path)]
    assert [each.raw(i) for each in rows for i in range(len(each.texts))] == expected
    assert [shard.rows for shard in shards[:-1]] == [shard_rows] * (len(shards) - 1)
    assert files[0].rows == len(expected)
    wrong = [text for each in rows for text in each.texts if isinstance(text, DataError)]
    assert [str(each).partition(": ")[0] for each in wrong] == [f"{path}:5"]


def test_shards_of_text_over_several_chunks_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{'x' * (i % 7)}\n" for i in range(200)))
    whole = InputCorpus.find(str(path)).index(9)
    monkeypatch.setattr("jointnmt.cluster.corpus.CHUNK_BYTES", 11)
    assert InputCorpus.find(str(path)).index(9) == whole


def test_an_empty_file_has_no_shard(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(BOM)
    assert shards_of(InputCorpus.find(str(tmp_path)).index(3), 3) == []


@pytest.mark.parametrize("address", ["{}", "{}/*.txt", "{}/*/*.txt", "{}/**"])
@pytest.mark.parametrize("memory", [False, True])
def test_hidden_files_and_folders_are_none_of_a_corpus(address: str, memory: bool, tmp_path: Path) -> None:
    """Hidden folders above it are allowed."""
    root = f"memory:/{tmp_path}/_mine/.in" if memory else f"{tmp_path}/_mine/.in"
    fs, path = fsspec.core.url_to_fs(root)
    for name in ("a.txt", "b/c.txt", "_a.txt", ".a.txt", "_b/c.txt", ".b/c.txt", "b/_c.txt"):
        fs.pipe(f"{path}/{name}", b"x\n") if memory else Folder(root).write(name, b"x\n")
    found = [each.removeprefix(f"{path}/") for each in InputCorpus.find(address.format(root)).paths]
    expected = {"{}/*.txt": ["a.txt"], "{}/*/*.txt": ["b/c.txt"]}
    assert found == expected.get(address, ["a.txt", "b/c.txt"])


@pytest.mark.parametrize(
    ("address", "out", "refused"),
    [
        ("in", "in", True), ("in/", "in/out", True), ("in", "in/b/../_out", True), ("in", "inner", False),
        ("in/*.txt", "in", True), ("in/*.txt", "in/out", False), ("in/*/*.txt", "in/out", True),
        ("in/**/*.txt", "in/b/out", True), ("in/**", "in/b/out", True), ("in/a.txt", "out", False),
        ("in", "link", True),
    ],
)  # fmt: skip
def test_a_folder_within_the_input_is_refused(
    address: str, out: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\n")
    (tmp_path / "link").symlink_to("in")
    with pytest.raises(ConfigurationError, match="is within the input") if refused else nullcontext():
        check_outside(out, address)


def test_addresses_are_compared_within_a_file_system(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/within/a.txt", b"x\n")
    with pytest.raises(ConfigurationError, match="is within the input"):
        check_outside("memory://within/out", "memory://within")
    check_outside("memory://without", "memory://within")
    check_outside("/within/out", "memory://within")
    with pytest.raises(ConfigurationError, match="is within the input"):
        check_outside(f"{tmp_path}/out", f"file://{tmp_path}")


def test_json_lines_are_kept_byte_for_byte(run: Path, tmp_path: Path) -> None:
    lines = [
        '{"text": "der Hund",   "number": 1.10, "big": 123456789012345678901234567890, "x": [null, {"y": "\\u00e4"}]}',
        '{"text": ""}',
        ' {"id": 1e400 , "text": "die\\nKatze ."} ',
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = translated(run, InputCorpus.find(str(tmp_path / "in.jsonl")), str(tmp_path / "out"), 2)
    written = content(out).decode().splitlines()
    for before, after in zip(lines, written, strict=True):
        assert after.startswith(before.strip()[:-1].strip())
        assert list(json.loads(after)) == [*json.loads(before), "translation"]
    model = Translator.load(run, "cpu")
    assert [json.loads(each)["translation"] for each in written] == model.translate(["der Hund", "", "die Katze ."])


def test_rows_without_a_translation_keep_their_place_and_are_told_with_the_reason(run: Path, tmp_path: Path) -> None:
    wrong = [
        ('{"text": "der', "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"id": 7}', "has no text under 'text'"),
        ('{"id": 8, "text": null}', "has no text, but another value, in 'text'"),
        ('{"text": "der", "translation": "the"}', "already has a key 'translation'"),
        (json.dumps({"id": 9, "text": "der " * 40}), "takes at most 12"),
        ('{"text": "der\\u0000 Hund"}', "holds a NUL byte"),
    ]
    lines = ['{"text": "der Hund"}', *(line for line, _ in wrong), '{"text": "die Katze"}']
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    out = translated(run, InputCorpus.find(str(tmp_path / "in.jsonl")), str(tmp_path / "out"), 3)
    rows = [json.loads(line) for line in content(out).splitlines()]
    assert [row["translation"] is None for row in rows] == [False, *[True] * 4, False, True, True, False]
    assert rows[5] == json.loads(wrong[4][0])
    assert [row.get("id") for row in rows] == [None, None, None, 7, 8, None, 9, None, None]
    told = [json.loads(line) for line in content(out, "_untranslated").splitlines()]
    assert [each["row"] for each in told] == [2, 3, 4, 5, 6, 7, 8]
    assert [each["source"] for each in told] == [line for line, _ in wrong]
    for each, (_, reason) in zip(told, wrong, strict=True):
        assert f"in.jsonl:{each['row']}: " in each["reason"] and reason in each["reason"]


def test_tables_keep_their_columns_types_and_metadata(run: Path, tmp_path: Path) -> None:
    texts = [*sentences(20), None]
    columns = {
        "id": pa.array(range(21), pa.uint64()),
        "german": pa.array(texts).dictionary_encode(),
        "when": pa.array([10**9] * 21, pa.timestamp("us", tz="UTC")),
        "tags": pa.array([["a"], None, []] * 7, pa.list_(pa.string())),
    }
    table = pa.table(columns).replace_schema_metadata({"made": "here"})
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=6)
    corpus = InputCorpus.find(str(tmp_path / "in.parquet"), column="german", into="english")
    out = translated(run, corpus, str(tmp_path / "out"), 4)
    parts = [parquet.read_table(io.BytesIO(out.read(name) or b"")) for name in sorted(out.names()) if "part" in name]
    assert [part.num_rows for part in parts] == [4, 4, 4, 4, 4, 1]
    whole = pa.concat_tables(parts)
    assert whole.drop_columns(["english"]).cast(table.schema).equals(table)
    assert (
        whole.schema.field("when").type == table.schema.field("when").type and whole.schema.metadata[b"made"] == b"here"
    )
    assert whole["english"].to_pylist() == [*Translator.load(run, "cpu").translate([*filter(None.__ne__, texts)]), None]
    assert [json.loads(line)["row"] for line in content(out, "_untranslated").splitlines()] == [21]
    # Readers of a folder of tables find only these.
    assert parquet.read_table(tmp_path / "out").num_rows == 21


def test_shards_do_not_change_samples(run: Path, tmp_path: Path) -> None:
    for name, part in (("a.txt", slice(0, 23)), ("b.txt", slice(23, 40))):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("".join(f"{each}\n" for each in sentences(40)[part]))
    model = Translator.load(run, "cpu")
    options = {"search": SamplingConfig(), "seed": 3}
    expected = [each.text for each in model.translate_stream(sentences(40), TranslationOptions(**options))]  # type: ignore[arg-type]
    assert len(set(expected)) > 10
    for shard_rows in (7, 1000):
        out = translated(
            run, InputCorpus.find(str(tmp_path / "in")), f"memory://samples-{shard_rows}", shard_rows, **options
        )
        assert content(out).decode().splitlines() == expected


def test_what_is_written_is_not_translated_again(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("der Hund\ndie Katze\n")
    out = Folder(str(tmp_path / "out"))
    out.write("part-0000001.txt", b"was there\n")
    translated(run, InputCorpus.find(str(tmp_path / "in.txt")), str(tmp_path / "out"), 1)
    assert content(out).decode().splitlines()[1:] == ["was there"]
    assert out.names() == {"part-0000000.txt", "part-0000001.txt"}


def test_what_a_killed_worker_could_not_translate_is_told_no_more_if_another_can(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("der Hund\n")
    Folder(str(tmp_path / "out")).write("_untranslated/part-0000000.jsonl", b"{}")
    out = translated(run, InputCorpus.find(str(tmp_path / "in.txt")), str(tmp_path / "out"), 1)
    assert "part-0000000.txt" in out.names() and not out.names("_untranslated")


def test_a_file_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    corpus = InputCorpus.find(str(tmp_path / "in.txt"))
    shards = shards_of(corpus.index(2), 2)
    (tmp_path / "in.txt").write_text("abc\n")
    with pytest.raises(DataError, match="was changed while it was translated"):
        corpus.read(shards[0])


def test_a_sentence_without_room_in_memory_does_not_spoil_the_others() -> None:
    class Narrow:
        def translate_lines(self, lines: list[Line], options: TranslationOptions) -> list[Translation]:
            if any(line.source == "large" for line in lines):
                raise DataError("does not fit in memory")
            return [Translation(line.source) for line in lines]

    lines = [Line(i, f"x:{i}", text, "") for i, text in enumerate(["a", "large", "b", "c", "large"], start=1)]
    found = translate_each(Narrow(), lines, TranslationOptions())  # type: ignore[arg-type]
    assert [each.source for each in found] == [line.source for line in lines]
    assert [each.error for each in found] == [None, "does not fit in memory", None, None, "does not fit in memory"]


class Growing(MemoryFileSystem):  # type: ignore[misc]
    """A file system on which files grow while written, like SFTP; a writer can be killed."""

    protocol = "growing"
    killed = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file, or half of it."""
        super().pipe_file(path, value[: len(value) // 2] if self.killed else value)
        if self.killed:
            raise KeyboardInterrupt


def test_a_killed_writer_leaves_no_half_file_where_files_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("growing", Growing, clobber=True)
    folder = Folder("growing://killed")
    folder.write("a", b"whole")
    folder.write("a", b"another")
    assert folder.create("b", b"first") and not folder.create("b", b"second")
    monkeypatch.setattr(Growing, "killed", True)
    with pytest.raises(KeyboardInterrupt):
        folder.write("part", b"whole")
    monkeypatch.setattr(Growing, "killed", False)
    assert not folder.exists("part")
    folder.tidy()
    assert folder.names() == {"a", "b"}
    assert (folder.read("a"), folder.read("b")) == (b"another", b"first")


def test_a_file_system_needs_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("jointnmt.runs.storage.os.link", refused)
    folder = Folder(str(tmp_path / "new"))
    assert folder.create("a", b"first") and not folder.create("a", b"second")
    assert (folder.read("a"), folder.names()) == (b"first", {"a"})


@pytest.mark.parametrize(
    ("machines", "device", "room"),
    [
        ([(8, 0), (4, 0)], "auto", (3, 0)),
        ([(8, 2), (4, 0)], "auto", (2, 1)),
        ([(4, 8)], "auto", (1, 1)),
        ([(2, 2)], "auto", (0, 1)),
        ([(8, 2)], "cpu", (2, 0)),
    ],
)
def test_a_worker_has_its_cores_and_its_gpu(
    machines: list[tuple[int, int]], device: str, room: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of (cores, GPUs) of each machine, for workers of four cores."""
    nodes = [{"Alive": True, "Resources": {"CPU": float(cores), "GPU": float(gpus)}} for cores, gpus in machines]
    monkeypatch.setattr("jointnmt.cluster.session.ray.nodes", lambda: nodes)
    assert room_for_workers(device, 4) == room


@pytest.mark.parametrize("kind", [each for each in vars(errors).values() if isinstance(each, type)])
def test_an_error_of_a_worker_ends_the_command_as_its_own_would(
    kind: type[JointNMTError], run: Path, tmp_path: Path
) -> None:
    def load() -> Translator:
        raise kind("The package sacremoses is needed.")

    (tmp_path / "in.txt").write_text("der Hund\n")
    corpus = InputCorpus.find(str(tmp_path / "in.txt"))
    job = CorpusJob(corpus, str(tmp_path / "out"), TranslationOptions(), LoadOptions("cpu"))
    [shard] = shards_of(corpus.index(5), 5)
    outcome = ShardTranslator(job, load)(vars(shard))
    with pytest.raises(kind, match="sacremoses") as caught:
        translation._check(outcome)
    assert caught.value.exit_code == kind.exit_code


@pytest.mark.parametrize("address", ["FOLDER", "memory://folder-of-results"])
def test_folders_have_whole_files_only(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(address.replace("FOLDER", str(tmp_path / "new")))
    assert folder.names() == set() and folder.read("a") is None and not folder.exists("a")
    assert folder.create("a", b"first") and not folder.create("a", b"second")
    folder.write("b/c", b"third")
    folder.write("b/c", b"fourth")
    assert (folder.read("a"), folder.read("b/c"), folder.names("b")) == (b"first", b"fourth", {"c"})
    if address == "FOLDER":
        monkeypatch.setattr("jointnmt.runs.storage.publish", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(ConfigurationError, match="b/c cannot be written"):
            folder.write("b/c", b"fifth")
        assert folder.read("b/c") == b"fourth" and folder.names() == {"a", "b"}
        (tmp_path / "new" / ".part-0.txt.0000").write_text("half")
        folder.tidy()
        assert folder.names() == {"a", "b"}


@pytest.mark.parametrize(
    ("files", "format", "message"),
    [
        ([], None, "there is no such file"),
        (["a.jsonl", "b.txt"], None, "several formats"),
        (["a.parquet"], None, "cannot be read"),
    ],
)
def test_what_is_no_corpus_is_refused(files: list[str], format: Format | None, message: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("x\n")
    with pytest.raises((ConfigurationError, DataError), match=message):
        InputCorpus.find(str(tmp_path), format).index(3)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_row_of_a_table_that_is_no_text_keeps_its_place(run: Path, tmp_path: Path, kind: Any) -> None:
    raw = pa.array([b"der Hund", b"\xff", None, b"a\0b", b"die Katze"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 5, raw.buffers())
    if pa.types.is_dictionary(kind):
        whole = texts.take(pa.array([0, 1, 3, 4]))
        texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 3], pa.int32()), whole)
    parquet.write_table(pa.table({"text": texts if texts.type == kind else texts.cast(kind)}), tmp_path / "in.parquet")
    out = translated(run, InputCorpus.find(str(tmp_path / "in.parquet")), str(tmp_path / "out"), 9)
    found = parquet.read_table(tmp_path / "out")
    assert [each is None for each in found.column("translation").to_pylist()] == [False, True, True, True, False]
    told = [json.loads(line) for line in content(out, "_untranslated").splitlines()]
    assert [(each["row"], each["source"]) for each in told] == [(2, "\ufffd"), (3, None), (4, "a\0b")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"column": "nothing"}, "no column 'nothing'. It has: text, number"),
        ({"column": "number"}, "is not text but int64"),
        ({"into": "number"}, "already has a column 'number'"),
    ],
)
def test_tables_without_the_columns_are_refused(columns: dict[str, str], message: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["a"], "number": [1]}), tmp_path / "in.parquet")
    with pytest.raises(ConfigurationError, match=message):
        InputCorpus.find(str(tmp_path / "in.parquet"), **columns).index(3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"column": "nothing"}, "no text 'nothing'. The first one has: id, body"),
        ({"column": "id"}, "no text 'id'"),
        ({"column": "body.fr"}, "no text 'body.fr'"),
        ({"column": "body.de", "into": "id"}, "already has a key 'id'"),
    ],
)
def test_objects_without_the_keys_are_refused(columns: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('broken\n{"id": 1, "body": {"de": "der Hund"}}\n' * 3)
    with pytest.raises(ConfigurationError, match=message):
        InputCorpus.find(str(tmp_path / "in.jsonl"), **columns).index(3)
    found = InputCorpus.find(str(tmp_path / "in.jsonl"), column="body.de")
    [file] = found.index(10)
    assert found.read(shards_of([file], 10)[0]).texts[1::2] == ["der Hund"] * 3


def test_few_of_the_first_rows_need_text(tmp_path: Path) -> None:
    rows = [{"id": number} for number in range(99)] + [{"id": 99, "text": "der Hund"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert InputCorpus.find(str(tmp_path / "in.jsonl")).index(1000)


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array(["der Hund"])] * 2, names=["text", "text"])
    parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(ConfigurationError, match="has several columns 'text'"):
        InputCorpus.find(str(tmp_path / "in.parquet")).index(3)


def test_lines_that_end_in_cr_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"der Hund\rdie Katze\rdas Haus\r")
    with pytest.raises(DataError, match=r"in.txt: its lines end in CR alone"):
        InputCorpus.find(str(tmp_path / "in.txt")).index(3)


def test_a_folder_is_not_claimed_before_somebody_can_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "connected", nullcontext)
    monkeypatch.setattr(translation, "room_for_workers", lambda *_: (0, 0))
    (tmp_path / "in.txt").write_text("der Hund\n")
    out, load = str(tmp_path / "out"), LoadOptions("cpu")
    job = CorpusJob(InputCorpus.find(str(tmp_path / "in.txt")), out, TranslationOptions(), load)
    with pytest.raises(ConfigurationError, match="fewer than the 4096 cores"):
        translation.translate_corpus(Translator.load(run, "cpu"), job, 3, translation.Workers(cpus=4096))
    assert not (tmp_path / "out").exists()


def test_addresses_that_nothing_can_open_say_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="is not an fsspec address"):
        Folder("nowhere://x")
    with pytest.raises(MissingPackageError, match="install it by pip"):
        Folder("gs://bucket/x")


@pytest.mark.parametrize("failures", [3, 4])
def test_ray_is_started_again_if_it_does_not_answer_in_time(
    failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [Exception("The current node timed out during startup.")] * failures
    started: list[str] = []

    def init(at: str, **settings: object) -> None:
        if errors:
            raise errors.pop()
        started.append(at)

    monkeypatch.setattr("ray.init", init)
    if failures == 3:
        with connected(None):
            assert started == ["local"] and caplog.text.count("Ray has not started") == 3
    else:
        with pytest.raises(LostProcessError, match="timed out during startup"), connected(None):
            raise AssertionError("is connected")


def test_a_signal_while_ray_starts_is_one_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(at: str, **settings: object) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # like Ray
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr("ray.init", init)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interruption, match="SIGTERM"), connected(None):
        raise AssertionError("is connected")
    assert signal.getsignal(signal.SIGTERM) is before
