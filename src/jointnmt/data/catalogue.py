"""The catalogue of public corpora: descriptions, terms, and how to get exactly their files.

A corpus is identified by the SHA-256 of its uncompressed files, whether they come with the package, are downloaded, or
are copied from a local folder.
"""

import gzip
import hashlib
import http.client
import logging
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from jointnmt.compression import COMPRESSED
from jointnmt.data.corpus import UNREADABLE, open_text, read_lines, unreadable
from jointnmt.errors import DataError
from jointnmt.files import replaced

logger = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds without an answer after which a download counts as failed."""

Progress = Callable[[str, int, int], None]
"""Called with a file's name, its uncompressed bytes done, and all of them."""

BUNDLED = Path(__file__).parents[1] / "corpora"
"""Corpora that come with the package; in a clone, a link to the folder of this name in its root."""

_CHUNK, _LINES = 2**20, 2**14
_UNREADABLE = (*UNREADABLE, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class TextFile:
    """One side of one part of a corpus: UTF-8 text, one sentence a line."""

    name: str
    """Name of the prepared file, such as `train.de`."""
    size: int
    """Uncompressed size in bytes."""
    sha256: str
    """SHA-256 of the uncompressed text."""
    address: str | None = None
    """Address of the download, compressed by gzip; None: the corpus comes with the package."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that a local copy may have: the file's own or that of the address, plain or compressed."""
        stems = [self.name]
        if self.address:
            stems.append(self.address.rpartition("/")[2].removesuffix(".gz"))
        return tuple(f"{stem}{suffix}" for stem in dict.fromkeys(stems) for suffix in ("", *COMPRESSED))


@dataclass(frozen=True, slots=True)
class Corpus:
    """A public parallel corpus."""

    name: str
    description: str
    languages: tuple[str, ...]
    """Language codes, with which the file names end."""
    pairs: Mapping[str, int]
    """Sentence pairs of each part; file names begin with the part."""
    source: str
    """Origin of the corpus, as an address."""
    licence: str
    citation: str
    files: tuple[TextFile, ...]
    bundled: Path | None = None
    """Folder with `PART.tsv.xz`, a column for each language, if the corpus comes with the package."""


def prepare(corpus: Corpus, to: Path, local: Path | None = None, progress: Progress = lambda *_: None) -> list[Path]:
    """Write a corpus's files to `to`, as plain text; existing correct files are kept.

    Args:
        corpus: the corpus to get.
        to: the folder to write to; created if needed.
        local: a folder with a copy of the files, plain or compressed; None: they are downloaded, or unpacked if the
            package has them.
        progress: called with the progress of each file.

    Returns:
        The files that were written.

    Raises:
        DataError: if a file is missing, damaged, not the one in the catalogue, or cannot be downloaded; or if another
            file has its name. No part of such a file is left in `to`.
    """
    wanted = [file for file in corpus.files if not _is_there(file, to / file.name)]
    if local is not None:
        copies = _local_copies(wanted, local)
    to.mkdir(parents=True, exist_ok=True)
    for file in wanted:
        path = to / file.name
        if local is not None:
            _write(file, _read(copies[file.name]), str(copies[file.name]), path, progress)
        elif corpus.bundled is not None:
            part, _, language = file.name.rpartition(".")
            pairs = corpus.bundled / f"{part}.tsv.xz"
            _write(file, _column(pairs, corpus.languages.index(language)), str(pairs), path, progress)
        else:
            _download(file, path, progress)
        logger.info("%s: written and checked", to / file.name)
    return [to / file.name for file in wanted]


def _is_there(file: TextFile, path: Path) -> bool:
    if not path.exists():
        return False
    found = hashlib.sha256()
    for chunk in _read(path):
        found.update(chunk)
    if found.hexdigest() != file.sha256:
        raise DataError(
            f"{path}: exists, but is not the corpus's file (its SHA-256 is {found.hexdigest()}, expected "
            f"{file.sha256}). Move or delete it, or choose another folder."
        )
    return True


def _local_copies(files: list[TextFile], local: Path) -> dict[str, Path]:
    copies = {file.name: local / name for file in files for name in reversed(file.names) if (local / name).is_file()}
    if missing := [file for file in files if file.name not in copies]:
        looked_for = "; ".join(f"{file.name} (as {', '.join(file.names)})" for file in missing)
        raise DataError(f"{local}: has no {looked_for}. Give the folder that has the corpus's files.")
    return copies


def _read(path: Path) -> Iterator[bytes]:
    """The uncompressed content of a local file, in chunks."""
    try:
        with open_text(path) as stream:
            yield from _chunks(stream)
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _column(path: Path, number: int) -> Iterator[bytes]:
    """One column of a file of pairs, in chunks of many lines."""
    lines = (line.split(b"\t")[number] + b"\n" for line in read_lines(path))
    while chunk := b"".join(islice(lines, _LINES)):
        yield chunk


class _BrokenOffError(Exception):
    """A download that failed, and why; caught in `_download`."""


def _download(file: TextFile, path: Path, progress: Progress) -> None:
    """Download a file, with one retry."""
    assert file.address is not None  # or the corpus could not be downloaded
    for last in (False, True):
        try:
            return _write(file, _fetch(file.address), file.address, path, progress)
        except _BrokenOffError as error:
            if last:
                raise DataError(
                    f"{file.address}: the download failed twice ({error}). Check the network; or get the file in "
                    f"another way, and give its folder by --from (as {', '.join(file.names)})."
                ) from error
            logger.warning("%s: the download failed (%s); trying once more", file.address, error)
    return None


def _fetch(address: str) -> Iterator[bytes]:
    """The uncompressed content of a file on the network, in chunks."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer, gzip.open(answer) as stream:
            yield from _chunks(stream)
    except _UNREADABLE as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from error


def _chunks(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _write(file: TextFile, chunks: Iterator[bytes], origin: str, path: Path, progress: Progress) -> None:
    """Write a file, which gets its name only when it is complete and its checksum is right."""
    found, done = hashlib.sha256(), 0
    with replaced(path, shared=True) as unfinished:  # another call may write it, too
        with unfinished.open("wb") as stream:
            for chunk in chunks:
                done += len(chunk)
                if done > file.size:  # a few bytes may unpack to more than a disk holds
                    raise DataError(
                        f"{origin}: is not the {file.name} of the catalogue: it unpacks to more than its "
                        f"{file.size:,} bytes. It may be damaged, or another version; get it again."
                    )
                stream.write(chunk)
                found.update(chunk)
                progress(file.name, done, file.size)
        if found.hexdigest() != file.sha256:
            raise DataError(
                f"{origin}: is not the {file.name} of the catalogue: the SHA-256 of its uncompressed text is "
                f"{found.hexdigest()}, expected {file.sha256}. It may be damaged, or another version; get it again."
            )


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_PARTS_OF_MULTI30K = {"train": "train", "valid": "val", "test2016": "test_2016_flickr"}


def _multi30k(name: str, size: int, sha256: str) -> TextFile:
    part, language = name.split(".")
    return TextFile(name, size, sha256, f"{_MULTI30K}/{_PARTS_OF_MULTI30K[part]}.{language}.gz")


CATALOGUE: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="multi30k",
            description="image captions, raw and cased; test2016 is the test set of Flickr images of 2016",
            languages=("en", "de", "fr"),
            pairs={"train": 29_000, "valid": 1_014, "test2016": 1_000},
            source="https://github.com/multi30k/dataset",
            licence="for research",
            citation=(
                "Elliott, Frank, Sima'an, Specia: Multi30K: Multilingual English-German Image Descriptions (2016); "
                "French: Elliott, Frank, Barrault, Bougares, Specia: Findings of the Second Shared Task on Multimodal "
                "Machine Translation and Multilingual Image Description (2017)"
            ),
            files=(
                _multi30k("train.en", 1_801_238, "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
                _multi30k("train.de", 2_110_398, "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
                _multi30k("train.fr", 2_111_303, "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d"),
                _multi30k("valid.en", 63_297, "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
                _multi30k("valid.de", 75_981, "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
                _multi30k("valid.fr", 73_924, "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc"),
                _multi30k("test2016.en", 62_076, "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"),
                _multi30k("test2016.de", 70_649, "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"),
                _multi30k("test2016.fr", 72_261, "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6"),
            ),
        ),
        Corpus(
            name="tatoeba-de-en",
            description=(
                "short everyday sentences, raw and cased; no sentence of one part occurs in another, on either side, "
                "ignoring case and punctuation"
            ),
            languages=("de", "en"),
            pairs={"train": 162_136, "valid": 2_000, "test": 2_000},
            source="https://tatoeba.org through https://www.manythings.org/anki",
            licence="CC BY 2.0",
            citation="Tatoeba, tatoeba.org, through manythings.org/anki",
            files=(
                TextFile("train.de", 6_359_919, "b73a6b9e596ec67981e3c9e164ebbf6dc7e55280237a387fd910bf8fccc63dcc"),
                TextFile("train.en", 5_393_714, "5b0aca9cf1194416f3b455deff9a93f4c4519471bae2959ba517826c3ed6f881"),
                TextFile("valid.de", 80_791, "7879c76e2803cd3730f54c2251db68526499e60674eeca0c738ac6e39c262acb"),
                TextFile("valid.en", 68_411, "bcc135cc5b2fbcbafef7ebf3e8e439e24781d8b45ecdef8776b538ca8a5450df"),
                TextFile("test.de", 81_757, "e2ab7b3558a598e2da9b9e37a0bccc64d83f83d58918dea2b555412a93d43302"),
                TextFile("test.en", 69_199, "f51030cf8a4b5385ad5a09617be0705bce5ed844aa4221d9be1b44e3539cc447"),
            ),
            bundled=BUNDLED / "tatoeba-de-en",
        ),
    )
}
