"""Contrastive suites: reading and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jointnmt.errors import DataError
from jointnmt.evaluation.contrastive_suites import pair_items, parse_suite
from support.contrastive import WMT16, lingeval, suite_of, wsd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda items: items[1].pop("reference"), "item 2: has no 'reference'"),
        (lambda items: items[1].pop("sense"), "item 2: has no 'sense'"),
        (lambda items: items[1].pop("errors"), "item 2: has no 'errors'"),
        (lambda items: items[1].update(errors=[]), "item 2: 'errors' is empty"),
        (lambda items: items[1].update(errors={}), "item 2: 'errors' is an object"),
        (lambda items: items[1].update(errors=["text"]), "item 2, error 1: is a text"),
        (lambda items: items[3]["errors"][1].pop("contrastive"), "item 4, error 2: has no 'contrastive'"),
        (lambda items: items[3]["errors"][1].update(contrastive=" "), "item 4, error 2: 'contrastive' is empty"),
        (lambda items: items[1].update(source=3), "item 2: 'source' is a number"),
        (lambda items: items[1].update(source=None), "item 2: 'source' is null"),
        (lambda items: items[1].update(source="\ud800"), "item 2: 'source' holds an unpaired surrogate"),
        (lambda items: items[1].update(source="one\ntwo"), "item 2: 'source' has several lines"),
        (lambda items: items[1].update({WMT16: "many"}), "'12/345'"),
        (lambda items: items.insert(0, []), "item 1: is a list"),
        (lambda items: items.clear(), "no items"),
    ],
)
def test_wrong_items_are_named(change: Callable[[Any], None], message: str) -> None:
    items = wsd()
    change(items)
    with pytest.raises(DataError) as caught:
        suite_of(items, "contrawsd")
    assert "suite.json" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [-1, 1.5, True, "far", [1]])
@pytest.mark.parametrize("key", ["distance", "frequency"])
def test_wrong_counts_are_named(key: str, value: Any) -> None:
    items = lingeval()
    items[0]["errors"][1][key] = value
    with pytest.raises(DataError, match=f"item 1, error 2: '{key}' is"):
        suite_of(items)


def test_the_kind_decides_what_is_needed() -> None:
    items = wsd()
    del items[4]["origin"]
    assert suite_of(items).kind == "contrawsd"
    with pytest.raises(DataError, match=r"item 5: has no 'origin'.*--kind"):
        suite_of(items, "mucow")
    assert sum(len(item.contrasts) for item in suite_of(items, "lingeval97").items) == 7
    del items[0]["errors"][0]["type"]
    with pytest.raises(DataError, match="item 1, error 1: has no 'type'"):
        suite_of(items, "lingeval97")


@pytest.mark.parametrize(
    ("text", "message"),
    [("no JSON", "suite.json:1: is not valid JSON"), ("{}", "holds an object"), ("[1,\n 2", "suite.json:2")],
)
def test_what_is_no_suite_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_suite(text, "suite.json")


def test_lines_that_do_not_belong_together_are_refused() -> None:
    names = ["src", "right", "wrong"]
    with pytest.raises(DataError, match="src: 2, right: 1, wrong: 2"):
        pair_items(["s", "t"], ["a"], ["b", "c"], names)
    with pytest.raises(DataError, match=r"wrong:2: this line is empty"):
        pair_items(["s", "t"], ["a", "b"], ["b", " "], names)
    with pytest.raises(DataError, match="src: there are no lines"):
        pair_items([], [], [], names)
