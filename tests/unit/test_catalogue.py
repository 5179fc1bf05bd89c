"""The catalogue of corpora and `jointnmt data`: right files or an error, and nothing in between."""

import gzip
import hashlib
import http.server
import lzma
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.data.catalogue import CATALOGUE, Corpus, TextFile, prepare
from jointnmt.errors import DataError

TEXTS = {
    "train.de": "Hallo Welt!\n" * 200_000,
    "train.en": "Hello world!\n" * 200_000,
    "valid.de": "Na?\n",
    "valid.en": "So?\n",
}


def corpus_of(base: str | None, bundled: Path | None = None) -> Corpus:
    """A corpus of the texts above, hosted as `BASE/val.de.gz` and so on, or that comes with the package."""
    files = tuple(
        TextFile(
            name,
            len(text),
            hashlib.sha256(text.encode()).hexdigest(),
            f"{base}/{name.replace('valid', 'val')}.gz" if base else None,
        )
        for name, text in TEXTS.items()
    )
    return Corpus(
        name="small",
        description="for tests",
        languages=("de", "en"),
        pairs={"train": 1, "valid": 1},
        source="here",
        licence="none",
        citation="none",
        files=files,
        bundled=bundled,
    )


CORPUS = corpus_of("http://localhost:9")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A copy of the corpus with a different compression of each file."""
    folder = tmp_path / "local"
    folder.mkdir()
    (folder / "train.de.gz").write_bytes(gzip.compress(TEXTS["train.de"].encode()))
    (folder / "train.en.xz").write_bytes(lzma.compress(TEXTS["train.en"].encode()))
    (folder / "valid.de").write_text(TEXTS["valid.de"])
    (folder / "val.en.gz").write_bytes(gzip.compress(TEXTS["valid.en"].encode()))
    return folder


@pytest.fixture
def bundled(tmp_path: Path) -> Corpus:
    """The corpus as one that comes with the package."""
    folder = tmp_path / "bundled"
    folder.mkdir()
    for part in ("train", "valid"):
        sides = (TEXTS[f"{part}.{language}"].splitlines() for language in ("de", "en"))
        rows = [f"{german}\t{english}\n" for german, english in zip(*sides, strict=True)]
        (folder / f"{part}.tsv.xz").write_bytes(lzma.compress("".join(rows).encode()))
    return corpus_of(None, folder)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "new" / "corpus"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_a_local_copy_is_written_as_plain_text(local: Path, to: Path) -> None:
    assert prepare(CORPUS, to, local) == [to / name for name in TEXTS]
    assert contents(to) == TEXTS


def test_progress_is_told_in_bytes_of_text(local: Path, to: Path) -> None:
    told: list[tuple[str, int, int]] = []
    prepare(CORPUS, to, local, lambda *progress: told.append(progress))
    size = len(TEXTS["train.de"])
    of_first = [(done, total) for name, done, total in told if name == "train.de"]
    assert of_first == [(2**20, size), (2**21, size), (size, size)]  # so that it is read in pieces
    assert {name for name, done, total in told if done == total} == set(TEXTS)


def test_right_files_are_kept(local: Path, to: Path) -> None:
    prepare(CORPUS, to, local)
    (to / "valid.de").unlink()
    before = (to / "train.de").stat()
    assert prepare(CORPUS, to, local) == [to / "valid.de"]
    assert (to / "train.de").stat().st_mtime_ns == before.st_mtime_ns
    assert (to / "train.de").stat().st_ino == before.st_ino
    assert contents(to) == TEXTS


def test_what_is_all_there_needs_neither_network_nor_copy(local: Path, to: Path) -> None:
    prepare(CORPUS, to, local)
    assert prepare(CORPUS, to) == []
    assert prepare(CORPUS, to, to) == []


def test_another_file_in_its_place_is_not_overwritten(local: Path, to: Path) -> None:
    to.mkdir(parents=True)
    (to / "valid.en").write_text("mine\n")
    with pytest.raises(DataError, match=r"valid\.en: exists") as caught:
        prepare(CORPUS, to, local)
    assert hashlib.sha256(b"mine\n").hexdigest() in str(caught.value)
    assert CORPUS.files[3].sha256 in str(caught.value)
    assert contents(to) == {"valid.en": "mine\n"}


def test_a_wrong_checksum_names_file_expected_and_found_and_leaves_nothing(local: Path, to: Path) -> None:
    (local / "train.en.xz").write_bytes(lzma.compress(b"Hello word!\n"))
    with pytest.raises(DataError) as caught:
        prepare(CORPUS, to, local)
    assert str(local / "train.en.xz") in str(caught.value)
    assert hashlib.sha256(b"Hello word!\n").hexdigest() in str(caught.value)
    assert CORPUS.files[1].sha256 in str(caught.value)
    assert contents(to) == {"train.de": TEXTS["train.de"]}


def test_a_copy_that_unpacks_to_too_much_is_not_unpacked_to_its_end(
    local: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (local / "valid.de").unlink()
    (local / "valid.de.gz").write_bytes(gzip.compress(b"\0" * 50_000_000))
    told: list[int] = []
    with pytest.raises(DataError, match=r"valid\.de\.gz: .* unpacks to more than its 4 bytes"):
        prepare(CORPUS, to, local, lambda name, done, size: told.append(done - size))
    assert max(told) <= 0
    assert contents(to) == {name: TEXTS[name] for name in ("train.de", "train.en")}


@pytest.mark.parametrize("damage", [lambda packed: packed[: len(packed) // 2], lambda packed: b"no gzip at all"])
def test_a_damaged_copy_leaves_nothing(local: Path, to: Path, damage: Callable[[bytes], bytes]) -> None:
    (local / "train.de.gz").write_bytes(damage((local / "train.de.gz").read_bytes()))
    with pytest.raises(DataError, match=r"train\.de\.gz: the file cannot be read"):
        prepare(CORPUS, to, local)
    assert contents(to) == {}


def test_an_interruption_leaves_nothing(local: Path, to: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(CORPUS, to, local, interrupt)
    assert contents(to) == {}


def test_missing_files_are_all_named_as_they_were_looked_for(local: Path, to: Path) -> None:
    (local / "valid.de").unlink()
    (local / "train.en.xz").unlink()
    with pytest.raises(DataError) as caught:
        prepare(CORPUS, to, local)
    for name in (
        "train.en",
        "train.en.gz",
        "train.en.xz",
        "valid.de",
        "valid.de.gz",
        "val.de",
        "val.de.gz",
        "val.de.xz",
    ):
        assert name in str(caught.value)
    assert "train.de" not in str(caught.value)
    assert contents(to) == {}


class Host:
    """A web server in this process: its files, and the requests to it."""

    def __init__(self, server: http.server.HTTPServer) -> None:
        self.base = f"http://127.0.0.1:{server.server_port}"
        self.files = {
            f"/{name.replace('valid', 'val')}.gz": gzip.compress(text.encode()) for name, text in TEXTS.items()
        }
        self.asked: list[str] = []
        self.failures = 0
        """Number of requests from now on that are answered by half a file."""


@pytest.fixture
def host() -> Iterator[Host]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            if self.path not in found.files:
                return self.send_error(404)
            content = found.files[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if found.failures > 0 else content)
            found.failures -= 1
            return None

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Host(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_a_download_is_checked_and_written_as_plain_text(host: Host, to: Path) -> None:
    prepare(corpus_of(host.base), to)
    assert contents(to) == TEXTS
    assert host.asked == ["/train.de.gz", "/train.en.gz", "/val.de.gz", "/val.en.gz"]


def test_a_download_that_breaks_off_is_tried_once_more(host: Host, to: Path) -> None:
    host.failures = 1
    prepare(corpus_of(host.base), to)
    assert contents(to) == TEXTS
    assert host.asked[:3] == ["/train.de.gz", "/train.de.gz", "/train.en.gz"]


def test_a_download_that_breaks_off_twice_is_given_up(host: Host, to: Path) -> None:
    host.failures = 2
    with pytest.raises(DataError, match=r"/train\.de\.gz: the download failed twice .*--from"):
        prepare(corpus_of(host.base), to)
    assert contents(to) == {}
    assert len(host.asked) == 2


def test_no_such_page_and_no_server_are_network_failures(host: Host, to: Path) -> None:
    with pytest.raises(DataError, match=r"404.*--from"):
        prepare(corpus_of(f"{host.base}/old"), to)
    with pytest.raises(DataError, match=r"failed twice .*--from"):
        prepare(corpus_of("http://127.0.0.1:1"), to)
    assert contents(to) == {}


def test_another_text_at_the_address_is_refused(host: Host, to: Path) -> None:
    host.files["/train.de.gz"] = gzip.compress(b"Hallo!\n")
    with pytest.raises(DataError, match=rf"{host.base}/train\.de\.gz: is not the train\.de"):
        prepare(corpus_of(host.base), to)
    assert contents(to) == {}
    assert len(host.asked) == 1


@pytest.mark.slow
def test_a_bundled_corpus_is_unpacked_and_checked(bundled: Corpus, to: Path) -> None:
    assert prepare(bundled, to) == [to / name for name in TEXTS]
    assert contents(to) == TEXTS
    assert prepare(bundled, to) == []


@pytest.mark.slow
def test_a_damaged_bundled_corpus_is_refused(bundled: Corpus, to: Path) -> None:
    assert bundled.bundled is not None
    (bundled.bundled / "valid.tsv.xz").write_bytes(lzma.compress(b"Na?\tWas?\n"))
    with pytest.raises(DataError, match=r"valid\.tsv\.xz: is not the valid\.en"):
        prepare(bundled, to)
    assert set(contents(to)) == {"train.de", "train.en", "valid.de"}


def test_a_bundled_corpus_may_be_copied_instead(local: Path, bundled: Corpus, to: Path) -> None:
    assert bundled.bundled is not None
    for file in bundled.bundled.iterdir():
        file.unlink()
    (local / "val.en.gz").rename(local / "valid.en.gz")
    prepare(bundled, to, local)
    assert contents(to) == TEXTS


@pytest.mark.parametrize("corpus", CATALOGUE.values(), ids=CATALOGUE)
def test_entries_are_complete(corpus: Corpus) -> None:
    assert CATALOGUE[corpus.name] is corpus
    assert [file.name for file in corpus.files] == [
        f"{part}.{code}" for part in corpus.pairs for code in corpus.languages
    ]
    assert len({file.sha256 for file in corpus.files}) == len(corpus.files)
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in corpus.files)
    assert all(corpus.bundled or file.address for file in corpus.files)
    assert corpus.source
    assert corpus.licence
    assert corpus.citation


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CATALOGUE.values(), ids=CATALOGUE)
def test_entries_fit_the_real_corpora(corpus: Corpus, request: pytest.FixtureRequest, to: Path) -> None:
    local = None if corpus.bundled else request.getfixturevalue("corpora") / corpus.name
    if local is not None and not local.is_dir():
        pytest.skip(f"no {local}")
    prepare(corpus, to, local)
    for file in corpus.files:
        text = (to / file.name).read_bytes()
        assert len(text) == file.size
        assert text.count(b"\n") == corpus.pairs[file.name.partition(".")[0]]


def test_the_bundled_corpus_names_its_authors_and_terms(repository: Path) -> None:
    bundled = CATALOGUE["tatoeba-de-en"].bundled
    assert bundled is not None
    assert bundled.resolve() == repository / "corpora/tatoeba-de-en"
    attribution = (bundled / "ATTRIBUTION.md").read_text(encoding="utf-8")
    for named in ("www.manythings.org/anki", "tatoeba.org", "Creative Commons Attribution 2.0", "Changes:"):
        assert named in attribution


Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs `jointnmt data`, with the small corpora in the catalogue."""
    monkeypatch.setitem(CATALOGUE, "small", CORPUS)
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, ["data", *map(str, arguments)])


def test_the_catalogue_is_not_printed_in_the_place_of_a_corpus(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("multi30k", "--list", "--out", tmp_path)
    assert result.exit_code == 2 and "leave out multi30k, --out, or --list" in result.stderr
    result = invoke("multi30k", "--list")
    assert result.exit_code == 2 and "leave out multi30k, or --list" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_the_catalogue_is_printed_on_standard_output(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    for shown in ("multi30k", "tatoeba-de-en", "comes with this", "CC BY 2.0", "Elliott", "29,000", "162,136"):
        assert shown in result.stdout


def test_the_command_prepares_and_reports_on_standard_error(invoke: Invoke, local: Path, to: Path) -> None:
    result = invoke("small", "--out", to, "--from", local)
    assert result.exit_code == 0, result.stderr
    assert contents(to) == TEXTS
    assert result.stdout == ""
    assert "4 files written, 0 kept" in result.stderr
    assert "0 files written, 4 kept" in invoke("small", "--out", to).stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nosuch", "--out", "x"], "nosuch: there is no such corpus in the catalogue. It has: multi30k, tatoeba-de-en"),
        (["multi30k"], "--out is missing"),
        (["--out", "x"], "--out: name the corpus"),
    ],
)
def test_wrong_usage_is_2(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert complaint in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_corpus_that_cannot_be_had_is_3(invoke: Invoke, tmp_path: Path, to: Path) -> None:
    result = invoke("small", "--out", to, "--from", tmp_path)
    assert result.exit_code == 3
    assert "has no train.de" in result.stderr
