"""Problems of parallel text: each one is found, with its lines, and nothing else."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jointnmt.data.catalogue import BUNDLED
from jointnmt.data.quality.alignment import FrequentWords, ShiftedBlock, features, shifted_blocks
from jointnmt.data.quality.check import CheckedText, check_texts
from jointnmt.data.quality.clean import REMOVED, check_folder, write_clean, write_pairs
from jointnmt.data.quality.languages import SideLanguage, settle_languages
from jointnmt.data.quality.markup import markup_pairs, select_languages
from jointnmt.data.quality.problems import NUMBERS, comparable, is_copy, is_garbled, problem_of
from jointnmt.data.quality.records import is_heading
from jointnmt.data.quality.report import Finding, QualityReport, TextReport, quality_report
from jointnmt.data.quality.texts import GivenPair, GivenText, gather_texts
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.text.identification import is_other_language
from support.messy import messy_table, sentence_pairs

PAIRS = sentence_pairs(600)
GERMAN, ENGLISH = SideLanguage("de", "as said", True), SideLanguage("en", "as said", True)


def check(*files: Path) -> list[CheckedText]:
    texts, languages = settle_languages(gather_texts(files))
    return check_texts(texts, languages)


def table(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def bundled(part: str, count: int) -> list[tuple[str, str]]:
    with lzma.open(BUNDLED / "tatoeba-de-en" / f"{part}.tsv.xz", "rt", encoding="utf-8") as stream:
        return [(line.split("\t")[0], line.split("\t")[1].strip()) for line in islice(stream, count)]


def test_everything_that_is_wrong_with_a_table_is_found_at_once(tmp_path: Path) -> None:
    expected = messy_table(tmp_path / "mine.tsv", PAIRS, slice(200, 320))
    (checked,) = check(tmp_path / "mine.tsv")
    report = quality_report([checked], (GERMAN, ENGLISH)).texts[0]
    assert {finding.problem: finding.count for finding in report.findings} == expected
    assert {finding.problem: finding.examples[0].line for finding in report.findings} == {
        "header": 1, "empty": 5, "copy": 7, "language": 9, "duplicate": 11, "garbled": 13, "long": 15,
        "ratio": 17, "columns": 19, "shifted": 202,
    }  # fmt: skip
    assert report.shifted == ((202, 321, -1),)
    notes = " ".join(report.notes)
    assert "byte order mark" in notes and "CRLF" in notes and "3 columns" in notes
    assert report.good == len(PAIRS) + 1 - sum(expected.values())


@pytest.mark.parametrize("every", [2, 7, len(PAIRS)])
def test_pairs_that_stand_the_wrong_way_round_are_found(tmp_path: Path, every: int) -> None:
    """Half of the lines, some, and a single long one."""
    turned = [number % every == every - 1 for number in range(len(PAIRS))]
    pairs = [pair[::-1] if turn else pair for pair, turn in zip(PAIRS, turned, strict=True)]
    (checked,) = check_texts(gather_texts([table(tmp_path / "mine.tsv", pairs)]), (GERMAN, ENGLISH))
    found = checked.problems == NUMBERS["exchanged"]
    assert not (found & ~np.array(turned)).any()
    assert found.sum() > 0.97 * sum(turned)
    assert set(checked.counts()) == {"exchanged"}
    assert f"pairs with exchanged sides, which are left out: {found.sum()}." in " ".join(checked.notes)


def test_a_clean_copy_has_the_good_pairs_and_an_account_of_the_others(tmp_path: Path) -> None:
    expected = messy_table(tmp_path / "mine.tsv", PAIRS, slice(200, 320))
    written = write_clean(check(tmp_path / "mine.tsv"), tmp_path / "clean", ("de", "en"))
    source, target = ((tmp_path / "clean" / f"train.{code}").read_bytes().decode() for code in ("de", "en"))
    assert "\r" not in source and "\ufeff" not in source
    kept = list(zip(source.splitlines(), target.splitlines(), strict=True))
    assert set(kept) < set(PAIRS) and written == {"train": len(kept)}
    removed = (tmp_path / "clean" / REMOVED).read_text(encoding="utf-8").splitlines()
    assert len(removed) == sum(expected.values())
    assert removed[0].split("\t")[:2] == [f"{tmp_path / 'mine.tsv'}:1", "header"]
    (again,) = check(tmp_path / "clean" / "train.de", tmp_path / "clean" / "train.en")
    assert again.counts() == {}


@pytest.mark.slow
def test_no_false_alarms_on_the_bundled_corpus(tmp_path: Path) -> None:
    """3 of all 166,136 pairs have an odd ratio of lengths, and are bad translations; this is a part of the pairs."""
    folder = BUNDLED / "tatoeba-de-en"
    with lzma.open(folder / "train.tsv.xz") as lines:
        (tmp_path / "train.tsv").write_bytes(b"".join(islice(lines, 0, None, 10)))
    checked = check(tmp_path / "train.tsv", *(folder / f"{part}.tsv.xz" for part in ("valid", "test")))
    assert sum(len(each) for each in checked) == 20_214
    assert [each.counts() for each in checked] == [{}, {}, {}]
    assert all("invisible characters" in note for each in checked for note in each.notes), "it has a few of those"


def feature_pair(pairs: list[tuple[str, str]]) -> list[np.ndarray]:
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    words = [FrequentWords.of(side) for side in sides]
    return [
        features([each.signature(text) for text in side], np.array([len(text) for text in side]))
        for each, side in zip(words, sides, strict=True)
    ]


@pytest.mark.parametrize("order", ["sorted", "random"])
@pytest.mark.parametrize("shift", [1, -1, 2])
def test_a_shifted_block_is_found_to_within_a_few_lines(order: str, shift: int) -> None:
    """In the order of the bundled corpus, by length, lengths give no information."""
    pairs = bundled("valid", 2000)
    pairs.sort(key=lambda pair: len(pair[0])) if order == "sorted" else random.Random(2).shuffle(pairs)
    assert shifted_blocks(*feature_pair(pairs))[0] == []
    targets = [target for _, target in pairs]
    targets[600:800] = [targets[600 + (place + shift) % 200] for place in range(200)]
    (block,), correlation = shifted_blocks(*feature_pair([(a, b) for (a, _), b in zip(pairs, targets, strict=True)]))
    assert block.shift == -shift
    assert abs(block.begin - 600) < 8 and abs(block.end - 800) < 8
    assert correlation > 0.5


def test_a_line_missing_early_shifts_all_the_rest() -> None:
    targets = [target for _, target in PAIRS]
    pairs = [(source, target) for (source, _), target in zip(PAIRS[:100] + PAIRS[101:], targets, strict=False)]
    (block,), _ = shifted_blocks(*feature_pair(pairs))
    assert block.shift == 1 and abs(block.begin - 100) < 5 and block.end > 590


def test_text_that_does_not_belong_together(tmp_path: Path) -> None:
    targets = [target for _, target in PAIRS]
    random.Random(1).shuffle(targets)
    (checked,) = check(table(tmp_path / "a.tsv", [(a, b) for (a, _), b in zip(PAIRS, targets, strict=True)]))
    assert any("check that these lines belong together" in note for note in checked.notes)


def test_each_part_is_compared_with_the_parts_before_which_it_is_measured(tmp_path: Path) -> None:
    """A copy within a part is a duplicate; of pairs in two parts, the part for measuring keeps them."""
    train, valid, test = PAIRS[:200], PAIRS[200:240], PAIRS[240:280]
    given = {"train": [*train, valid[0], test[0], train[7]], "valid": [*valid, test[1]], "test": test}
    checked = check(*(table(tmp_path / f"{part}.tsv", pairs) for part, pairs in given.items()))
    assert [each.counts() for each in checked] == [{"duplicate": 1, "overlap": 2}, {"overlap": 1}, {}]


def test_given_languages_count_for_more_than_words_in_names(tmp_path: Path) -> None:
    for names, said in (
        (("app", "sub"), ("de", "en")),
        (("faq-de", "faq-en"), (None, None)),
        (("b.deu", "b.eng"), ("de", "en")),
    ):
        for name, side in zip(names, zip(*PAIRS, strict=True), strict=True):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        texts, languages = settle_languages(gather_texts([tmp_path / name for name in names]), *said)
        assert [each.language for each in languages] == ["de", "en"] and texts[0].files[0].name == names[0]
    (checked,) = check(tmp_path / "b.deu", tmp_path / "b.eng")
    assert checked.counts() == {}


def test_overlap_is_told_by_the_parts_that_files_are_named_for(tmp_path: Path) -> None:
    held_out = [(PAIRS[5][0].upper(), "Another translation of this sentence."), *PAIRS[500:520]]
    train, test = table(tmp_path / "mine-train.tsv", PAIRS[:500]), table(tmp_path / "mine-test.tsv", held_out)
    checked = check(train, test)
    assert [each.text.part for each in checked] == ["train", "test"]
    assert checked[0].counts() == {"overlap": 1} and checked[0].problems[5]
    assert checked[1].counts() == {}


@pytest.mark.parametrize(
    ("named", "languages"),
    [
        ({"source": "de", "target": "en-US"}, ("de", "en-US")),
        ({"source": "de", "target": "en-GB"}, ("de", "en-GB")),
        ({"source": "en-US", "target": "en-GB"}, ("en-US", "en-GB")),
        ({"source": "de", "target": "en"}, ("de", "en-GB")),
        ({}, ("de", "en-GB")),
    ],
)
def test_regions_are_told_apart(named: dict[str, str], languages: tuple[str, str], tmp_path: Path) -> None:
    texts = {"de": "Farbe", "en-GB": "colour", "en-US": "color"}
    unit = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    memory = f'<tmx version="1.4"><header srclang="de"/><body><tu>{unit}</tu></body></tmx>'
    (tmp_path / "a.tmx").write_text(memory, encoding="utf-8")
    assert select_languages(tmp_path / "a.tmx", ".tmx", None, **named).languages == languages


def test_a_unit_with_several_translations_makes_as_many_pairs(tmp_path: Path) -> None:
    unit = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("de", "Ja."), ("en", "Yes.")))
    unit += '<tuv xml:lang="en"><seg>Indeed.</seg></tuv>'
    path = tmp_path / "a.tmx"
    alone = '<tu><tuv xml:lang="de"><seg>Nein.</seg></tuv></tu>'
    path.write_text(f'<tmx version="1.4"><header srclang="de"/><body><tu>{unit}</tu>{alone}</body></tmx>', "utf-8")
    (text,) = gather_texts([path])
    found = [(pair.source, pair.target, pair.problem, pair.detail) for pair in text.pairs()]
    assert found[:2] == [("Ja.", "Yes.", "", ""), ("Ja.", "Indeed.", "", "")]
    assert found[2:] == [("Nein.", "", "unreadable", "no en side")], "the side that is there is shown"


def xliff_unit(number: int, source: str, target: str, state: str) -> str:
    return f'<trans-unit id="{number}"><source>{source}</source><target{state}>{target}</target></trans-unit>'


def test_documents_say_language_and_state_of_their_units(tmp_path: Path) -> None:
    units = [("Ja.", "Yes.", ""), ("Nein.", "Nein.", ' state="needs-translation"'), ("Gut.", "Good.", ' state="final"')]
    english = "".join(xliff_unit(number, *unit) for number, unit in enumerate(units))
    files = "".join(
        f'<file source-language="de" target-language="{code}" original="{code}" datatype="x"><body>{body}</body></file>'
        for code, body in (("en", english), ("fr", xliff_unit(9, "Ja.", "Oui.", "")))
    )
    path = tmp_path / "a.xliff"
    path.write_text(f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{files}</xliff>', "utf-8")
    (text,) = gather_texts([path], source="de", target="en")
    found = [(pair.source, pair.target, pair.problem, pair.detail) for pair in text.pairs()]
    assert found == [
        ("Ja.", "Yes.", "", ""),
        ("Nein.", "Nein.", "untranslated", "state needs-translation"),
        ("Gut.", "Good.", "", ""),
        ("Ja.", "", "unreadable", "no en side"),
    ]


def test_the_state_of_an_alternative_is_not_that_of_the_unit(tmp_path: Path) -> None:
    other = '<alt-trans><target state="needs-translation">Ja.</target></alt-trans>'
    body = f'<trans-unit id="1"><source>Ja.</source><target>Yes.</target>{other}</trans-unit>'
    file = f'<file source-language="de" target-language="en" original="a" datatype="x"><body>{body}</body></file>'
    segments = "".join(
        f'<segment state="{state}"><source>{source}</source><target>{target}</target></segment>'
        for state, source, target in (("final", "Ja.", "Yes."), ("initial", "Nein.", "Nein."))
    )
    one, two = tmp_path / "one.xlf", tmp_path / "two.xlf"
    one.write_text(f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{file}</xliff>', "utf-8")
    names = 'xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="de" trgLang="en"'
    unit = f'<file id="f"><unit id="u">{segments}</unit></file>'
    two.write_text(f'<xliff version="2.0" {names}>{unit}</xliff>', "utf-8")
    texts = [text for path in (one, two) for text in gather_texts([path])]
    found = [[(pair.source, pair.detail) for pair in text.pairs()] for text in texts]
    assert found == [[("Ja.", "")], [("Ja.", ""), ("Nein.", "state initial")]]


def test_a_side_of_invisible_characters_is_empty(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.tsv", [*PAIRS[:20], ("\ufeff\u200b ", "Yes."), *PAIRS[20:40]])
    assert check(path)[0].counts() == {"empty": 1}


def test_html_and_invisible_characters_are_noted(tmp_path: Path) -> None:
    odd = [("Ein <b>Hund</b> &amp; eine Katze.", "A dog and a cat."), ("Ein Vogel.", 'A <a href="x">bird</a>.')]
    hidden = [
        ("Die Schlüs\u00adsel liegen dort.", "The keys are there."),
        ("2 < 3 und 3 > 2 & so", "2 < 3 and 3 > 2 & so on"),
    ]
    path = table(tmp_path / "mine.tsv", [*PAIRS[:30], *odd, *hidden, *PAIRS[30:60]])
    (checked,) = check(path)
    assert checked.counts() == {}
    assert [note.removeprefix(f"{path}: ") for note in checked.notes] == [
        "pairs with tags or entities of HTML, such as <b>: 2. They are kept: remove tags and entities, "
        "unless translations should have them",
        "pairs with invisible characters, such as soft hyphens, which no model sees: 1",
    ]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_an_encoding_of_two_bytes_without_a_mark_is_guessed(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mine.tsv"
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in PAIRS[:60]).encode(encoding))
    (text,) = gather_texts([path])
    assert f"perhaps {encoding} (--encoding)" in " ".join(text.notes)
    (again,) = gather_texts([path], encoding=encoding)
    assert [(pair.source, pair.target) for pair in again.pairs()] == PAIRS[:60]


def test_cells_in_the_quotes_of_a_spreadsheet_are_noted(tmp_path: Path) -> None:
    quoted = [('"Er sagte ""ja"" dazu."', '"He said ""yes"" to it."'), ('"Ein Wort."', '"A word."')]
    (checked,) = check(table(tmp_path / "mine.tsv", [*PAIRS[:60], *quoted]))
    (note,) = checked.notes
    assert "as spreadsheets write cells: 1." in note and ".csv" in note


def test_units_that_lack_a_region_are_counted(tmp_path: Path) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>Farbe</seg></tuv><tuv xml:lang="{code}"><seg>{text}</seg></tuv></tu>'
        for code, text in (("en-GB", "colour"), ("en-US", "color"), ("en-GB", "colour"))
    )
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>', encoding="utf-8")
    (text,) = gather_texts([path], source="de", target="en-GB")
    assert [pair.target for pair in text.pairs()] == ["colour", "color", "colour"]
    assert text.notes == (f"{path}: 1 of 3 units have no en-GB; 1 of en-US are used",)


def test_translations_in_another_variant_of_a_language_are_counted(tmp_path: Path) -> None:
    both = '<tuv xml:lang="en-GB"><seg>colour</seg></tuv><tuv xml:lang="en"><seg>color</seg></tuv>'
    unit = f'<tu><tuv xml:lang="de"><seg>Farbe</seg></tuv>{both}</tu>'
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="de"/><body>{unit * 3}</body></tmx>', encoding="utf-8")
    (text,) = gather_texts([path], source="de", target="en-GB")
    assert [pair.target for pair in text.pairs()] == ["colour"] * 3
    assert text.notes == (f"{path}: 3 translations of the same units in other variants of en-GB are not read",)


def write_tmx(path: Path, pairs: list[tuple[str, str]]) -> None:
    units = "\n".join(
        f'<tu><tuv xml:lang="en"><seg>{b}</seg></tuv><tuv xml:lang="de-DE"><seg>{a}</seg></tuv></tu>' for a, b in pairs
    )
    head = '<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4"><header srclang="de-DE"/><body>'
    path.write_text(f"{head}\n{units}\n</body></tmx>", encoding="utf-8")


def test_codes_within_sentences_are_no_text(tmp_path: Path) -> None:
    coded = 'Ein <bpt i="1">&lt;b&gt;</bpt>fetter<ept i="1">&lt;/b&gt;</ept> Hund<ph x="1">&lt;br&gt;</ph>.'
    units = f'<tu><tuv xml:lang="de"><seg>{coded}</seg></tuv><tuv xml:lang="en"><seg>A dog.</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>', "utf-8")
    unit = (
        f'<trans-unit id="1"><source>{coded.replace("i=", "id=").replace("x=", "id=")}</source><target>A dog.</target>'
    )
    file = f'<file source-language="de" target-language="en" original="a" datatype="x"><body>{unit}</trans-unit></body>'
    start = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    (tmp_path / "b.xliff").write_text(f"{start}{file}</file></xliff>", "utf-8")
    for name in ("a.tmx", "b.xliff"):
        (text,) = gather_texts([tmp_path / name])
        assert [(pair.source, pair.target) for pair in text.pairs()] == [("Ein fetter Hund.", "A dog.")]


def write_many_languages(path: Path, pairs: list[tuple[str, str]]) -> None:
    """A translation memory with German, English and French, or an equivalent."""
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{a}</seg></tuv><tuv xml:lang="en"><seg>{b}</seg></tuv>'
        f'<tuv xml:lang="fr-CA"><seg>Une phrase, numéro {number}.</seg></tuv></tu>'
        for number, (a, b) in enumerate(pairs)
    )
    path.write_text(
        f'<?xml version="1.0"?><tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>', "utf-8"
    )


FRENCH = [f"Une phrase, numéro {number}." for number in range(50)]


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({}, PAIRS[0]),
        ({"target": "fr"}, (PAIRS[0][0], FRENCH[0])),
        ({"source": "en"}, (PAIRS[0][1], PAIRS[0][0])),
        ({"source": "fr", "target": "en"}, (FRENCH[0], PAIRS[0][1])),
        ({"columns": ["fr-CA", "de"]}, (FRENCH[0], PAIRS[0][0])),
    ],
)
def test_languages_are_chosen_out_of_a_memory_of_several(
    tmp_path: Path, said: dict[str, Any], first: tuple[str, str]
) -> None:
    write_many_languages(tmp_path / "mine.tmx", PAIRS[:50])
    (text,) = gather_texts([tmp_path / "mine.tmx"], **said)
    (turned,), _ = settle_languages([text], said.get("source"), said.get("target"))
    pair = next(turned.pairs())
    assert (pair.source, pair.target) == first
    named = said.get("columns") or ("source" in said and "target" in said)
    assert bool(named) != any("the languages" in note for note in text.notes)


@pytest.mark.parametrize("said", [{"source": "it"}, {"columns": ["0", "1"]}])
def test_a_language_that_a_memory_lacks_is_refused_with_those_it_has(tmp_path: Path, said: dict[str, Any]) -> None:
    write_many_languages(tmp_path / "mine.tmx", PAIRS[:50])
    with pytest.raises(ConfigurationError, match=r"has the languages de, en, fr-CA, but not (it|0)\."):
        gather_texts([tmp_path / "mine.tmx"], **said)


def test_endings_count_in_capitals_too(tmp_path: Path) -> None:
    write_tmx(tmp_path / "MEMORY.TMX", PAIRS[:50])
    (tmp_path / "T.TSV.GZ").write_bytes(gzip.compress("".join(f"{a}\t{b}\n" for a, b in PAIRS[:50]).encode()))
    texts, _ = settle_languages(gather_texts([tmp_path / "MEMORY.TMX", tmp_path / "T.TSV.GZ"]))
    assert [[pair.source for pair in text.pairs()] for text in texts] == [[source for source, _ in PAIRS[:50]]] * 2
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(b"no markup", mtime=0))
    with pytest.raises(DataError, match="is no TMX file"):
        gather_texts([tmp_path / "a.tmx.gz"])


@pytest.mark.parametrize(("name", "content"), [("a.xlf", "<xliff/>"), ("a.xlf", "<html/>"), ("a.tmx", "<html/>")])
def test_other_xml_is_no_translation_memory(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=r"file, or is damaged: \w"):
        gather_texts([tmp_path / name])


def test_corpora_whose_names_have_both_languages_belong_together_by_their_endings(tmp_path: Path) -> None:
    """For example those of OPUS."""
    files = [tmp_path / f"{name}.de-en.{code}" for name in ("A", "B") for code in ("de", "en")]
    for path in files:
        path.write_text("x\n", encoding="utf-8")
    assert [text.files for text in gather_texts(files)] == [tuple(files[:2]), tuple(files[2:])]


def write_xliff(path: Path, pairs: list[tuple[str, str]]) -> None:
    units = "".join(
        f'<trans-unit id="{number}"><source>{a}</source><target>{b}</target></trans-unit>'
        for number, (a, b) in enumerate(pairs)
    )
    path.write_text(
        '<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" '
        f'source-language="de" target-language="en" datatype="plaintext"><body>{units}</body></file></xliff>',
        encoding="utf-8",
    )


def write_kind(folder: Path, kind: str) -> list[Path]:
    """The sentences in files of a format."""
    pairs, path = PAIRS[:50], folder / f"mine.{kind}"
    if kind == "lines":
        paths = [folder / "mine.de", folder / "mine.en"]
        for side, each in enumerate(paths):
            each.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        return paths
    if kind == "lines.utf-16":
        (folder / "de.txt").write_text("".join(f"{a}\r\n" for a, _ in pairs), encoding="utf-16", newline="")
        (folder / "en.txt").write_text("".join(f"{b}\n" for _, b in pairs), encoding="utf-8")
        return [folder / "de.txt", folder / "en.txt"]
    if kind == "tsv.gz":
        path.write_bytes(gzip.compress("".join(f"{a}\t{b}\n" for a, b in pairs).encode()))
    elif kind == "txt":  # as Anki exports: a table by its content
        path.write_text("".join(f"{a}\t{b}\tCC BY {n}\n" for n, (a, b) in enumerate(pairs)), encoding="utf-8")
    elif kind in ("csv", "csv.gz", "tabs.csv"):
        stream = io.StringIO()
        rows = ([str(n), f" {a.replace(' ', chr(10), 1)}", b] for n, (a, b) in enumerate(pairs))
        csv.writer(stream, delimiter={"csv": ";", "csv.gz": ",", "tabs.csv": "\t"}[kind]).writerows(
            [["id", "German", "English"], *rows]
        )
        content = stream.getvalue().encode()
        path.write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
    elif kind == "jsonl":
        records = ({"id": n, "translation": {"de": a, "en": b}} for n, (a, b) in enumerate(pairs))
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    elif kind == "tmx":
        write_tmx(path, pairs)
    else:
        write_xliff(path, pairs)
    return [path]


@pytest.mark.parametrize(
    "kind", ["lines", "lines.utf-16", "tsv.gz", "txt", "csv", "csv.gz", "tabs.csv", "jsonl", "tmx", "xlf"]
)
def test_every_kind_of_file_gives_the_same_pairs(tmp_path: Path, kind: str) -> None:
    texts, languages = settle_languages(gather_texts(write_kind(tmp_path, kind)))
    assert [side.language.partition("-")[0] for side in languages] == ["de", "en"]
    found = [(pair.source, pair.target) for pair in texts[0].pairs()]
    assert found == [*[("German", "English")] * ("csv" in kind), *PAIRS[:50]]


def test_a_table_all_of_whose_cells_are_in_quotes_is_read_without_them(tmp_path: Path) -> None:
    quoted = [tuple(f'"{side}"' for side in pair) for pair in PAIRS[:50]]
    (text,) = gather_texts([table(tmp_path / "a.tsv", [*quoted, ('"Er sagte ""ja""."', '"He said yes."')])])
    *pairs, last = ((pair.source, pair.target) for pair in text.pairs())
    assert pairs == PAIRS[:50] and last == ('Er sagte "ja".', "He said yes.")
    assert "cells are in quotes, which are removed" in " ".join(text.notes)


def test_encodings_that_differ_in_the_letters_at_hand_are_both_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    french = ("Zum Nachtisch gibt es Crème brûlée, sie wohnt in Genève.", "Dessert is crème brûlée in Genève.")
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in [french, *PAIRS[:200]]).encode("latin-1", "ignore"))
    (text,) = gather_texts([path])
    assert "perhaps cp1252 (Crème) or cp1250 (Crčme) (--encoding)" in " ".join(text.notes)


def test_quotes_of_a_table_that_do_not_end_cost_their_line_alone(tmp_path: Path) -> None:
    """Line numbers are those of the file, whatever contains line breaks."""
    path = tmp_path / "a.csv"
    good = [f'"Ein, Wort ""{number}""\noder zwei.","One, word {number}."\n' for number in range(20)]
    path.write_text(
        "".join(
            [good[0], '"Das ist offen.,It is open.\n', *good[1:], '6" sind viel.,6 inches.\n', '"Ja" sagte er.,Yes\n']
        )
    )
    pairs = list(gather_texts([path])[0].pairs())
    assert pairs[0] == (1, 'Ein, Wort "0" oder zwei.', "One, word 0.", "", "")
    assert [pair.line for pair in pairs if pair.problem] == [3, 43]
    assert [(pair.line, pair.target) for pair in pairs[2:-2]] == [
        (2 * number + 2, f"One, word {number}.") for number in range(1, 20)
    ]
    assert pairs[-2][:3] == (42, '6" sind viel.', "6 inches.")


@pytest.mark.parametrize("kind", ["lines", "tsv.gz", "jsonl", "tmx"])
def test_sides_are_exchanged_where_the_languages_say_so(tmp_path: Path, kind: str) -> None:
    texts, _ = settle_languages(gather_texts(write_kind(tmp_path, kind)), source="en", target="de")
    assert [(pair.target, pair.source) for pair in texts[0].pairs()] == PAIRS[:50]


def test_several_texts_are_turned_the_same_way(tmp_path: Path) -> None:
    one, other = table(tmp_path / "a.tsv", PAIRS[:50]), table(tmp_path / "b.tsv", [(b, a) for a, b in PAIRS[50:99]])
    texts, _ = settle_languages(gather_texts([one, other]))
    assert [pair.source for text in texts for pair in text.pairs()] == [source for source, _ in PAIRS[:99]]


def test_sides_that_look_alike_stay_as_they_are_said(tmp_path: Path) -> None:
    """Both sides are detected as English, so swapping them would agree no better with the given languages."""
    pairs = [(f"{b} Is it so?", b) for _, b in PAIRS[:50]]
    texts, _ = settle_languages(gather_texts([table(tmp_path / "a.tsv", pairs)]), source="pcm", target="en")
    assert [(pair.source, pair.target) for pair in texts[0].pairs()] == pairs
    assert not texts[0].notes


def test_a_text_whose_sides_are_exchanged_has_a_note(tmp_path: Path) -> None:
    (text,), _ = settle_languages(gather_texts(write_kind(tmp_path, "lines")), source="en")
    assert text.notes == (f"{text.name}: is read with its sides exchanged, the second one as the source",)


def test_a_language_that_letters_do_not_tell_is_believed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.hsb").write_text("Dobry dźeń wšitkim ludźom na swěće.\n" * 9, encoding="utf-8")
    (tmp_path / "a.en").write_text("Good day to all people of the world.\n" * 9, encoding="utf-8")
    _, (source, target) = settle_languages(gather_texts([tmp_path / "a.hsb", tmp_path / "a.en"]))
    assert (source.language, source.sure, source.checked) == ("hsb", True, False)
    assert (target.language, target.sure) == ("en", True)


def test_text_of_seven_bits_is_read_as_said(tmp_path: Path) -> None:
    (tmp_path / "a.ja").write_bytes("犬が走る。\n".encode("iso2022_jp") * 3)
    (tmp_path / "a.en").write_text("The dog runs.\n" * 3, encoding="utf-8")
    (text,) = gather_texts([tmp_path / "a.ja", tmp_path / "a.en"], encoding="iso2022_jp")
    assert [(pair.source, pair.target) for pair in text.pairs()] == [("犬が走る。", "The dog runs.")] * 3


def test_other_encodings_are_named_and_read_when_said(tmp_path: Path) -> None:
    sources = "".join(f"{a}\n" for a, _ in PAIRS)
    (tmp_path / "a.de").write_bytes(sources.encode("cp1252"))
    (tmp_path / "a.en").write_text("".join(f"{b}\n" for _, b in PAIRS[:-2]), encoding="utf-8")
    (checked,) = check(tmp_path / "a.de", tmp_path / "a.en")
    bad = sum(not a.isascii() for a, _ in PAIRS)
    assert checked.counts()["unreadable"] == bad
    assert any("not UTF-8" in note and "perhaps cp1252 (--encoding)" in note for note in checked.notes)
    (text,) = gather_texts([tmp_path / "a.de", tmp_path / "a.en"], encoding="cp1252")
    (checked,) = check_texts([text], (GERMAN, ENGLISH))
    assert checked.counts() == {"no-counterpart": 2}


def test_lines_that_end_in_cr_alone_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("\r".join(f"{a}\t{b}" for a, b in PAIRS).encode())
    with pytest.raises(DataError, match="lines end in CR alone"):
        gather_texts([tmp_path / "a.tsv"])


def test_lines_without_tabs_are_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a b c\nd e f\n")
    with pytest.raises(ConfigurationError, match="one column, so it holds no pairs"):
        gather_texts([tmp_path / "a.tsv"])


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    for name in ("a.de", "a.en", "b.de"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"b\.de: it is not clear"):
        gather_texts([tmp_path / name for name in ("a.de", "a.en", "b.de")])
    (tmp_path / "c.tmx").write_text("no markup", encoding="utf-8")
    with pytest.raises(DataError, match="TMX"):
        check(tmp_path / "c.tmx")
    with pytest.raises(DataError, match="cannot be read"):
        gather_texts([tmp_path / "none.tsv"])


def test_the_language_of_short_lines_is_told_by_several_together(tmp_path: Path) -> None:
    """A corpus sorted by length begins like this."""
    german = ["Geh weg!", "Ich auch.", "Komm her!", "Wer ist da?", "Das ist gut.", "Wir sind müde."] * 10
    english = ["Go away!", "Me too.", "Come here!", "Who is it?", "This is good.", "We are tired."] * 10
    path = table(tmp_path / "short.tsv", list(zip(german, english, strict=True)))
    _, sides = settle_languages(gather_texts([path]))
    assert [(side.language, side.sure) for side in sides] == [("de", True), ("en", True)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("said", [None, "utf-32"])
def test_wide_encodings_are_known_by_their_mark(tmp_path: Path, encoding: str, said: str | None) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{a}\t{b}\r\n" for a, b in PAIRS[:9]), encoding=encoding, newline="")
    (text,) = gather_texts([tmp_path / "a.txt"], encoding=said)
    assert [(pair.source, pair.target) for pair in text.pairs()] == PAIRS[:9]
    assert f"is {encoding.upper()}, not" in text.notes[0] and "CRLF" in text.notes[1]


@pytest.mark.parametrize("encoding", ["UTF-16LE", "utf_16_be", "UTF-32-LE"])
def test_wide_encodings_without_a_mark_are_read_if_named(tmp_path: Path, encoding: str) -> None:
    """Invalid characters in them are counted: here a single surrogate."""
    lines = ["Grüße", "Ende\ud800"]
    (tmp_path / "a.de").write_bytes("".join(f"{line}\r\n" for line in lines).encode(encoding, "surrogatepass"))
    (tmp_path / "a.en").write_text("Regards\nEnd\n", encoding="utf-8")
    (text,) = gather_texts([tmp_path / "a.de", tmp_path / "a.en"], encoding=encoding)
    assert next((pair.source, pair.target) for pair in text.pairs()) == ("Grüße", "Regards")
    (checked,) = check_texts(*settle_languages([text], "de", "en"))
    assert checked.counts() == {"unreadable": 1}


def test_bytes_of_utf_16_that_are_no_text_are_counted_and_left_out(tmp_path: Path) -> None:
    """A replacement character in the text itself is different: a letter that was garbled before."""
    content = "Grüße\nBis bald \ufffd\nEnde\nNull\0\n".encode("utf-16")
    end = content.index("Ende".encode("utf-16-le"))
    (tmp_path / "a.de").write_bytes(content[:end] + b"\x00\xd8" + content[end:] + b"x")
    (tmp_path / "a.en").write_text("Regards\nSee you\nEnd\nNull\nmore\n", encoding="utf-8")
    (text,) = gather_texts([tmp_path / "a.de", tmp_path / "a.en"])
    (checked,) = check_texts(*settle_languages([text], "de", "en"))
    assert [pair.detail for pair in text.pairs()] == ["", "", "wrong encoding", "NUL byte", "wrong encoding"]
    assert checked.counts() == {"garbled": 1, "unreadable": 3}
    assert [pair.source for pair in checked.good_pairs()] == ["Grüße"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"", "is empty"),
        ("a.de", b"\n\n", "is empty"),
        ("a.de", b"\xef\xbb\xbf\r\n", "is empty"),
        ("a.de", b"\xff\xfe\n\0 \0", "is empty"),
        ("a.tmx", b"<?xml version='1.0'?><tmx version='1.4'><header/><body/></tmx>", "contains no pair"),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "is a PDF, not text"),
        ("a.tsv", b"PK\x03\x04\x14", "document of an office program, not text"),
        ("a.parquet", b"PAR1\x15\x04", "a Parquet table, not text"),
        ("a.tsv", gzip.compress(b"a\tb\n", mtime=0), r"compressed by gzip.*\.gz"),
        ("a.tsv", lzma.compress(b"a\tb\n"), r"compressed by xz.*\.xz"),
        ("a.tsv", bz2.compress(b"a\tb\n"), r"compressed by bzip2.*\.bz2"),
        ("a.tsv.zst", b"\x28\xb5\x2f\xfd\x04\x00\x19\x00", r"compressed by zstd\. Decompress it\."),
    ],
)
def test_files_without_text_are_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: .*{message}"):
        gather_texts([tmp_path / name])


def test_a_file_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(DataError) as error:
            gather_texts([path])
        assert "Errno" not in str(error.value) and str(error.value).count(str(path)) == 1


def test_one_file_of_lines_lacks_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"a\.de: .*translations is missing"):
        gather_texts([tmp_path / "a.de"])


@pytest.mark.parametrize(("name", "advice"), [("a.xlsx", "as .csv"), ("a.json", "as .jsonl")])
def test_files_of_unread_kinds_are_told_how_to_be_saved(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_text('"ja","yes"\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"this format is not read.*{advice}"):
        gather_texts([tmp_path / name])


def test_a_file_or_a_column_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ty\n", encoding="utf-8")
    (tmp_path / "b").symlink_to("a.tsv")
    with pytest.raises(ConfigurationError, match=r"b: is named twice"):
        gather_texts([tmp_path / "a.tsv", tmp_path / "b"])
    with pytest.raises(ConfigurationError, match=r"source and target are the same"):
        gather_texts([tmp_path / "a.tsv"], ["0", "0"])
    with pytest.raises(ConfigurationError, match=r"--columns 0,00: source and target are the same"):
        gather_texts([tmp_path / "a.tsv"], ["0", "00"])


def test_deep_json_is_no_file_of_pairs(tmp_path: Path) -> None:
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    (tmp_path / "a.txt").write_text(f"{deep}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="holds one side of the pairs"):
        gather_texts([tmp_path / "a.txt"])


def test_a_pipe_is_refused_as_it_can_be_read_only_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not a regular file"):
        gather_texts([tmp_path / "pipe"])


def test_lines_without_counterpart_are_shown_and_kept(tmp_path: Path) -> None:
    for language, side, lines in (("de", 0, 600), ("en", 1, 598)):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS[:lines])
        (tmp_path / f"mine.{language}").write_text(text, encoding="utf-8")
    (checked,) = check(tmp_path / "mine.de", tmp_path / "mine.en")
    (finding,) = quality_report([checked], (GERMAN, ENGLISH)).texts[0].findings
    assert (finding.problem, finding.count) == ("no-counterpart", 2)
    assert (finding.examples[0].source, finding.examples[0].target) == (PAIRS[598][0], "(no counterpart)")
    assert not checked.lengths[598:].any() and not checked.words[598:].any()  # no part of the compared texts
    write_clean([checked], tmp_path / "clean", ("de", "en"))
    assert PAIRS[599][0] in (tmp_path / "clean" / REMOVED).read_text(encoding="utf-8")


def test_a_text_that_is_shifted_everywhere_is_told_in_a_few_lines() -> None:
    blocks = tuple((10 * number + 1, 10 * number + 1, 1) for number in range(40))
    text = TextReport("mine.tsv", "train", 400, 360, (), (Finding("shifted", 40, ()),), blocks)
    shown = QualityReport(GERMAN, ENGLISH, (text,)).render()
    assert len(shown.splitlines()) < 20 and "and 30 more blocks" in shown
    assert "line 11: translations are 1 line later" in shown


def test_a_short_word_in_a_name_is_no_language(tmp_path: Path) -> None:
    for name, side in (("my_first.txt", 0), ("my_second.txt", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    _, languages = settle_languages(gather_texts([tmp_path / "my_first.txt", tmp_path / "my_second.txt"]))
    assert [side.language for side in languages] == ["de", "en"]


def test_texts_in_other_languages_are_refused(tmp_path: Path) -> None:
    french = [("Je ne sais pas où se trouve la bibliothèque.", "Non so dove si trova la biblioteca di questa città.")]
    with pytest.raises(DataError, match="is in fr and it"):
        check(table(tmp_path / "a.tsv", PAIRS[:20]), table(tmp_path / "b.tsv", french * 9))


def test_a_clean_copy_is_not_written_over_what_is_checked(tmp_path: Path) -> None:
    for side, code in enumerate(("de", "en")):
        (tmp_path / f"train.{code}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match=r"train\.de: is one of your files and would be overwritten"):
        write_clean(check(*sorted(tmp_path.iterdir())), tmp_path / "." / "", ("de", "en"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    write_pairs([("old", "alt")], paths)

    def failing() -> Iterator[tuple[str, str]]:
        yield "new", "neu"
        raise OSError

    with pytest.raises(OSError):
        write_pairs(failing(), paths)
    assert [path.read_text() for path in paths] == ["old\n", "alt\n"] and len([*tmp_path.iterdir()]) == 2
    write_pairs([("new", "neu")], paths)
    assert [path.read_text() for path in paths] == ["new\n", "neu\n"]
    with pytest.raises(ConfigurationError, match="written twice"):
        write_pairs([("a", "b")], (paths[0], paths[0]))


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    check_folder(tmp_path)
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigurationError, match="--overwrite"):
        check_folder(tmp_path)
    check_folder(tmp_path, overwrite=True)
    with pytest.raises(ConfigurationError, match="mine: is not a folder"):
        check_folder(tmp_path / "mine" / "new")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Grüße", False), ("GrÃ¼ÃŸe", True), ("a\ufffdb", True), ("Ã", False),
        ("â€œJaâ€\x9d", True), ("Ã\x81vila", True), ("é\x81", False), ("語\x81", False),
    ],
)  # fmt: skip
def test_garbled(text: str, expected: bool) -> None:
    assert is_garbled(text) is expected


@pytest.mark.parametrize(
    ("source", "problem"),
    [("â€œJaâ€\x9d", "garbled"), ("a\x7fb", "unreadable"), ("a\x9db", "unreadable"), ("a\x85b", ""), ("a\tb", "")],
)
def test_control_characters_are_unreadable_unless_they_are_of_garbled_letters(source: str, problem: str) -> None:
    assert problem_of(GivenPair(2, source, "something else")) == problem


def test_sentences_are_comparable_but_for_case_punctuation_and_composition() -> None:
    assert comparable("Für Ávila!") == comparable(unicodedata.normalize("NFD", "für ávila"))
    assert comparable("ฉันเห็นเสือ") != comparable("ฉันเห็นเสื้อ")  # a tiger, a shirt: only the tone differs
    assert comparable("वह दिन आया") != comparable("वह दान आया")


def test_a_sentence_of_decomposed_letters_is_the_same(tmp_path: Path) -> None:
    decomposed = [(unicodedata.normalize("NFD", a), b) for a, b in PAIRS if not a.isascii()][:50]
    held_out = [(source, f"Another version: {target}") for source, target in decomposed[1:]]
    checked = check(table(tmp_path / "a.tsv", [*PAIRS, decomposed[0]]), table(tmp_path / "a-test.tsv", held_out))
    assert [each.counts() for each in checked] == [{"duplicate": 1, "overlap": 49}, {}]


def test_half_a_surrogate_pair_is_unreadable(tmp_path: Path) -> None:
    records = [{"source": a, "target": b} for a, b in PAIRS[:50]]
    records[7]["target"] = "half \ud83d"
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    (checked,) = check(tmp_path / "a.jsonl")
    (finding,) = quality_report([checked], (GERMAN, ENGLISH)).texts[0].findings
    assert (finding.problem, finding.count, finding.examples[0].target) == ("unreadable", 1, "half ?")
    write_clean([checked], tmp_path / "clean", ("de", "en"))


def test_keys_may_have_dots_in_their_names(tmp_path: Path) -> None:
    records = ({"id": {"x.de": a}, "text.en": b} for a, b in PAIRS[:50])
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    (text,) = gather_texts([tmp_path / "a.jsonl"])
    assert text.selection.fields == ("id.x.de", "text.en")
    assert [(pair.source, pair.target) for pair in text.pairs()] == PAIRS[:50]


def test_a_key_with_the_name_of_a_problem_is_none(tmp_path: Path) -> None:
    records = [{"columns": a, "target": b} for a, b in PAIRS[:50]]
    del records[7]["columns"]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    (checked,) = check(tmp_path / "a.jsonl")
    (finding,) = quality_report([checked], (GERMAN, ENGLISH)).texts[0].findings
    assert (finding.problem, finding.examples[0].source) == ("unreadable", json.dumps(records[7]))


def test_a_copy_is_a_sentence_not_a_name() -> None:
    assert is_copy("This is the same.", "this is the  same.")
    assert not is_copy("New York", "New York")


def test_headings() -> None:
    assert all(map(is_heading, ["source", "German", "Deutsch", "en", "Sentence (English)", "target_text"]))
    assert not any(map(is_heading, ["", "Hello", "I speak English", "the source of all evil"]))


def test_the_part_is_a_word_of_the_name() -> None:
    names = ("latest.tsv", "my-test.tsv", "newsdev2015.tsv", "dev.de", "contested.tsv")
    assert [GivenText((Path(name),), ".tsv").part for name in names] == ["train", "test", "train", "valid", "train"]


def test_blocks_are_plain_tuples() -> None:
    assert sorted([ShiftedBlock(5, 9, 1), ShiftedBlock(2, 4, -1)])[0].begin == 2


def test_a_memory_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    for word in ("first", "another"):
        unit = f'<tuv xml:lang="de"><seg>Wort</seg></tuv><tuv xml:lang="en"><seg>{word}</seg></tuv>'
        path.write_text(f'<tmx version="1.4"><header srclang="de"/><body><tu>{unit}</tu></body></tmx>', "utf-8")
        chosen = select_languages(path, ".tmx", None)
        assert [row[2] for row in markup_pairs(path, ".tmx", chosen)] == [word]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("أحب أن أقرأ الكتب في المساء قبل النوم", True),
        ("我喜欢在晚上睡觉之前读一本好书，这样可以睡得更好。", True),
        ("Я люблю читать книги вечером перед сном.", True),
        ("Jeg liker å lese bøker om kvelden før jeg legger meg.", True),
        ("J'aime lire un livre le soir avant de dormir.", True),
        ("Ich lese abends gern ein Buch, bevor ich schlafe.", False),
        ("Tom Jackson, Boston, Massachusetts", False),
        ("Die Mannschaft aus Rio de Janeiro gewann.", False),
    ],
)
def test_a_sentence_of_another_language_is_found_though_its_relatives_are_alike(text: str, found: bool) -> None:
    assert is_other_language(text, "de") is found


def test_columns_are_named_as_in_the_header(tmp_path: Path) -> None:
    rows = [("id", "Deutsch", "Englisch", "Kommentar"), *((str(n), a, b, "gut") for n, (a, b) in enumerate(PAIRS[:9]))]
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    (text,) = gather_texts([tmp_path / "a.csv"], ["Englisch", "Deutsch"])
    assert text.selection is not None and text.selection.fields == ("2", "1")
    with pytest.raises(ConfigurationError, match=r"--columns a,1: there is no such column.*1: Deutsch; 2: Englisch"):
        gather_texts([tmp_path / "a.csv"], ["a", "1"])
