"""Translating and writing a shard, in a worker process of the cluster."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jointnmt.cluster.corpus import InputCorpus, Shard
from jointnmt.cluster.rows import Format, ShardRows
from jointnmt.errors import DataError, JointNMTError
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.storage import Folder
from jointnmt.translator import Translation, TranslationOptions, Translator
from jointnmt.translator.options import LoadOptions
from jointnmt.translator.preprocessing import Line, tagged

WINDOW = 4096
"""Number of rows that are batched by length together."""

UNTRANSLATED = "_untranslated"
"""Folder of rows that could not be translated. Readers of tables skip names that begin with an underscore."""

ENDING_OF_FORMAT: dict[Format, str] = {"text": "txt", "jsonl": "jsonl", "parquet": "parquet"}

PackedRun = dict[str, bytes]
"""Contents of the files of a RUN that translating needs, by file name."""


@dataclass(frozen=True)
class CorpusJob:
    """Input, options and output folder of a corpus translation."""

    corpus: InputCorpus
    out: str
    """Address of the output folder."""
    options: TranslationOptions
    load: LoadOptions

    def name(self, shard: int) -> str:
        """The file of a shard; names sort as numbers do."""
        return f"part-{shard:07d}.{ENDING_OF_FORMAT[self.corpus.format]}"


class ShardTranslator:
    """A translator in a worker process, called with one shard after another."""

    def __init__(self, job: CorpusJob, load: Callable[[], Translator]) -> None:
        """Prepare for a job; `load` loads its model and is called for the first shard."""
        self._job, self._load, self._out = job, load, Folder(job.out)
        self._translator: Translator | None = None

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a shard, unless it is already written.

        Errors that a user can correct are returned as `error` and `exit_code`, as engines wrap raised ones.
        """
        shard = Shard(**{name: int(value) for name, value in row.items()})
        try:
            self.translate(shard)
        except JointNMTError as error:
            return {"rows": 0, "error": str(error), "exit_code": error.exit_code}
        return {"rows": shard.rows, "error": "", "exit_code": 0}

    def translate(self, shard: Shard) -> None:
        """Write the untranslated rows of a shard, then its rows with their translations.

        If a worker is killed in between, another writes the same files, so that every shard exists once.
        """
        job, name = self._job, self._job.name(shard.number)
        if self._out.exists(name):
            return
        rows = job.corpus.read(shard)
        self._translator = translator = self._translator or self._load()
        lines = self._lines(translator, rows, shard)
        found: list[Translation] = []
        for start in range(0, len(lines), WINDOW):
            found += translate_each(translator, lines[start : start + WINDOW], job.options)
        wrong = [_record(rows, i, shard, each.error) for i, each in enumerate(found) if each.error is not None]
        untranslated = f"{UNTRANSLATED}/{Path(name).stem}.jsonl"
        if wrong:
            self._out.write(untranslated, "".join(wrong).encode())
        elif self._out.exists(untranslated):  # by a killed worker with less memory
            self._out.delete(untranslated)
        self._out.write(name, rows.written([None if each.error is not None else each.text for each in found]))

    def _lines(self, translator: Translator, rows: ShardRows, shard: Shard) -> list[Line]:
        """The texts with their numbers in the whole corpus, on which samples depend; line breaks become spaces."""
        path = self._job.corpus.paths[shard.file]
        texts = (text if isinstance(text, DataError) else text.replace("\n", " ") for text in rows.texts)
        marked = tagged(texts, self._job.options.tag, translator.tags)
        return [
            Line(shard.first + i + 1, f"{path}:{shard.first_in_file + i + 1}", "", "", text)
            if isinstance(text, DataError)
            else Line(shard.first + i + 1, f"{path}:{shard.first_in_file + i + 1}", text, "")
            for i, text in enumerate(marked)
        ]


def translate_each(translator: Translator, lines: Sequence[Line], options: TranslationOptions) -> list[Translation]:
    """The translations of lines, with an error for a line that does not fit in memory even by itself."""
    try:
        return translator.translate_lines(lines, options)
    except DataError as error:
        if len(lines) == 1:
            return [Translation(lines[0].source, error=str(error))]
    half = math.ceil(len(lines) / 2)
    return [each for part in (lines[:half], lines[half:]) for each in translate_each(translator, part, options)]


def packed(runs: Sequence[Path]) -> list[PackedRun]:
    """The contents of RUN directories, for machines that do not have them."""
    found = []
    for run in runs:
        files = RunDirectory(run)
        parts = [files.experiment, files.model, *sorted(files.segmentation.rglob("*"))]
        found.append({str(path.relative_to(run)): path.read_bytes() for path in parts if path.is_file()})
    return found


def unpacked(runs: Sequence[PackedRun], folder: Path) -> list[Path]:
    """Write packed runs into subfolders of a folder."""
    for number, files in enumerate(runs):
        for name, content in files.items():
            path = folder / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return [folder / str(number) for number in range(len(runs))]


def load_packed(runs: Sequence[PackedRun], options: LoadOptions, threads: int) -> Translator:
    """The translator of packed runs, for a process with so many threads."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="jointnmt-model-") as folder:
        return Translator.load(unpacked(runs, Path(folder)), *options)


def _record(rows: ShardRows, index: int, shard: Shard, why: str | None) -> str:
    record = {"row": shard.first + index + 1, "reason": why, "source": rows.raw(index)}
    return json.dumps(record, ensure_ascii=False) + "\n"
