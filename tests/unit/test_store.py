"""The store of segmented text: correct, made once, made again when anything changes, never incomplete."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jointnmt.data import blocks, segmenting, store
from jointnmt.data.building import (
    ABANDONED,
    UNFINISHED,
    remove_abandoned,
    store_lock,
    unfinished_store,
    write_store,
)
from jointnmt.data.corpus import DataConfig
from jointnmt.data.segmenting import BlockSegmenter
from jointnmt.data.store import TokenStore, build_store
from jointnmt.data.store_check import checksum
from jointnmt.errors import ConfigurationError, DataError, LostProcessError
from jointnmt.files import hash_file


@dataclass
class LetterSegmenter:
    """Each letter is a piece; `@` ends the process, `!` is an error."""

    shift: int = 4
    vocabulary_size: int = 0x110000

    def encode_ids_batch(self, texts: list[str]) -> list[list[int]]:
        if any("@" in text for text in texts):
            os._exit(1)
        if any("!" in text for text in texts):
            raise RuntimeError("interrupted")
        return [[self.shift + ord(letter) for letter in text.strip("_")] for text in texts]


class LetterSegmentation:
    def __init__(self, shift: int = 4) -> None:
        self.source = self.target = LetterSegmenter(shift)

    def fingerprint(self) -> str:
        return hashlib.sha256(str(self.source.shift).encode()).hexdigest()


class Corpus:
    """Files of pairs in a folder, and a store of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values: dict[str, Any] = {
            "root": folder,
            "source_language": "de",
            "target_language": "en",
            "cache": folder / "cache",
            "processes": 1,
        }

    def write(self, *files: list[tuple[str, str]], folder: str = ".") -> None:
        texts = []
        for number, pairs in enumerate(files):
            path = Path(folder) / f"{number}.tsv"
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
            texts.append({"path": path})
        self.values["train"] = self.values["validation"] = texts

    def config(self, **changes: Any) -> DataConfig:
        return DataConfig.parse({**self.values, **changes}, "test")

    def build(self, which: Any = "train", shift: int = 4, **changes: Any) -> TokenStore:
        return build_store(self.config(**changes), LetterSegmentation(shift), which)  # type: ignore[arg-type]

    @property
    def folders(self) -> list[str]:
        """Folders in the cache, without locks."""
        return sorted(p.name for p in (self.folder / "cache" / "segmented").iterdir() if p.suffix != ".lock")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path)
    corpus.write([("ab", "c"), ("d", "efg")], [("hij", "k"), ("l", "m" * 50), ("n", "_"), ("ab", "c")])
    return corpus


def ids(text: str) -> list[int]:
    return [4 + ord(letter) for letter in text]


def content(made: TokenStore) -> list[tuple[list[int], list[int]]]:
    return made.pairs(range(len(made)))


def test_pairs_lengths_and_origins(corpus: Corpus) -> None:
    made = corpus.build()
    assert len(made) == 5
    assert content(made)[:3] == [(ids("ab"), ids("c")), (ids("d"), ids("efg")), (ids("hij"), ids("k"))]
    assert made.pairs(np.array([2, 0, 2])) == [content(made)[i] for i in (2, 0, 2)]
    source, target = made.lengths
    assert (source.tolist(), target.tolist()) == ([3, 2, 4, 2, 3], [2, 4, 2, 51, 2])
    assert [made.origin(i) for i in (1, 2, 4)] == [
        f"{corpus.folder}/{place}" for place in ("0.tsv:2", "1.tsv:1", "1.tsv:4")
    ]
    assert made.report.removed == {"shorter than 2 pieces": 1}
    assert made.report.examples == {"shorter than 2 pieces": f"{corpus.folder}/1.tsv:3"}
    with pytest.raises(ValueError, match="keeps no text"):
        made.texts()


def test_filters_apply_to_training_text(corpus: Corpus) -> None:
    made = corpus.build(filters={"max_length": 20, "duplicates": "drop", "max_ratio": 1.5})
    assert content(made) == [(ids("ab"), ids("c"))]
    assert (made.report.read, made.report.kept) == (6, 1)
    assert made.report.removed == {
        "shorter than 2 pieces": 1,
        "longer than 20 pieces": 1,
        "length ratio above 1.5": 2,
        "duplicate": 1,
    }


def test_validation_keeps_its_text_and_all_but_what_is_too_long(corpus: Corpus) -> None:
    made = corpus.build("validation", filters={"max_length": 20, "duplicates": "drop", "max_ratio": 1.5})
    assert made.texts() == [("ab", "c"), ("d", "efg"), ("hij", "k"), ("n", "_"), ("ab", "c")]
    assert made.texts([2]) == [("hij", "k")]
    assert len(made) == len(content(made)) == 5
    assert content(made)[3] == (ids("n"), [])


def same(made: TokenStore, other: TokenStore) -> bool:
    """Whether pairs, lengths, origins and reports are equal."""
    stored = [
        (content(each), np.stack(each.lengths).tolist(), [each.origin(i) for i in range(len(each))], each.report)
        for each in (made, other)
    ]
    return stored[0] == stored[1]


@pytest.mark.parametrize("which", ["train", "validation"])
@pytest.mark.parametrize(("chunk", "lines"), [(2, 2**16), (1, 1), (2, 3), (10, 2)])
def test_chunks_and_blocks_make_no_difference(
    corpus: Corpus, chunk: int, lines: int, which: Any, monkeypatch: Any
) -> None:
    filters = {"duplicates": "drop", "max_length": 20}
    whole = corpus.build(which, filters=filters)
    monkeypatch.setattr(segmenting, "CHUNK_PAIRS", chunk)
    monkeypatch.setattr(blocks, "BLOCK_LINES", lines)
    divided = corpus.build(which, filters=filters, cache=corpus.folder / "other")
    assert same(divided, whole)
    assert len(list(divided.directory.glob("pairs-*"))) == sum(-(-size // lines) for size in (2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_make_the_same_store(corpus: Corpus, count: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(blocks, "BLOCK_LINES", 1)
    filters = {"duplicates": "drop"}
    one = corpus.build(filters=filters)
    monkeypatch.setattr(store, "POOLED_FROM_BYTES", 0)
    several = corpus.build(cache=corpus.folder / "other", processes=count, filters=filters)
    names = [sorted(path.name for path in made.directory.iterdir()) for made in (one, several)]
    assert names[0] == names[1] and len(names[0]) == 8
    for name in names[0]:
        assert (one.directory / name).read_bytes() == (several.directory / name).read_bytes()


def test_a_dead_process_is_an_error_that_keeps_what_is_done(corpus: Corpus, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "POOLED_FROM_BYTES", 0)
    corpus.write([("a@", "b")])
    with pytest.raises(LostProcessError, match=r"ended early.*data\.processes=1"):
        corpus.build(processes=2)
    assert [name.partition(".")[2] for name in corpus.folders] == ["partial"]


def segmented_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Receives the numbers of the blocks that are segmented from now on."""
    found: list[int] = []
    write = BlockSegmenter._write

    def counted(self: BlockSegmenter, path: Path, block: Any, report: Any) -> None:
        found.append(block.number)
        write(self, path, block, report)

    monkeypatch.setattr(BlockSegmenter, "_write", counted)
    return found


def interrupt(corpus: Corpus, after: int, **changes: Any) -> Path:
    """Interrupt a build after so many pairs; the folder that it leaves."""

    def interrupted(pairs: int) -> None:
        if pairs >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(corpus.config(**changes), LetterSegmentation(), progress=interrupted)  # type: ignore[arg-type]
    (name,) = corpus.folders
    assert name.endswith(".partial")
    return corpus.folder / "cache" / "segmented" / name


def test_an_interrupted_build_is_gone_on_with(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    filters = {"duplicates": "drop"}
    whole = corpus.build(cache=corpus.folder / "other", filters=filters)
    monkeypatch.setattr(blocks, "BLOCK_LINES", 1)
    interrupt(corpus, after=4, filters=filters)
    found = segmented_blocks(monkeypatch)
    assert same(corpus.build(filters=filters), whole)
    assert found == [4, 5]
    assert all(not name.endswith(".partial") for name in corpus.folders)


@pytest.mark.parametrize("kept_for", ["its age", "its lock", "its settings", ""])
def test_what_has_been_given_up_is_removed_when_another_store_is_made(corpus: Corpus, kept_for: str) -> None:
    left = interrupt(corpus, after=1)
    whole = left.with_name(left.name.removesuffix(UNFINISHED))
    if kept_for != "its age":
        for path in (*left.iterdir(), left):
            os.utime(path, (0, time.time() - ABANDONED - 60))
    with store_lock(whole) if kept_for == "its lock" else nullcontext():
        if kept_for == "its settings":
            remove_abandoned(left.parent, whole)
        else:
            corpus.build(filters={"duplicates": "drop"})
    assert left.exists() == bool(kept_for)


def test_blocks_can_be_joined_where_none_has_to_be_segmented() -> None:
    """In a process of its own, as earlier imports may have made the attribute."""
    program = "from jointnmt.data.segmenting import pyarrow; pyarrow().compute.list_value_length"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("damage", ["changed", "short", "gone", "facts", "other lines"])
def test_what_an_interrupted_build_left_is_not_taken_for_whole(
    corpus: Corpus, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = corpus.build(cache=corpus.folder / "other")
    monkeypatch.setattr(blocks, "BLOCK_LINES", 2)
    partial = interrupt(corpus, after=6)
    path = partial / "blocks" / "00001.arrow"
    (partial / "store.json").write_text("{}")
    if damage == "changed":
        damage_bytes(path, path.stat().st_size // 2)
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-8])
    elif damage == "gone":
        path.unlink()
    elif damage == "facts":
        path.with_suffix(".json").write_text("{}")
    else:
        monkeypatch.setattr(blocks, "BLOCK_LINES", 3)
    found = segmented_blocks(monkeypatch)
    made = corpus.build()
    assert same(made, whole)
    assert found == ([1, 2] if damage == "other lines" else [1])
    assert not [path for path in made.directory.iterdir() if path.is_dir()]


@pytest.mark.parametrize("ending", ["gz", "GZ"])
def test_compressed_files_are_unpacked_for_as_long_as_needed(corpus: Corpus, monkeypatch: Any, ending: str) -> None:
    monkeypatch.setattr(blocks, "BLOCK_LINES", 2)
    plain = corpus.build()
    for number in range(2):
        content_ = (corpus.folder / f"{number}.tsv").read_bytes()
        (corpus.folder / f"{number}.tsv.{ending}").write_bytes(gzip.compress(content_))
    made = corpus.build(train=[{"path": f"{number}.tsv.{ending}"} for number in range(2)])
    assert content(made) == content(plain) and made.origin(4) == f"{corpus.folder}/1.tsv.{ending}:4"
    assert [path.name for path in made.directory.iterdir() if path.is_dir()] == []


def test_a_block_of_a_table_has_as_many_columns_as_the_first_line(corpus: Corpus, monkeypatch: Any) -> None:
    (corpus.folder / "0.tsv").write_text("bad\na\tb\nc\td\ne\tf\tg\nh\ti\n")
    monkeypatch.setattr(blocks, "BLOCK_LINES", 1)
    filters = {"invalid": "drop"}
    made = corpus.build(train=[{"path": "0.tsv"}], filters=filters)
    assert [made.origin(i).rpartition(":")[2] for i in range(len(made))] == ["2", "3", "5"]
    assert list(made.report.removed.values()) == [1, 1]
    with pytest.raises(DataError, match=r"0\.tsv:1: no column 1"):
        corpus.build(train=[{"path": "0.tsv"}])


def test_texts_with_other_tags_are_in_another_store(corpus: Corpus) -> None:
    (corpus.folder / "0.tsv").write_text("a\tb\n")
    (corpus.folder / "1.tsv").write_text("c\td\n")
    tags = ["<x>", "<y>"]
    made = [
        corpus.build(train=[{"path": f"{number}.tsv", "tag": tag} for number, tag in enumerate(given)])
        for given in (tags, tags[::-1], [tags[0]] * 2, [None, None])
    ]
    assert len({each.directory for each in made}) == 4


def test_lines_that_end_in_cr_alone_are_refused(corpus: Corpus) -> None:
    """They must not be read as one pair."""
    (corpus.folder / "0.tsv").write_bytes(b"a\tb\rc\td\re\tf\r")
    with pytest.raises(DataError, match="end in CR alone"):
        corpus.build(train=[{"path": "0.tsv"}])


def test_compressed_text_without_its_ending_is_refused(corpus: Corpus) -> None:
    """It must not pass as text in another encoding, of which lines may be dropped."""
    (corpus.folder / "0.tsv").write_bytes(b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\na\tb\n")
    with pytest.raises(DataError, match=r"0.tsv: is compressed by zstd. Decompress it\.$"):
        corpus.build(train=[{"path": "0.tsv"}], filters={"invalid": "drop", "empty": "drop"})


def test_a_file_that_changes_while_it_is_segmented_makes_no_store(corpus: Corpus, monkeypatch: Any) -> None:
    """Even if it is then restored: others would look for the old content, and get a store of the new one."""
    path = corpus.folder / "0.tsv"
    path.write_text("a\tb\n")

    def change(*arguments: Any) -> None:
        write_store(*arguments)
        path.write_text("a\tb\n")

    monkeypatch.setattr("jointnmt.data.store.write_store", change)
    with pytest.raises(DataError, match=r"0\.tsv: changed while it was read"):
        corpus.build(train=[{"path": "0.tsv"}])
    monkeypatch.undo()
    assert len(corpus.build(train=[{"path": "0.tsv"}])) == 1


def test_an_interruption_leaves_nothing_of_a_file_that_has_changed(corpus: Corpus, monkeypatch: Any) -> None:
    path = corpus.folder / "0.tsv"
    path.write_text("a\tb\n")

    for change, left in ((lambda: None, 1), (lambda: path.write_text("c\td\n"), 0), (path.unlink, 0)):

        def interrupted(directory: Path, *_: Any, change: Callable[[], object] = change) -> None:
            unfinished_store(directory).mkdir(exist_ok=True)
            change()
            raise KeyboardInterrupt

        monkeypatch.setattr("jointnmt.data.store.write_store", interrupted)
        with pytest.raises(KeyboardInterrupt):
            corpus.build(train=[{"path": "0.tsv"}])
        assert len(list(corpus.folder.rglob("*.partial"))) == left


def test_a_store_of_before_is_read_as_it_is(corpus: Corpus, monkeypatch: Any) -> None:
    """An old store has all pairs in one file."""
    made = corpus.build()
    expected = content(made), [made.origin(i) for i in range(len(made))]
    (shards,) = [sorted(made.directory.glob("pairs-*"))]
    batches, schema = [], None
    for shard in shards:
        with pa.memory_map(str(shard)) as stream, pa.ipc.open_stream(stream) as reader:
            batches += list(reader)
            schema = reader.schema
    with pa.OSFile(str(made.directory / "pairs.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    del batches, batch
    for shard in shards:
        shard.unlink()
    facts = json.loads((made.directory / "store.json").read_text())
    facts["hashes"] = dict.fromkeys(("pairs.arrow", "lengths.bin"), "")
    (made.directory / "store.json").write_text(json.dumps(facts))
    with_right_hashes(made.directory)
    monkeypatch.setattr(store, "write_store", None)
    again = corpus.build()
    assert (content(again), [again.origin(i) for i in range(len(again))]) == expected
    assert again.text_sizes() == [2, 3]


def test_a_second_build_opens_the_first(corpus: Corpus, monkeypatch: Any) -> None:
    first = corpus.build()
    monkeypatch.setattr(store, "write_store", None)
    second = corpus.build()
    assert (second.fingerprint, second.directory) == (first.fingerprint, first.directory)
    assert content(second) == content(first)
    assert second.report == first.report


def test_whatever_changes_makes_another_store(corpus: Corpus) -> None:
    prints = [
        corpus.build().fingerprint,
        corpus.build("validation").fingerprint,
        corpus.build(filters={"max_length": 1000}).fingerprint,
        corpus.build(shift=5).fingerprint,
        corpus.build(train=[{"path": "0.tsv"}]).fingerprint,
        corpus.build(train=[{"path": "1.tsv"}, {"path": "0.tsv"}]).fingerprint,
        corpus.build(train=[{"path": "0.tsv", "source_field": 1, "target_field": 0}]).fingerprint,
    ]
    corpus.write([("ab", "c"), ("d", "efh")])
    prints.append(corpus.build().fingerprint)
    assert len(set(prints)) == len(prints)
    assert content(corpus.build())[1] == (ids("d"), ids("efh"))


def test_the_same_content_elsewhere_is_the_same_store_and_is_named_as_given(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    prints = []
    for folder in ("one", "two"):
        corpus.write([("ab", "c"), ("", "d")], folder=folder)
        made = corpus.build(filters={"empty": "drop"})
        prints.append(made.fingerprint)
        assert made.report.examples == {"empty source": f"{tmp_path}/{folder}/0.tsv:2"}
        assert made.origin(0) == f"{tmp_path}/{folder}/0.tsv:1"
    assert prints[0] == prints[1]


def test_files_of_either_side_are_named_as_given(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    for folder in ("one", "two"):
        files = {}
        for number, (side, lines) in enumerate({"source": "a\n\nc\n", "target": "d\ne\n\n"}.items()):
            path = Path(folder, f"{number}.txt")
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(lines)
            files[side] = str(path)
        corpus.values["train"] = [files]
        examples = corpus.build(filters={"empty": "drop"}).report.examples
        assert examples == {
            "empty source": f"{tmp_path}/{folder}/0.txt:2",
            "empty target": f"{tmp_path}/{folder}/1.txt:3",
        }


def test_relative_root(corpus: Corpus, monkeypatch: Any) -> None:
    monkeypatch.chdir(corpus.folder.parent)
    assert len(corpus.build(root=corpus.folder.name)) == 5


def test_a_build_that_fails_leaves_nothing(corpus: Corpus, monkeypatch: Any) -> None:
    monkeypatch.setattr(blocks, "BLOCK_LINES", 1)
    corpus.write([("a", "b"), ("a!", "b")])
    with pytest.raises(RuntimeError):
        corpus.build()
    assert corpus.folders == []


def test_a_killed_build_is_begun_again(corpus: Corpus) -> None:
    made = corpus.build()
    partial = made.directory.with_name(made.directory.name + ".partial")
    made.directory.rename(partial)
    assert len(corpus.build()) == 5
    assert corpus.folders == [made.directory.name]


@pytest.mark.parametrize("name", ["pairs-000000.arrow", "lengths.bin", "store.json"])
@pytest.mark.parametrize("damage", ["truncated", "gone"])
def test_a_damaged_store_is_made_anew(corpus: Corpus, name: str, damage: str) -> None:
    made = corpus.build()
    expected = content(made)
    path = made.directory / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10])
    assert content(corpus.build()) == expected


def damage_bytes(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["pairs-000000.arrow", "lengths.bin", "store.json"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8, 0.99])
def test_any_changed_bit_is_noticed_and_the_store_made_anew(
    corpus: Corpus, name: str, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    made = corpus.build()
    expected, path = content(made), made.directory / name
    before = path.read_bytes()
    damage_bytes(path, int(share * len(before)))
    again = corpus.build()
    assert (content(again), again.report) == (expected, made.report)
    assert path.read_bytes() == before
    assert "this store is damaged" in caplog.text
    assert "segmented again" in caplog.text


def with_right_hashes(directory: Path) -> None:
    """Make the hashes right, as a faulty writer of stores would."""
    facts = json.loads((directory / "store.json").read_text())
    facts["hashes"] = {name: hash_file(directory / name) for name in facts["hashes"]}
    facts["checksum"] = checksum(facts)
    (directory / "store.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(("value", "message"), [(10**9, "reach from"), (-5, "reach from")])
def test_ids_out_of_range_are_noticed(
    corpus: Corpus, value: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = corpus.build()
    expected, path = content(made), made.directory / "pairs-000001.arrow"
    found, new = (np.array(row, dtype=np.int32).tobytes() for row in (ids("hij"), [value, *ids("ij")]))
    assert path.read_bytes().count(found) == 1
    path.write_bytes(path.read_bytes().replace(found, new))
    with_right_hashes(made.directory)
    assert content(corpus.build()) == expected
    assert message in caplog.text


@pytest.mark.parametrize("change", ["another", "fewer"])
def test_lengths_of_other_pairs_are_noticed(corpus: Corpus, change: str, caplog: pytest.LogCaptureFixture) -> None:
    made = corpus.build()
    expected, path = made.lengths[0].tolist(), made.directory / "lengths.bin"
    lengths = np.fromfile(path, dtype=np.int32)
    (lengths[:-2] if change == "fewer" else lengths + 1).tofile(path)
    with_right_hashes(made.directory)
    assert corpus.build().lengths[0].tolist() == expected
    assert "lengths" in caplog.text


def test_a_store_of_before_is_made_anew(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    made = corpus.build()
    facts = json.loads((made.directory / "store.json").read_text())
    facts.pop("checksum")
    (made.directory / "store.json").write_text(json.dumps(facts))
    assert corpus.build().fingerprint == made.fingerprint
    assert "stored no hashes" in caplog.text


def test_a_whole_store_is_opened_without_a_word(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    corpus.build()
    corpus.build("validation")
    corpus.build()
    assert caplog.text.count("train: 6 pairs read, 5 kept, 1 removed") == 1  # reported where the text is read


def test_one_builds_while_the_others_wait(corpus: Corpus, monkeypatch: Any) -> None:
    builders, together = [], threading.Barrier(4)
    build = store.write_store

    def counted(*arguments: Any) -> None:
        builders.append(threading.get_ident())
        build(*arguments)

    def begin(_: int) -> TokenStore:
        together.wait()
        return corpus.build()

    monkeypatch.setattr(store, "write_store", counted)
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(begin, range(4)))
    assert len(builders) == 1
    assert all(content(made) == content(stores[0]) for made in stores)


def test_the_cache_folder(corpus: Corpus, monkeypatch: Any) -> None:
    monkeypatch.setenv("JOINTNMT_CACHE", str(corpus.folder / "elsewhere"))
    assert corpus.build(cache=None).directory.is_relative_to(corpus.folder / "elsewhere")
    assert corpus.build().directory.is_relative_to(corpus.folder / "cache")
    monkeypatch.delenv("JOINTNMT_CACHE")
    monkeypatch.setenv("HOME", str(corpus.folder / "home"))
    assert corpus.build(cache=None).directory.is_relative_to(corpus.folder / "home" / ".cache" / "jointnmt")


def test_a_cache_that_cannot_be_written_is_an_error(corpus: Corpus) -> None:
    (corpus.folder / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file: segmented text cannot be stored.*JOINTNMT_CACHE"):
        corpus.build(cache=corpus.folder / "file")


def test_no_text_and_no_pair_are_errors(corpus: Corpus) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.validation names no text"):
        corpus.build("validation", validation=[])
    with pytest.raises(DataError, match=r"no pair is left(.|\n)*shorter than 60 pieces: 6"):
        corpus.build(filters={"min_length": 60})
    with pytest.raises(DataError, match=r"missing\.tsv"):
        corpus.build(train=[{"path": "missing.tsv"}])
    assert corpus.folders == []
