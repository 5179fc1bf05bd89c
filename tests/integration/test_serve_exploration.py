"""The routes that inspect models, in this process: against the Python API, and with hostile input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jointnmt import Translator
from jointnmt.analysis.inspection import inspect_pair
from jointnmt.translator import compare, next_words, trace_search
from support.serving import application, post, unpacked, write_models

SOURCE, TARGET = "der Hund sieht die Katze .", "the dog sees"
ROUTES = ("/v1/attention", "/v1/inspect", "/v1/inspect/cell", "/v1/search", "/v1/alternatives", "/v1/compare")
CELL = {"source_position": 3, "target_position": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("runs"), model={"shortcuts": {}})


@pytest.fixture(scope="module")
def client(runs: dict[str, Path]) -> Iterator[TestClient]:
    with TestClient(application(runs)) as client:
        yield client


@pytest.fixture(scope="module")
def translators(runs: dict[str, Path]) -> dict[str, Translator]:
    return {name: Translator.load(run, "cpu") for name, run in runs.items()}


def ask(client: TestClient, path: str, status: int = 200, **values: Any) -> Any:
    return post(client, path, status, **{"source": SOURCE, **values})


def arrays(values: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: unpacked(value) for name, value in values.items()}


@pytest.mark.parametrize("target", [None, TARGET])
def test_an_inspection_has_the_numbers_of_the_model(
    client: TestClient, translators: dict[str, Translator], target: str | None
) -> None:
    answer = ask(client, "/v1/inspect", model="main", target=target)
    own = inspect_pair(translators["main"], SOURCE, target)
    for name in ("family", "translation"):
        assert answer[name] == getattr(own, name)
    for name in ("source_tokens", "target_read", "target_predicted", "token_log_probabilities"):
        assert answer[name] == list(getattr(own, name))
    assert np.array_equal(unpacked(answer["alignment"]), own.alignment)
    assert answer["grid_heads"] == "each"
    for name, exact in (("entropy", True), ("attention", False), ("gates", False)):
        found, expected = arrays(answer[name]), getattr(own, name)
        assert list(found) == list(expected)
        for key, array in found.items():
            assert array.shape == expected[key].shape
            assert abs(array - expected[key]).max() <= (0 if exact else 0.51 / 65535)
    for name, stream in own.states.items():
        assert np.array_equal(unpacked(answer["states"][name]["norm"]), stream.norm)
        assert np.array_equal(unpacked(answer["states"][name]["change"]), stream.change)


def test_a_cell_has_the_numbers_of_the_model(client: TestClient, translators: dict[str, Translator]) -> None:
    answer = ask(client, "/v1/inspect/cell", model="main", target=TARGET, **CELL)
    own = inspect_pair(translators["main"], SOURCE, TARGET).cell(3, 2).plain()
    assert answer == {"model": "main", **CELL, **own}
    assert (
        "no target position 9"
        in ask(client, "/v1/inspect/cell", 400, model="main", target=TARGET, source_position=0, target_position=9)[
            "error"
        ]
    )


def test_the_attention_of_large_grids_is_averaged_or_left_out(runs: dict[str, Path]) -> None:
    sizes = {}
    for most in (0, 500, 10_000):
        with TestClient(application({"main": runs["main"]}, limits={"grid_weights": most})) as client:
            answer = ask(client, "/v1/inspect", target=TARGET)
            attention, entropy = answer["attention"]["source"], answer["entropy"]["source"]
            sizes[most] = answer["grid_heads"], attention and attention["shape"][1], entropy["shape"][1]
            assert answer["attention"]["prenet"]["shape"][1] == 2
    assert sizes == {0: (None, None, 1), 500: ("mean", 1, 1), 10_000: ("each", 2, 2)}


def test_a_translation_up_to_the_length_limit_is_inspected(runs: dict[str, Path]) -> None:
    """If the model continues up to the limit, as in repetitions, the first positions are reported."""
    with TestClient(application({"main": runs["main"]}, limits={"attention_tokens": 8})) as client:
        repeated = "the " * 20
        answer = ask(client, "/v1/inspect", target=repeated)
        assert (len(answer["target_read"]), answer["left_out"], answer["translation"]) == (8, 13, repeated)
        assert answer["target_predicted"] == ["the"] * 8
        assert unpacked(answer["alignment"]).shape == (8, 7)
        last = ask(client, "/v1/inspect/cell", target=repeated, source_position=0, target_position=7)
        assert last["alignment"] == pytest.approx(unpacked(answer["alignment"])[7, 0])
        beyond = ask(client, "/v1/inspect/cell", 400, target=repeated, source_position=0, target_position=8)
        assert "no target position 8" in beyond["error"]


def test_search_is_told_as_a_tree(client: TestClient, translators: dict[str, Translator]) -> None:
    own = trace_search(translators["letters"], SOURCE, most_pruned=5).plain()
    assert ask(client, "/v1/search", model="letters") == {"model": "letters", **own}
    wide = ask(client, "/v1/search", model="main", prefix="the dog", beam_size=5, length_penalty=0.5, pruned=0)
    assert (wide["beam_size"], wide["length_penalty"]) == (5, 0.5)
    assert [node["piece"] for node in wide["nodes"][:3]] == ["<s>", "the", "dog"]
    assert {node["fate"] for node in wide["nodes"]} <= {"kept", "finished", "abandoned"}


def test_alternatives_are_the_next_words(client: TestClient, translators: dict[str, Translator]) -> None:
    answer = ask(client, "/v1/alternatives", model="letters", prefix="the", count=4, alignments=True)
    own = next_words(translators["letters"], SOURCE, "the", 4, alignments=True)
    assert answer["source_tokens"] == list(own.source_tokens)
    assert [each["word"] for each in answer["alternatives"]] == [each.word for each in own.words]
    for found, expected in zip(answer["alternatives"], own.words, strict=True):
        assert found["prefix"] == expected.prefix and found["log_probability"] == expected.log_probability
        assert found["candidate"]["text"] == expected.candidate.text
        assert found["candidate"]["tokens"] == list(expected.candidate.tokens)
        if expected.word:
            assert len(found["candidate"]["alignment"]) == len(found["candidate"]["tokens"])


def test_models_are_compared(client: TestClient, translators: dict[str, Translator]) -> None:
    pair = {name: translators[name] for name in ("main", "letters")}
    assert ask(client, "/v1/compare", targets=[TARGET]) == compare(pair, SOURCE, [TARGET]).plain()
    one = ask(client, "/v1/compare", models=["letters", "letters"])
    assert one["models"] == ["letters"]
    assert "different language pairs" in ask(client, "/v1/compare", 400, models=["main", "back"])["error"]


def test_scores_come_with_the_likeliest_pieces(client: TestClient, translators: dict[str, Translator]) -> None:
    values = {"model": "main", "sources": [SOURCE], "targets": [TARGET]}
    [found] = client.post("/v1/score", json={**values, "alternatives": 3}).json()["scores"]
    [own] = translators["main"].score_stream([SOURCE], [TARGET], alternatives=3)
    assert found == own.plain()
    assert [len(each) for each in found["alternatives"]] == [3] * 4
    assert "alternatives" not in client.post("/v1/score", json=values).json()["scores"][0]
    assert "at most 16" in client.post("/v1/score", json={**values, "alternatives": 17}).json()["error"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": ""}, "source"),
        ({"source": "  "}, "empty"),
        ({"source": 1}, "source"),
        ({"source": "\ud800"}, "unicode"),
        ({"source": "der " * 300}, "tokens"),
        ({"source": "x" * 6000}, "characters"),
        ({"more": 1}, "more"),
    ],
)
def test_wrong_sources_are_refused_in_form(client: TestClient, path: str, values: dict[str, Any], message: str) -> None:
    chosen = {"models": ["main"]} if path == "/v1/compare" else {"model": "main"}
    assert message in refused(client, path, **chosen, **(CELL if path == "/v1/inspect/cell" else {}), **values)


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        ("/v1/attention", {"target": "the " * 100}, "translation has more than 80 tokens (101)"),
        ("/v1/inspect", {"source": "der " * 100}, "more than 80 tokens"),
        ("/v1/inspect", {"target": "x" * 6000}, "characters"),
        ("/v1/inspect", {"target": "\udfff"}, "surrogate"),
        ("/v1/inspect", {"model": "none"}, "no model 'none'"),
        ("/v1/inspect/cell", {**CELL, "source_position": -1}, "source_position"),
        ("/v1/inspect/cell", {**CELL, "target_position": 10**9}, "no target position"),
        ("/v1/inspect/cell", {**CELL, "source_position": True}, "source_position"),
        ("/v1/search", {"beam_size": 0}, "beam_size"),
        ("/v1/search", {"beam_size": 17}, "at most 16"),
        ("/v1/search", {"pruned": 65}, "pruned"),
        ("/v1/search", {"prefix": "the " * 40}, "prefix has"),
        ("/v1/search", {"prefix": "zzz"}, "no piece"),
        ("/v1/alternatives", {"count": 0}, "count"),
        ("/v1/alternatives", {"count": 17}, "at most 16"),
        ("/v1/alternatives", {"prefix": "the " * 40}, "prefix has"),
        ("/v1/compare", {"model": None, "models": []}, "models"),
        ("/v1/compare", {"models": ["main", "none"]}, "no model 'none'"),
        ("/v1/compare", {"targets": ["the"] * 17}, "too many"),
        ("/v1/compare", {"targets": ["the " * 300]}, "tokens"),
        ("/v1/compare", {"targets": [None]}, "targets"),
        ("/v1/compare", {"source": "der " * 1500}, "characters"),  # before tokens are counted
    ],
)
def test_what_is_asked_too_much_is_refused_in_form(
    client: TestClient, path: str, values: dict[str, Any], message: str
) -> None:
    chosen = {} if path == "/v1/compare" else {"model": "main"}
    assert message in refused(client, path, **{**chosen, **values})


def refused(client: TestClient, path: str, **values: Any) -> str:
    body = json.dumps({"source": SOURCE, **values}).encode("ascii")
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


def test_no_more_memory_is_taken_than_for_a_translation(runs: dict[str, Path]) -> None:
    with TestClient(application({"main": runs["main"]}, limits={"sentence_cells": 50})) as client:
        for path in ROUTES:
            values = CELL if path == "/v1/inspect/cell" else {}
            assert "cells" in refused(client, path, **values)
