"""Texts and HTML: split into sentences, and joined again."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from jointnmt.serving.documents import Document, Html, PlainText, Rendered
from jointnmt.serving.engine import Candidate
from jointnmt.serving.html_events import VOID
from jointnmt.serving.markup import DEEPEST

WORDS = st.lists(st.sampled_from(["Hund", "Katze", "sieht.", "ja!", "&amp;", "a&lt;b", "ü"]), max_size=4).map(" ".join)


def words_as_tokens(text: str) -> list[str]:
    return [*(f"▁{word}" for word in text.split()), "</s>"]


def translated(text: str, backwards: bool = False) -> Rendered:
    """Each word in capitals, in the same or reverse order, aligned accordingly."""
    words = text.split()
    order = list(range(len(words)))[:: -1 if backwards else 1]
    target = " ".join(words[place].upper() for place in order)
    alignment = torch.zeros((len(words) + 1, len(words) + 1))
    alignment[range(len(words) + 1), [*order, len(words)]] = 1
    candidate = Candidate(target, tuple(words_as_tokens(target)), (), 0.0, True, alignment)
    return Rendered(words_as_tokens(text), candidate)


def capitals(document: Document, backwards: bool = False) -> str:
    return document.filled([translated(piece.text, backwards) for piece in document.pieces], "en")


@pytest.mark.parametrize(
    ("text", "sentences", "filled"),
    [
        ("a", ["a"], "A"),
        ("", [], ""),
        ("  \n\n ", [], "  \n\n "),
        (
            "  Ein Satz. Noch einer!  \r\n\tund\n",
            ["Ein Satz.", "Noch einer!", "und"],
            "  EIN SATZ. NOCH EINER!  \r\n\tUND\n",
        ),
    ],
)
def test_text_keeps_its_lines_and_the_space_around_them(text: str, sentences: list[str], filled: str) -> None:
    document = PlainText.of(text, "de")
    assert [piece.text for piece in document.pieces] == sentences
    assert capitals(document) == filled


@given(st.text(alphabet=" \t\n\r\x0b\x0c\x85\u2028abA.!?", max_size=40))
def test_text_keeps_everything_but_the_space_between_sentences(text: str) -> None:
    filled = capitals(PlainText.of(text, "de"))
    assert filled.split() == text.upper().split()
    assert re.findall(r"[\n\r]", filled) == re.findall(r"[\n\r]", text)


def test_languages_without_spaces_have_none_between_sentences() -> None:
    assert PlainText.of("Ja. Nein.", "de").filled([translated("是。"), translated("不。")], "zh") == "是。不。"


@pytest.mark.parametrize(
    ("source", "filled"),
    [
        ("<p>ein <b>Hund</b> sieht</p>", "<p>EIN <b>HUND</b> SIEHT</p>"),
        ("ein <b>Hund</b>.", "EIN <b>HUND</b>."),
        ("<p class='x'>a &lt; b &amp; c</p>", "<p class='x'>A &lt; B &amp; C</p>"),
        ("<a href=u>eins <i>zwei</i></a> drei", "<a href=u>EINS <i>ZWEI</i></a> DREI"),
        ("eins <img src=a> zwei", "EINS <img src=a> ZWEI"),
        ("<p>a</p><!-- x --!><p>b</p>", "<p>A</p><!-- x --!><p>B</p>"),
        ("<p>a</p><!--><p>b</p><!---><p>c</p>", "<p>A</p><!--><p>B</p><!---><p>C</p>"),
        ("eins<!-- c --> zwei <b>drei</b>", "EINS <!-- c -->ZWEI <b>DREI</b>"),
        ("<script>var a = '<b>x</b>';</script>ja", "<script>var a = '<b>x</b>';</script>JA"),
        ("ein <code>x y</code> da", "EIN <code>x y</code> DA"),
        ("ja <span translate=NO>ein <div>x</div></span> ja", "JA <span translate=NO>ein <div>x</div></span> JA"),
        ("<span class='a notranslate'>ein</span> ja", "<span class='a notranslate'>ein</span> JA"),
        ("<b>eins <p>zwei</b> drei", "<b>EINS <p>ZWEI</b> DREI"),
        ("<b>Eins. Zwei.</b> <i>Drei</i>", "<b>EINS. ZWEI.</b> <i>DREI</i>"),
        ("a<br>b<hr/>c", "A<br>B<hr/>C"),
        ("ja <my-tag>ein</my-tag> ja", "JA <my-tag>EIN</my-tag> JA"),
        ("eins <g1>zwei <x0/> drei</g1> vier", "EINS <g1>ZWEI <x0/> DREI</g1> VIER"),
        ("ein <b>zwei <i>drei</b></i>.", "EIN <b>ZWEI <i>DREI</b></i>."),
        ("ein <b>zwei <i>drei <u>vier</u>.", "EIN <b>ZWEI <i>DREI <u>VIER</u>."),
        ("eins zwei</b> drei", "EINS ZWEI</b> DREI"),
        ("<!DOCTYPE html><title>ja</title>", "<!DOCTYPE html><title>JA</title>"),
        ("1 < 2 & 3", "1 &lt; 2 &amp; 3"),
        ("<", "&lt;"),
    ],
)
def test_html_keeps_its_tags_around_their_words(source: str, filled: str) -> None:
    assert capitals(Html.of(source, "de")) == filled


def test_tags_go_with_their_words_to_other_places() -> None:
    filled = capitals(Html.of("<p>eins <b>zwei</b> drei <a href=u>vier</a></p>", "de"), backwards=True)
    assert filled == "<p><a href=u>VIER</a> DREI <b>ZWEI</b> EINS</p>"


def test_an_element_whose_words_come_apart_is_written_twice() -> None:
    text, target = "der rote Hund", "DOG THE RED"
    alignment = torch.eye(4)[[2, 0, 1, 3]]
    candidate = Candidate(target, tuple(words_as_tokens(target)), (), 0.0, True, alignment)
    document = Html.of("der <b>rote Hund</b>", "de")
    assert document.filled([Rendered(words_as_tokens(text), candidate)], "en") == "<b>DOG</b> THE <b>RED</b>"


def test_an_element_that_no_word_would_have_gets_the_one_it_weighs_most_in() -> None:
    alignment = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.0, 0.0, 1.0]])
    candidate = Candidate("ONE TWO", ("▁ONE", "▁TWO", "</s>"), (), 0.0, True, alignment)
    document = Html.of("eins <b>zwei</b>", "de")
    assert document.filled([Rendered(words_as_tokens("eins zwei"), candidate)], "en") == "ONE <b>TWO</b>"


def test_an_empty_translation_keeps_the_tags() -> None:
    candidate = Candidate("", ("</s>",), (), 0.0, True, torch.tensor([[0.5, 0.2, 0.3]]))
    document = Html.of("eins <b>zwei</b><img>", "de")
    assert tags(document.filled([Rendered(words_as_tokens("eins zwei"), candidate)], "en")) == ["<b>", "</b>", "<img>"]


def tags(source: str) -> list[str]:
    return re.findall(r"<[^>]*>", source)


class Nesting(HTMLParser):
    """Records end tags that close nothing, and counts start tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.started: Counter[str] = Counter()
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.started[tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.wrong.append(tag)


def nested(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    elements = st.tuples(st.sampled_from(["b", "i", "a", "p", "div", "span"]), children)
    several = st.lists(st.one_of(children, elements.map(lambda each: f"<{each[0]}>{each[1]}</{each[0]}>")), max_size=4)
    return several.map(" ".join)


MARKUP = st.recursive(st.one_of(WORDS, st.sampled_from(["<img>", "<br>", "<!-- x -->"])), nested, max_leaves=12)


@given(MARKUP, st.booleans())
@example("<b><i><br></i> Hund</b> Hund", True)
def test_no_tag_is_lost_and_all_are_nested_well(source: str, backwards: bool) -> None:
    filled = capitals(Html.of(source, "de"), backwards)
    before, after = Nesting(source), Nesting(filled)
    assert (after.wrong, after.open) == ([], [])
    assert not before.started - after.started, "tags are lost"
    assert set(after.started) == set(before.started)
    text = sorted(re.sub(r"<[^>]*>", " ", source).upper().replace("&AMP;", "&amp;").replace("&LT;", "&lt;").split())
    assert sorted("".join(re.sub(r"<[^>]*>", " ", filled).split())) == sorted("".join(text))


@given(st.text(alphabet="<>/!-=\"' abpi&;\n", max_size=60))
def test_broken_html_is_put_up_with(source: str) -> None:
    capitals(Html.of(source, "de"))


@pytest.mark.parametrize(
    ("source", "filled"),
    [
        ("<p>1 <![ 2</p>", "<p>1 &lt;![ 2</p>"),
        ("<p>a <![x[ b</p> c", "<p>A &lt;![X[ B</p> C"),
        ("<b>a</b> <!-- b > c", "<b>A</b> &lt;!-- B &gt; C"),
    ],
)
def test_what_begins_and_never_ends_is_text(source: str, filled: str) -> None:
    assert capitals(Html.of(source, "de")) == filled


@pytest.mark.parametrize("rest", ["<![foo y", "<i", "</p", "<!-- Ende", "<a href='x", "<?php ja", "<b class=x <i"])
@pytest.mark.parametrize("text", ["x ", "<p><b>x</b> y "])
def test_a_tag_that_is_cut_off_at_the_end_is_kept(text: str, rest: str) -> None:
    assert capitals(Html.of(text + rest, "de")) == capitals(Html.of(text, "de")) + rest


def test_an_element_that_is_not_translated_is_a_word_of_its_sentence() -> None:
    document = Html.of(
        "<p>Rufen Sie <code>a b</code> oder <kbd>c</kbd>, <i translate=no>d</i>auf. Ja (<samp>e</samp>).", "de"
    )
    assert [piece.text.split() for piece in document.pieces] == [
        ["Rufen", "Sie", "oder", ",", "auf."],
        ["Ja", "()."],
    ]
    assert capitals(document) == (
        "<p>RUFEN SIE <code>a b</code> ODER <kbd>c</kbd>, <i translate=no>d</i>AUF. JA (<samp>e</samp>)."
    )
    backwards = capitals(Html.of("<p>eins <code>a</code> <code>b</code> zwei <b>drei</b>", "de"), backwards=True)
    assert backwards == "<p><b>DREI</b> <code>a</code> <code>b</code> ZWEI EINS"


@pytest.mark.parametrize(
    ("source", "filled"),
    [
        ("<ul><li translate=no>ein<li>ja</ul>ja", "<ul><li translate=no>ein<li>JA</ul>JA"),
        ("<ul><li translate=no>ein</ul>ja", "<ul><li translate=no>ein</ul>JA"),
        (
            "<ul><li translate=no>ein<ul><li>x<li>y</ul>z<li>ja</ul>",
            "<ul><li translate=no>ein<ul><li>x<li>y</ul>z<li>JA</ul>",
        ),
        ("<p translate=no>ein <b>Hund</b><p>ja", "<p translate=no>ein <b>Hund</b><p>JA"),
        ("<div><p translate=no>ein <b>x</div>ja", "<div><p translate=no>ein <b>x</div>JA"),
        ("<p translate=no>ein</b> x<hr>ja", "<p translate=no>ein</b> x<hr>JA"),
        ("<table><tr><td translate=no>ein<td>ja<tr><td>ja", "<table><tr><td translate=no>ein<td>JA<tr><td>JA"),
        ("<table><tr translate=no><td>ein<td>x<tr><td>ja", "<table><tr translate=no><td>ein<td>x<tr><td>JA"),
        ("<dl><dt translate=no>ein<dd>ja</dl>", "<dl><dt translate=no>ein<dd>JA</dl>"),
        ("<option translate=no>ein<option>ja", "<option translate=no>ein<option>JA"),
        ("<div translate=no>ein<p>x</div>ja", "<div translate=no>ein<p>x</div>JA"),
    ],
)
def test_what_is_not_translated_ends_where_html_ends_it(source: str, filled: str) -> None:
    assert capitals(Html.of(source, "de")) == filled


@pytest.mark.parametrize("repeated", ["<a ", "<!--", "<![x[", "</", "<?"])
def test_what_never_ends_is_looked_for_once(repeated: str) -> None:
    """Otherwise this takes half an hour."""
    for source in (repeated * 50_000, repeated * 50_000 + ">", "<p translate=no>" + "<i>" * 25_000 + "</u>" * 25_000):
        assert (
            "".join(part for part in Html.of(source, "de").parts if isinstance(part, str))
            or Html.of(source, "de").pieces
        )


def test_atoms_go_with_their_sentences() -> None:
    source = "Ein Satz. <wbr><b>Noch</b> einer. <img src='x'>Der letzte.<wbr>"
    assert capitals(Html.of(source, "de")) == "EIN SATZ. <b></b><wbr><b>NOCH</b> EINER. <img src='x'>DER LETZTE.<wbr>"


@pytest.mark.slow
def test_deep_nesting_takes_no_longer_than_it_should() -> None:
    deep = 20_000
    source = "<b>" * deep + "x <i>y</i> " * 1000 + "</b>" * deep
    assert capitals(Html.of(source, "de")).count("<b>") == deep
    shallow = "<b>" * DEEPEST + "x <i>y</i>" + "</b>" * DEEPEST
    assert capitals(Html.of(shallow, "de")).count("<b>") == DEEPEST


@pytest.mark.parametrize(
    "source",
    ["ein <b>zwei <i>drei</b></i>.", "ein <b>zwei drei", "ein zwei</b> drei", "ein <my-tag>zwei</my-tag> drei"],
)
def test_tags_that_are_not_well_nested_do_not_cut_a_sentence(source: str) -> None:
    assert [piece.text for piece in Html.of(source, "de").pieces] == [re.sub("<.*?>", "", source)]
