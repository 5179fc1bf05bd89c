"""Items of contrastive suites in the format of their files, with decisions that can be counted by hand."""

from __future__ import annotations

import json
from typing import Any

from jointnmt.evaluation.contrastive_suites import Suite, parse_suite

WMT16, FRENCH = "frequency of sense/ambig word in wmt16", "frequency of sense/ambig word in europarl-v7 and nc11"


def wsd_item(sense: str, reference: str, *contrasts: str, **more: Any) -> dict[str, Any]:
    """An item about the word "Bank"."""
    errors = [{"contrastive": text, "replacement": "", "type": "word_sense"} for text in contrasts]
    return {
        "source": "die Bank",
        "reference": reference,
        "ambig word": "Bank",
        "sense": sense,
        "errors": errors,
        **more,
    }


def wsd(**more: Any) -> list[dict[str, Any]]:
    """Three items about benches, two about money."""
    rare, frequent = ({WMT16: counts} for counts in ("20/400", "380/400"))
    return [
        wsd_item("bench", "a", "b", origin="books", **rare, **more),
        wsd_item("bench", "a", "tie", origin="books", **rare, **more),
        wsd_item("bench", "long", "short", origin="news", **rare, **more),
        wsd_item("bank", "a", "b", "best", origin="news", **frequent, **more),
        wsd_item("bank", "a", "b", "c", origin="news", **frequent, **more),
    ]


def lingeval() -> list[dict[str, Any]]:
    """Six pairs, of which three are right, counted by hand: those with b and c."""
    near = {"type": "agreement", "contrastive": "b", "distance": 0, "frequency": 5}
    return [
        {
            "source": "the bank",
            "reference": "a",
            "origin": "newstest.1",
            "errors": [
                near,
                {**near, "contrastive": "tie", "distance": 15, "frequency": 6},
                {**near, "contrastive": "c", "distance": 16, "frequency": "10001"},
                {"type": "negation", "contrastive": "best"},
            ],
        },
        {
            "source": "the other bank",
            "reference": "a",
            "errors": [{**near, "frequency": 3}, {**near, "contrastive": "best", "distance": 40, "frequency": None}],
        },
    ]


def suite_of(values: Any, kind: Any = None) -> Suite:
    return parse_suite(json.dumps(values), "suite.json", kind)
