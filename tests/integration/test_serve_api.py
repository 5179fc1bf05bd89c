"""The server's answers, in this process: both APIs against the translator itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.testclient import TestClient

from jointnmt import Translator
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.search import SamplingConfig
from jointnmt.serving.app import create_app
from jointnmt.serving.engine import Engine
from jointnmt.serving.keys import Key, digest
from jointnmt.translator import Translation, TranslationOptions, attend
from support.serving import application, post, services, write_model, write_models
from support.tiny_run import SOURCE_WORDS

SENTENCES = [" ".join(SOURCE_WORDS[: 1 + number % 9]) for number in range(30)]
GATED = {"model": {"shortcuts": {}}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def client(runs: dict[str, Path]) -> Iterator[TestClient]:
    with TestClient(application(runs)) as client:
        yield client


@pytest.fixture(scope="module")
def translator(runs: dict[str, Path]) -> Translator:
    return Translator.load(runs["main"], "cpu")


def translate(client: TestClient, q: Any, status: int = 200, **values: Any) -> Any:
    return post(client, "/translate", status, **{"q": q, "source": "de", "target": "en", **values})


def error(client: TestClient, path: str, **values: Any) -> str:
    answer = post(client, path, 400, **values)
    assert list(answer) == ["error"]
    return str(answer["error"])


def test_a_text_is_translated_as_the_translator_does(client: TestClient, translator: Translator) -> None:
    for sentence in SENTENCES[:9]:
        assert translate(client, sentence) == {"translatedText": translator.translate([sentence])[0]}


def test_a_list_gives_a_list(client: TestClient, translator: Translator) -> None:
    assert translate(client, SENTENCES) == {"translatedText": translator.translate(SENTENCES)}


@pytest.mark.parametrize("source", ["de-AT", "de_CH", "DE"])
def test_a_source_of_a_region_is_one_of_the_language(client: TestClient, source: str) -> None:
    assert translate(client, "der Hund", source=source) == translate(client, "der Hund")


def test_lines_and_sentences_stay_where_they_are(client: TestClient, translator: Translator) -> None:
    one, two = translator.translate(["der Hund .", "die Katze"])
    assert translate(client, "  der Hund .\n\nder Hund . Die Katze\n")["translatedText"].startswith(f"  {one}\n\n")
    assert translate(client, "\n die Katze \r\n")["translatedText"] == f"\n {two} \r\n"
    assert translate(client, " \n ")["translatedText"] == " \n "


@pytest.mark.parametrize("blank", ["\u200b", "\u00ad \ufeff"])
def test_what_nobody_sees_stays_where_it_is(client: TestClient, translator: Translator, blank: str) -> None:
    [one] = translator.translate(["der Hund"])
    assert translate(client, f"der Hund\n{blank}\nder Hund")["translatedText"] == f"{one}\n{blank}\n{one}"
    assert translate(client, ["der Hund", blank], alternatives=1)["translatedText"] == [one, blank]
    html = translate(client, f"<p>der Hund</p><p>{blank}</p>", format="html")["translatedText"]
    assert html == f"<p>{one}</p><p>{blank}</p>"
    assert post(client, "/v1/score", model="main", sources=[blank], targets=[blank])["scores"]
    assert "empty" in error(client, "/v1/compare", source=blank)


def test_a_model_of_regions_is_found_without_them(tmp_path: Path) -> None:
    regional = write_model(tmp_path / "regional", "de-DE", "EN-US")
    with TestClient(application({"regional": regional})) as client:
        for source, target in (("de", "en"), ("DE-de", "en_us"), ("de-DE", "en"), ("auto", "en-US")):
            assert translate(client, "der Hund", source=source, target=target)["translatedText"]
        post(client, "/v1/translate", model="regional", texts=["der Hund"], source_language="de", target_language="en")
        translate(client, "der Hund", 400, source="de", target="en-GB")
        translate(client, "der Hund", 400, source="fr", target="en")


def test_a_sentence_without_pieces_has_an_empty_translation(tmp_path: Path) -> None:
    """Moses tokenisation removes control characters; the rest of the text, and alternatives, are translated."""
    run = write_model(tmp_path / "moses", segmentation={"kind": "word", "joint": False, "moses": True})
    with TestClient(application({"moses": run})) as client:
        alone = translate(client, "der Hund", alternatives=2)
        found = translate(client, "der Hund\n\x01", alternatives=2)
        assert found["translatedText"] == alone["translatedText"] + "\n"
        assert found["alternatives"] == [f"{each}\n" for each in alone["alternatives"]] != []
        html = translate(client, "<p>der Hund</p><p><b>\x01</b></p>", format="html")["translatedText"]
        assert html == f"<p>{alone['translatedText']}</p><p><b></b></p>"
        assert translate(client, "\x01")["translatedText"] == ""


def test_forms_and_query_parameters_are_understood(client: TestClient) -> None:
    values = {"q": "der Hund", "source": "de", "target": "en"}
    expected = translate(client, "der Hund")
    assert client.post("/translate", data=values).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in values.items()}).json() == expected
    assert client.post("/translate", params=values).json() == expected
    several = {**values, "q": ["der Hund", "die Katze"]}
    for kind in ("data", "params"):
        assert client.post("/translate", **{kind: several}).json() == translate(client, several["q"])
    assert client.post("/translate", json={**values, "api_key": None, "format": None, "more": 1}).json() == expected


@pytest.mark.parametrize("way", ["form", "query"])
def test_forms_and_queries_are_utf_8_and_need_not_be_escaped(client: TestClient, way: str) -> None:
    expected = translate(client, "schöner Hund & Katze")

    def sent(text: bytes) -> Any:
        fields = b"q=" + text + b"&source=de&target=en"
        if way == "query":
            return client.post(f"/translate?{fields.decode()}")
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return client.post("/translate", content=fields, headers=headers)

    assert sent(b"sch%C3%B6ner+Hund+%26+Katze").json() == expected
    if way == "form":
        assert sent("schöner Hund %26 Katze".encode()).json() == expected
    refused = sent(b"sch%F6ner")
    assert refused.status_code == 400 and "UTF-8" in refused.json()["error"]


def test_alternatives_are_further_translations(client: TestClient, translator: Translator) -> None:
    options = TranslationOptions(num_best=3)
    best = next(translator.translate_stream(["die Katze sieht"], options))
    expected = list(dict.fromkeys(each.text for each in best.candidates))
    answer = translate(client, "die Katze sieht", alternatives=2)
    assert [answer["translatedText"], *answer["alternatives"]] == expected
    listed = translate(client, ["die Katze sieht", ""], alternatives=2)
    assert listed["alternatives"] == [answer["alternatives"], []]
    wider = translate(client, "die Katze sieht", alternatives=7)
    assert len(wider["alternatives"]) > 2, "the beam is as wide as the alternatives need"


def test_html_keeps_its_tags(client: TestClient) -> None:
    source = '<p class="x">der <b>Hund</b> sieht <a href="u">die Katze</a></p><img src="a">'
    answer = translate(client, source, format="html")["translatedText"]
    for tag in ('<p class="x">', "<b>", "</b>", '<a href="u">', "</a>", "</p>", '<img src="a">'):
        assert tag in answer
    assert "sieht" not in answer


@pytest.mark.parametrize("between", ["\n", "\r\n", "\n  ", "&#10;"])
def test_line_breaks_in_html_are_spaces(client: TestClient, between: str) -> None:
    for source in ("<p>der Hund{}sieht die Katze</p>", "<p>der <b>Hund</b>{}sieht die Katze</p>"):
        expected = translate(client, source.format(" "), format="html")
        assert translate(client, source.format(between), format="html") == expected


def test_the_search_of_a_server_is_that_of_its_settings(runs: dict[str, Path]) -> None:
    with TestClient(
        application(runs, search={"beam_size": 1, "max_length_factor": 0.0, "max_length_offset": 2})
    ) as one:
        (answer,) = post(
            one, "/v1/translate", source_language="de", target_language="en", texts=["der Hund sieht die Katze"]
        )["translations"]
        assert len(answer["candidates"][0]["tokens"]) == 2
        assert translate(one, "der Hund sieht die Katze")["translatedText"] == answer["candidates"][0]["text"]
    with pytest.raises(ConfigurationError, match=r"search of the server: .*beam_sise"):
        application(runs, search={"beam_sise": 1})


def test_auto_takes_the_only_pair_that_fits_and_says_how_sure_it_is(client: TestClient) -> None:
    answer = translate(client, "der Hund", source="auto")
    assert answer["translatedText"] == translate(client, "der Hund")["translatedText"]
    assert answer["detectedLanguage"]["language"] == "de"
    assert 0 <= answer["detectedLanguage"]["confidence"] <= 100
    listed = translate(client, ["der Hund", "x"], source="auto")["detectedLanguage"]
    assert [each["language"] for each in listed] == ["de", "de"]


def test_the_language_of_html_is_that_of_its_text(client: TestClient) -> None:
    text = "Das ist ein schöner deutscher Satz."
    html = f'<div class="this is the english name of a class"><p>{text}</p></div><code>This is code.</code>'
    plain = translate(client, text, source="auto")["detectedLanguage"]
    marked = translate(client, html, source="auto", format="html")["detectedLanguage"]
    assert marked == plain


def test_empty_parameters_are_not_given(client: TestClient) -> None:
    form = {"q": "der Hund", "source": "de", "target": "en", "format": "", "alternatives": "", "api_key": ""}
    answer = client.post("/translate", data=form)
    assert answer.json() == translate(client, "der Hund")


def test_lines_of_html_are_the_texts_in_it(runs: dict[str, Path]) -> None:
    with TestClient(application(runs, limits={"line_characters": 20, "lines": 3})) as client:
        minified = "<p class='a long name'>der Hund</p>" * 3
        assert translate(client, minified, format="html")["translatedText"].count("</p>") == 3
        assert "der" not in translate(client, "<div>\n\n\n\n\n\n der Hund</div>", format="html")["translatedText"]
        assert "at most 20" in translate(client, "<p>der Hund <b>der Hund</b> der</p>", 400, format="html")["error"]
        assert "at most 3" in translate(client, minified + "x", 400, format="html")["error"]
        assert "at most 3" in translate(client, ["<br>"] * 4, 400, format="html")["error"]


def test_auto_is_refused_where_it_would_be_a_guess(runs: dict[str, Path], tmp_path: Path) -> None:
    with TestClient(application({**runs, "fr": write_model(tmp_path / "fr", "fr", "en")})) as client:
        assert "de or fr" in error(client, "/translate", q="x", source="auto", target="en")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "fr"}, "'fr' is not supported"),
        ({"target": "fr"}, "'fr' is not supported"),
        ({"target": "en-US"}, "'en-US' is not supported"),
        ({"source": "fr-CH"}, "'fr-CH' is not supported"),
        ({"target": "de"}, "from de to de"),
        ({"target": "\ud800"}, "target"),
        ({"q": None}, "q is missing"),
        ({"q": ""}, "q"),
        ({"q": []}, "q"),
        ({"q": 3}, "q: should be a text or a list of texts"),
        ({"q": ["Hallo", 3]}, "q: should be a text or a list of texts"),
        ({"q": "\ud800"}, "surrogate"),
        ({"q": ["Hallo", "a\0b"]}, "holds a NUL byte"),
        ({"q": "<code>\ud800</code>", "format": "html"}, "surrogate"),
        ({"q": "<p title='\ud800'>ja</p>", "format": "html"}, "surrogate"),
        ({"source": None}, "source is missing"),
        ({"target": None}, "target is missing"),
        ({"format": "pdf"}, "format"),
        ({"alternatives": -1}, "alternatives"),
        ({"alternatives": 1000}, "at most 15"),
        ({"alternatives": "x"}, "alternatives"),
    ],
)
def test_what_cannot_be_done_is_refused(client: TestClient, changes: dict[str, Any], message: str) -> None:
    values = {"q": "der Hund", "source": "de", "target": "en", **changes}
    response = client.post("/translate", content=json.dumps(values), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert message in response.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(client: TestClient, body: bytes) -> None:
    for path in ("/translate", "/detect", "/v1/translate", "/v1/score", "/v1/attention"):
        response = client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400, path
        assert response.json()["error"]


def test_languages_are_those_of_the_models(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]


def test_languages_of_texts_are_told_apart(client: TestClient) -> None:
    for text, language in (
        ("Das ist ein schöner deutscher Satz.", "de"),
        ("Ceci est une phrase en français.", "fr"),
        ("This is quite an English sentence.", "en"),
    ):
        assert post(client, "/detect", q=text)[0]["language"] == language
    for text in ("1234", "Hallo"):
        assert post(client, "/detect", q=text) == [{"language": "de", "confidence": 0.0}], "clients take the first one"


def test_settings_health_and_what_there_is_not(client: TestClient) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["source"] == {"code": "de", "name": "German"}
    assert (settings["keyRequired"], settings["filesTranslation"]) == (False, False)
    assert client.get("/health").json() == client.get("/livez").json() == client.get("/readyz").json()
    for path in ("/translate_file", "/suggest"):
        assert client.post(path).status_code == 403
    for path in ("/nothing", "/translate"):
        response = client.get(path)
        assert response.status_code in (404, 405)
        assert response.json()["error"]


def test_what_the_form_parser_refuses_is_said_in_a_sentence(client: TestClient) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    response = client.post("/translate", content=b"no parts", headers=kind)
    assert (response.status_code, response.json()) == (400, {"error": "Invalid multipart data."})


def test_many_clients_are_answered_past_the_router(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = translate(client, SENTENCES[3])
    monkeypatch.setattr(APIRouter, "__call__", lambda *_: pytest.fail("the router costs most of a request"))
    assert translate(client, SENTENCES[3]) == expected
    assert "target" in error(client, "/translate", q="der Hund", source="de", target="xx")
    assert "missing" in error(client, "/translate", q="der Hund")


def test_v1_gives_what_the_translator_gives(client: TestClient, translator: Translator) -> None:
    options = TranslationOptions(num_best=2, alignments=True)
    texts = ["der Hund sieht", "", "die Katze"]
    prefixes = ["the dog", "", ""]
    expected = list(translator.translate_stream(texts, options, prefixes))
    answer = post(client, "/v1/translate", model="main", texts=texts, prefixes=prefixes, num_best=2, alignments=True)
    assert answer["model"] == "main"
    for given, own in zip(answer["translations"], expected, strict=True):
        assert (given["source"], given["translation"]) == (own.source, own.text)
        assert given["source_tokens"] == list(own.source_tokens)
        assert len(given["candidates"]) == len(own.candidates)
        for one, other in zip(given["candidates"], own.candidates, strict=True):
            plain = other.plain()
            assert (one["text"], one["tokens"], one["complete"]) == (other.text, plain["tokens"], other.complete)
            assert one["score"] == pytest.approx(other.score, abs=1e-5)
            assert one["alignment"] == [pytest.approx(row, abs=1e-4) for row in plain["alignment"]]
    assert answer["translations"][0]["translation"].startswith("the dog")


def test_v1_gives_gates_where_there_are_shortcuts(tmp_path: Path, client: TestClient) -> None:
    run = write_model(tmp_path / "gated", **GATED)
    with TestClient(application({"gated": run})) as gated:
        answer = post(gated, "/v1/translate", texts=["der Hund"], gates=True)
        own = next(Translator.load(run, "cpu").translate_stream(["der Hund"], TranslationOptions(gates=True)))
        assert answer["translations"][0]["candidates"][0]["gates"].keys() == own.candidates[0].gates.keys()
    assert "no lexical shortcuts" in error(client, "/v1/translate", model="main", texts=["der Hund"], gates=True)


def test_v1_samples_by_seed_whatever_else_is_asked(client: TestClient, translator: Translator) -> None:
    search = SamplingConfig.parse(
        {**translator.experiment.search.model_dump(exclude={"beam_size"}), "temperature": 1.5}, "test"
    )
    options = TranslationOptions(search=search, num_best=3, seed=7)
    expected = [[each.text for each in line.candidates] for line in translator.translate_stream(SENTENCES, options)]

    def sampled(seed: int) -> list[list[str]]:
        sampling = {"temperature": 1.5, "seed": seed}
        answer = post(client, "/v1/translate", model="main", texts=SENTENCES, num_best=3, sampling=sampling)
        return [[each["text"] for each in line["candidates"]] for line in answer["translations"]]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(sampled, [7, 8, 7, 7]))
    assert found[0] == found[2] == found[3] == expected
    assert found[1] != expected


def test_samples_are_drawn_by_line_and_sentence(client: TestClient, translator: Translator) -> None:
    """The samples are those of the translator, whatever the previous lines contain."""
    texts, seed = ["der Hund . Die Katze sieht .", "die Katze sieht den Hund"], {"seed": 5, "temperature": 2.0}
    expected = translator.translate(texts, split="always", sample=True, **seed)
    asked = {"model": "main", "split": "always", "sampling": seed}
    answer = post(client, "/v1/translate", texts=texts, **asked)
    assert [each["translation"] for each in answer["translations"]] == expected
    for first in (texts[0], "Hund " * 5000):
        lines = client.post("/v1/translate/stream", json={"texts": [first, texts[1]], **asked}).text.splitlines()
        assert json.loads(lines[1])["translation"] == expected[1]


def test_v1_streams_lines_in_order(client: TestClient, translator: Translator) -> None:
    values = {"model": "main", "texts": [*SENTENCES, "", "der Hund"]}
    with client.stream("POST", "/v1/translate/stream", json=values) as response:
        assert response.headers["content-type"].startswith("application/x-ndjson")
        lines = [json.loads(line) for line in response.iter_lines()]
    assert [line["line"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["translation"] for line in lines] == translator.translate(values["texts"])


def test_v1_cuts_lines_into_sentences_if_asked(runs: dict[str, Path], translator: Translator) -> None:
    """Only on request; and the limits apply to each sentence."""
    parts = ["Hund sieht die Katze .", "Katze hört Hund nicht ."]
    line = f" {parts[0]}  {parts[1]} "
    with TestClient(application({"main": runs["main"]}, limits={"sentence_tokens": 10})) as client:
        assert post(client, "/v1/sentences", texts=[line, "", "Dr. Hund"]) == {"sentences": [parts, [], ["Dr. Hund"]]}
        [found] = post(client, "/v1/translate", texts=[line], split="always")["translations"]
        assert found["translation"] == " ".join(translator.translate(parts))
        assert "A sentence has 11 tokens" in error(client, "/v1/translate", texts=[line])
        assert "A sentence has 13 tokens" in error(client, "/v1/translate", texts=["Hund " * 12], split="always")
        answer = client.post("/v1/translate/stream", json={"texts": [line, line], "split": "always"})
        told = [json.loads(each)["translation"] for each in answer.text.splitlines()]
        assert told == [found["translation"]] * 2
        assert "cannot share a prefix" in error(client, "/v1/translate", texts=[line], prefixes=["the"], split="always")


def test_limits_mean_the_sentences_of_lines_that_are_split(runs: dict[str, Path]) -> None:
    line = "Hund . " * 8
    limits = {"lines": 12, "alignment_weights": 300}
    with TestClient(application({"main": runs["main"]}, limits=limits)) as client:
        assert post(client, "/v1/translate", texts=[line, "Hund"], split="always")
        stream = {"texts": [line, "Hund"], "split": "always", "alignments": True}
        for path in ("/v1/translate", "/v1/translate/stream"):
            assert "has 16 sentences; at most 12" in error(client, path, texts=[line, line], split="always")
            told = client.post(path, json={**stream, "num_best": 3}).text.splitlines()
            assert "at most 300 are returned" in json.loads(told[0])["error"], "of a stream, that line alone"
            assert len(told) == (2 if "stream" in path else 1)


def test_a_line_beyond_the_limits_can_be_cut(runs: dict[str, Path]) -> None:
    """A page with several lines can then show the others."""
    with TestClient(application({"main": runs["main"]}, limits={"line_characters": 20})) as client:
        texts = ["Hund . Katze .", "Hund \0. " * 10]
        assert [len(each) for each in post(client, "/v1/sentences", texts=texts)["sentences"]] == [2, 10]


def test_a_line_of_a_stream_that_fails_does_not_end_it(client: TestClient) -> None:
    values = {"model": "main", "texts": ["der Hund"] * 3, "prefixes": ["", "the " * 100, ""]}
    with client.stream("POST", "/v1/translate/stream", json=values) as response:
        first, second, third = [json.loads(line) for line in response.iter_lines()]
    assert "prefix" in second["error"]
    assert first["translation"] == third["translation"]


@pytest.mark.parametrize("limits", [{"sentence_tokens": 5}, {"line_characters": 19}, {"sentence_cells": 500}])
def test_a_line_of_a_stream_that_is_refused_does_not_end_it(runs: dict[str, Path], limits: dict[str, int]) -> None:
    long = "der Hund " * 5

    def streamed(*texts: str) -> list[Any]:
        with client.stream("POST", "/v1/translate/stream", json={"model": "main", "texts": texts}) as response:
            assert response.status_code == 200
            return [json.loads(line) for line in response.iter_lines()]

    with TestClient(application(runs, limits=limits)) as client:
        first, second, third, fourth = streamed(long, "der Hund", long, "die Katze")
        assert [each["line"] for each in (first, second, third, fourth)] == [1, 2, 3, 4]
        assert first["error"] == third["error"] == error(client, "/v1/translate", model="main", texts=[long])
        assert [second["source"], fourth["source"]] == ["der Hund", "die Katze"]
        assert [each["error"] for each in streamed(long, long)] == [first["error"]] * 2


def test_v1_scores_as_the_translator_does(client: TestClient, translator: Translator) -> None:
    sources, targets = ["der Hund", "", "die Katze"], ["the dog", "", "the cat sees"]
    expected = translator.score(sources, targets)
    answer = post(client, "/v1/score", model="main", sources=sources, targets=targets)
    for given, own in zip(answer["scores"], expected, strict=True):
        assert given["tokens"] == list(own.tokens)
        assert given["token_log_probabilities"] == pytest.approx(own.token_log_probabilities, abs=1e-5)
        assert given["score"] == pytest.approx(own.score, abs=1e-5)
    assert "targets" in error(client, "/v1/score", model="main", sources=sources, targets=["one"])


def test_v1_scores_no_translation_of_nothing(client: TestClient) -> None:
    message = error(client, "/v1/score", model="main", sources=["der", " "], targets=["the", "dog"])
    assert message.startswith("line 2: an empty line cannot have a target")


def test_v1_names_the_pair_that_cannot_be_scored(client: TestClient) -> None:
    pairs = {"sources": ["der Hund"] * 5, "targets": [*["the dog"] * 4, "no-piece"]}
    message = error(client, "/v1/score", model="main", pieces=True, **pairs)
    assert message.startswith("line 5: the target holds 'no-piece'"), message


def test_v1_takes_lines_and_says_what_is_none(client: TestClient) -> None:
    pairs = {"model": "main", "sources": ["der Hund"], "targets": ["the\ndog"]}
    assert "Send each line by itself, or whole texts to /translate" in error(client, "/v1/score", **pairs)
    assert post(client, "/v1/translate", model="main", texts=["der Hund\n"])["translations"][0]["translation"]
    with client.stream("POST", "/v1/translate/stream", json={"model": "main", "texts": ["der", "a\nb"]}) as response:
        assert ["several lines" in line for line in response.iter_lines()] == [False, True]


def test_v1_shows_attention(client: TestClient, translator: Translator) -> None:
    answer = post(client, "/v1/attention", model="main", source="der Hund sieht", target="the dog")
    read = attend(translator, "der Hund sieht", "the dog")
    assert (answer["source"], answer["target"]) == (read.source_pieces, read.target_pieces)
    for panel in answer["panels"]:
        assert len(panel["weights"]) == len(panel["rows"])
        for row in panel["weights"]:
            assert sum(row) == pytest.approx(1, abs=0.01)
    heads = post(client, "/v1/attention", model="main", source="der Hund", by="head")
    assert any(panel["head"] for panel in heads["panels"])
    assert heads["translation"] == translator.translate(["der Hund"])[0]


def test_v1_lists_models_and_chooses_among_them(client: TestClient) -> None:
    answer = client.get("/v1/models").json()
    models = answer["models"]
    assert answer["limits"] == {"lines": 2_000, "body_bytes": 1_000_000, "num_best": 16}
    assert [each["name"] for each in models] == ["main", "letters", "back"]
    assert (models[2]["source_language"], models[2]["target_language"]) == ("en", "de")
    pair = {"source_language": "de", "target_language": "en"}
    assert post(client, "/v1/translate", texts=["der Hund"], **pair)["model"] == "main"
    assert post(client, "/v1/translate", texts=["der Hund"], model="letters", **pair)["model"] == "letters"
    assert "Name a model" in error(client, "/v1/translate", texts=["x"])
    assert "no model 'other'" in error(client, "/v1/translate", texts=["x"], model="other")


def test_wrong_keys_and_values_are_told_in_the_words_of_recipes(client: TestClient) -> None:
    for values, message in (
        ({"texts": ["x"], "beam": 3}, "Invalid request: beam: is not a known key"),
        ({"texts": "x"}, "Invalid request: texts: should be a list"),
        ({"texts": ["x"], "num_best": "3"}, "Invalid request: num_best: should be a whole number"),
        ({}, "Invalid request: texts is missing"),
    ):
        assert error(client, "/v1/translate", **values) == message
    assert "from de to en" in error(client, "/v1/translate", texts=["x"], model="main", target_language="de")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_best": 17},
        {"num_best": 4},
        {"num_best": 0},
        {"num_best": "2"},
        {"beam_size": 17},
        {"beam_size": 2, "sampling": {}},
        {"unknown": 1},
        {"texts": []},
        {"texts": "der Hund"},
        {"texts": [3]},
        {"texts": ["der Hund\ndie Katze"]},
        {"texts": ["der Hund"], "prefixes": ["the\rdog"]},
        {"prefixes": ["a", "b"]},
        {"sampling": {"temperature": 0}},
        {"sampling": {"seed": -1}},
        {"length_penalty": -1},
        {"length_penalty": 51},
        {"split": "cut"},
    ],
)
def test_v1_refuses_what_is_wrong(client: TestClient, changes: dict[str, Any]) -> None:
    assert error(client, "/v1/translate", **{"model": "main", "texts": ["der Hund"], **changes})


def test_translations_do_not_depend_on_company(client: TestClient) -> None:
    """Each sentence alone, then with many clients at once, and within a long document."""
    alone = [translate(client, sentence)["translatedText"] for sentence in SENTENCES]
    document = {"model": "main", "texts": SENTENCES[::-1] * 10, "num_best": 1}
    with ThreadPoolExecutor(17) as pool:
        long = pool.submit(post, client, "/v1/translate", **document)
        crowded = list(pool.map(lambda sentence: translate(client, sentence)["translatedText"], SENTENCES * 4))
    assert crowded == alone * 4
    assert [each["translation"] for each in long.result()["translations"]] == alone[::-1] * 10


def test_requests_that_wait_are_translated_together(runs: dict[str, Path]) -> None:
    shared = services({"main": runs["main"]})
    with TestClient(create_app(shared)) as client, ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda sentence: translate(client, sentence), SENTENCES * 4))
        counts = {each.name: each.value for metric in shared.metrics.registry.collect() for each in metric.samples}
    assert counts["jointnmt_batch_sentences_sum"] == 4 * len(SENTENCES)
    assert counts["jointnmt_batch_sentences_count"] < 4 * len(SENTENCES)
    assert counts["jointnmt_queued_sentences"] == 0


def test_the_description_of_the_api_needs_no_network(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert re.search(r'"validatorUrl":\s*null', page.text), "the page would ask a validator on the web"
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"):
        assert f'"static/swagger-ui/{name}"' in page.text.replace("'", '"'), "its addresses are relative"
        assert client.get(f"/static/swagger-ui/{name}").status_code == 200
    description = client.get("/openapi.json").json()
    paths = description["paths"]
    assert not [path for path, each in paths.items() if "422" in next(iter(each.values()))["responses"]]
    assert "ErrorAnswer" in description["components"]["schemas"]
    assert "HTTPValidationError" not in description["components"]["schemas"]
    assert {"/translate", "/languages", "/detect", "/v1/translate", "/v1/attention", "/metrics"} <= paths.keys()


def test_the_root_is_the_page(client: TestClient) -> None:
    found = client.get("/")
    assert found.headers["content-type"].startswith("text/html")
    assert '<script type="application/json" id="document">null</script>' in found.text
    assert not re.search(r"(src|href)=.?https?:", found.text), "it asks nobody but the server"


KEYS = (
    Key(name="one", sha256=digest("secret"), requests_per_minute=4),
    Key(name="two", sha256=digest("other")),
)


def test_keys_are_asked_for(runs: dict[str, Path]) -> None:
    with TestClient(application(runs, KEYS)) as client:
        assert "key is needed" in translate(client, "der Hund", 403)["error"]
        assert "Invalid" in translate(client, "der Hund", 403, api_key="wrong")["error"]
        assert translate(client, "der Hund", api_key="other")["translatedText"]
        assert client.post("/detect", data={"q": "x", "api_key": "other"}).status_code == 200
        refused = client.get("/v1/models")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (403, "Bearer")
        assert client.get("/v1/models", headers={"Authorization": "Bearer other"}).status_code == 200
        assert client.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 403
        assert client.get("/frontend/settings").json()["keyRequired"]
        for path in ("/languages", "/health", "/livez", "/readyz", "/metrics"):
            assert client.get(path).status_code == 200
        statuses = [client.post("/detect", data={"q": "x", "api_key": "secret"}).status_code for _ in range(6)]
        assert statuses == [200] * 4 + [429] * 2


@pytest.mark.parametrize(
    ("limits", "values", "status"),
    [
        ({"body_bytes": 300}, {"q": "x" * 400}, 413),
        ({"lines": 3}, {"q": "a\nb\nc\nd"}, 400),
        ({"lines": 3}, {"q": ["a", "b", "c", "d"]}, 400),
        ({"lines": 3}, {"q": "Ja. Ja. Ja. Ja."}, 400),
        ({"line_characters": 9}, {"q": "der Hund und"}, 400),
        ({"sentence_tokens": 5}, {"q": "der der der der der"}, 400),
        ({"num_best": 2}, {"q": "x", "alternatives": 2}, 400),
        ({"queued_sentences": 3}, {"q": ["a", "b", "c", "d"]}, 413),
    ],
)
def test_limits_hold(runs: dict[str, Path], limits: dict[str, Any], values: dict[str, Any], status: int) -> None:
    with TestClient(application(runs, limits=limits)) as client:
        assert translate(client, status=status, **values)["error"]
        assert translate(client, "der Hund")["translatedText"]


def test_forms_of_other_pages_are_not_computed(runs: dict[str, Path]) -> None:
    """Their pages could not read the answer, but would keep the server busy."""
    form = {"q": "der Hund", "source": "de", "target": "en"}
    for named, origin, status in (
        ([], "https://example.org", 403),
        ([], "null", 403),
        ([], "http://testserver", 200),
        ([], "http://testserver:5001", 403),
        ([], "http://localhost:5000", 403),
        ([], None, 200),
        (["HTTPS://Example.org:443"], "https://example.org", 200),
        (["https://example.org"], "https://example.org", 200),
        (["https://example.org"], "https://example.com", 403),
        (["*"], "https://example.com", 200),
    ):
        with TestClient(application(runs, allow_origins=named)) as client:
            answer = client.post("/translate", data=form, headers={"Origin": origin} if origin else {})
            assert answer.status_code == status, (named, origin, answer.text)
            assert "www-authenticate" not in answer.headers, "no key would change it"


def test_other_pages_may_read_what_is_refused(runs: dict[str, Path]) -> None:
    origin = "https://example.org"
    with TestClient(application(runs, allow_origins=[origin], limits={"body_bytes": 300})) as client:
        refused = client.post("/translate", json={"q": "x" * 400}, headers={"Origin": origin})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (413, origin)


def test_other_origins_are_let_in_only_if_named(runs: dict[str, Path]) -> None:
    headers = {"Origin": "https://example.org"}
    with TestClient(application(runs)) as client:
        assert "access-control-allow-origin" not in client.get("/languages", headers=headers).headers
    with TestClient(application(runs, allow_origins=["https://example.org"])) as client:
        allowed = client.get("/languages", headers=headers).headers["access-control-allow-origin"]
        assert allowed == "https://example.org"
        headers["Origin"] = "https://example.com"
        assert "access-control-allow-origin" not in client.get("/languages", headers=headers).headers


def test_other_hosts_are_refused_on_the_loopback(client: TestClient, runs: dict[str, Path]) -> None:
    refused = client.get("/languages", headers={"Host": "evil.example:5000"})
    assert (refused.status_code, list(refused.json())) == (400, ["error"])
    for host in ("localhost:5000", "127.0.0.1", "[::1]:5000", "[::1]", "LOCALHOST"):
        assert client.get("/languages", headers={"Host": host}).status_code == 200, host
    for host in ("127.0.0.2", "LOCALHOST", "127.1"):
        with TestClient(application(runs, host=host, allow_hosts=["MT.example:80"])) as local:
            assert local.get("/languages", headers={"Host": "evil.example"}).status_code == 400, host
            for name in (host, "mt.example", "mt.example:5000"):
                assert local.get("/languages", headers={"Host": name}).status_code == 200, host
    with TestClient(application(runs, host="0.0.0.0")) as public:
        assert public.get("/languages", headers={"Host": "mt.example"}).status_code == 200


def test_the_log_has_no_text_unless_asked(runs: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "jointnmt")
    with TestClient(application(runs)) as client:
        translate(client, "der Hund hört")
        client.post("/translate", params={"q": "der Hund hört", "source": "de", "target": "en"})
    assert "POST /translate 200" in caplog.text
    assert "hört" not in caplog.text
    with TestClient(application(runs, log_text=True)) as client:
        translate(client, "der Hund hört")
    assert "hört" in caplog.text


def test_the_log_has_the_texts_of_every_route_if_asked(runs: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jointnmt")
    with TestClient(application({"main": runs["main"]}, log_text=True)) as client:
        best = translate(client, "der Hund")["translatedText"]
        for path, values in (
            ("/v1/translate/stream", {"texts": ["der Hund"]}),
            ("/v1/search", {"source": "der Hund"}),
            ("/v1/alternatives", {"source": "der Hund"}),
            ("/v1/compare", {"source": "der Hund"}),
        ):
            caplog.clear()
            assert client.post(path, json=values).status_code == 200
            assert f"text 'der Hund' -> {best!r}" in caplog.text, path


def test_a_fault_is_counted_as_one(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    shared = services(runs)
    for name in ("pairs", "for_pair"):
        monkeypatch.setattr(type(shared.models), name, lambda *_: 1 / 0)
    with TestClient(create_app(shared), raise_server_exceptions=False) as client:
        of_translate = client.post("/translate", json={"q": "der Hund", "source": "de", "target": "en"})
        for route, answer in (("/languages", client.get("/languages")), ("/translate", of_translate)):
            assert answer.status_code == 500 and "Internal error of the server" in answer.json()["error"]
            assert f'jointnmt_requests_total{{route="{route}",status="500"}} 1.0' in client.get("/metrics").text


def test_head_is_answered_where_get_is(client: TestClient) -> None:
    for path in ("/", "/health", "/languages", "/docs", "/livez", "/v1/models"):
        assert client.head(path).status_code == 200, path
    assert client.head("/translate").status_code == 405
    assert 'jointnmt_requests_total{route="/health",status="200"}' in client.get("/metrics").text


def test_bodies_that_are_no_json_object_are_told_what_to_send(client: TestClient) -> None:
    body = json.dumps({"q": "der Hund", "texts": ["der Hund"], "source": "de", "target": "en"})
    for path in ("/translate", "/v1/translate"):
        for kind in ({}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "text/plain"}):
            answer = client.post(path, content=body, headers=kind)
            assert answer.status_code == 400
            assert "Content-Type: application/json" in answer.json()["error"], (path, kind)
    empty = client.post("/v1/translate", headers={"Content-Type": "application/json"})
    assert empty.json()["error"] == "Invalid request: the body is missing"
    assert client.post("/translate", content=body, headers={"Content-Encoding": "gzip"}).status_code == 415


def test_metrics_count_requests_and_tokens(runs: dict[str, Path], translator: Translator) -> None:
    with TestClient(application(runs)) as client:
        translate(client, "der Hund")
        text = client.get("/metrics").text
    assert 'jointnmt_requests_total{route="/translate",status="200"} 1.0' in text
    assert "jointnmt_source_tokens_total 3.0" in text
    tokens = len(next(translator.translate_stream(["der Hund"])).candidates[0].tokens)
    assert f"jointnmt_target_tokens_total {tokens}.0" in text


def test_a_prefix_that_is_refused_spoils_no_other_line(runs: dict[str, Path]) -> None:
    """The other lines are not computed again one by one either."""
    engine = Engine.load(runs["main"], "cpu", "float32")
    texts, prefixes = ["der Hund", "die Katze", "der Hund"], ["", "the dog " * 40, ""]
    places = [(line, 0) for line in range(3)]
    first, refused, third = engine.translate_each(places, texts, prefixes, TranslationOptions())
    assert isinstance(refused, DataError) and "prefix" in str(refused)
    assert isinstance(first, Translation) and isinstance(third, Translation) and first.text == third.text
