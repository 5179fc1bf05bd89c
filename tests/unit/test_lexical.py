"""Groups of pieces, and measurements in them: worked out by hand, or computed again with loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from jointnmt.analysis.lexical import HeldOutText, LayerMeasurement, hoyer, measure_gates, measure_states
from jointnmt.analysis.lexical_figures import topic_csv, topic_figure, topics
from jointnmt.analysis.pieces import (
    BINS,
    CLASSES,
    FrequencyBins,
    SideText,
    any_piece,
    by_group,
    mean_piece,
    side_text,
    word_class,
)
from jointnmt.analysis.probes import Probe, ProbeConfig
from jointnmt.analysis.states import State, hidden_states
from jointnmt.data.batch import Batch
from jointnmt.errors import DataError
from jointnmt.models import AttentionMaps, TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from support.tiny_run import SOURCE_WORDS, word_segmentation

PAIRS = [((4, 5, 6), (7, 8)), ((9, 4), (5, 6, 7, 8))]


@pytest.mark.parametrize(
    ("tag", "language", "expected"),
    [
        ("NN", "en", "NOUN"),
        ("NE", "de", "NOUN"),
        ("PROPN", "en", "NOUN"),
        ("VVFIN", "de", "VERB"),
        ("verb", "en", "VERB"),
        ("JJR", "en", "ADJ/ADV"),
        ("RBS", "en", "ADJ/ADV"),
        ("ADJD", "de", "ADJ/ADV"),
        ("ADV", "de", "ADJ/ADV"),
        ("Afpmsnf", "ru", "ADJ/ADV"),
        ("ADP", "ru", "OTHER"),
        ("ART", "de", "OTHER"),
        ("AUX", "en", "OTHER"),
        ("NUM", "en", "OTHER"),
        ("CARD", "de", "OTHER"),
        ("PRP", "en", "OTHER"),
    ],
)
def test_tags_have_classes(tag: str, language: str, expected: str) -> None:
    assert word_class(tag, language) == expected


def test_bins_hold_equally_many_pieces_from_the_rarest_on() -> None:
    counts = np.array([0, 0, *range(20, 0, -1)])  # piece 2 occurs 20 times, piece 21 once
    bins = FrequencyBins.of(counts)
    assert bins.of_piece.tolist() == [BINS, BINS, *(number for number in range(9, -1, -1) for _ in range(2))]
    assert bins.names[0] == "1 (1-2)"
    assert bins.names[9:] == ("10 (19-20)", "unseen")


def test_equally_frequent_pieces_are_split_by_their_ids() -> None:
    bins = FrequencyBins.of(np.full(20, 3))
    assert bins.of_piece.tolist() == [number for number in range(9, -1, -1) for _ in range(2)]
    assert set(bins.names[:10]) == {f"{number} (3)" for number in range(1, 11)}
    assert FrequencyBins.of(np.array([0, 5])).names[-2] == "10 (none)"


def test_measures_are_grouped() -> None:
    text = SideText(
        bins=[np.array([0, 0, 9]), np.array([9])],
        bin_names=tuple(map(str, range(BINS + 1))),
        words=[np.array([0, 0, 1]), np.array([0])],
        classes=[np.array([0, 3]), np.array([0])],
    )
    values = [np.array([1.0, 0.0, 0.0]), np.array([1.0])]
    hits = by_group(values, text, any_piece)
    assert [(each.size, each.value) for each in hits["all"]] == [(4, 0.5)]
    sizes = [(each.size, each.value) for each in hits["frequency"]]
    assert sizes == [(2, 0.5), *[(0, None)] * 8, (2, 0.5)]  # nothing is unseen, so there is no eleventh bin
    assert [each.bucket for each in hits["class"]] == list(CLASSES)
    assert [(each.size, each.value) for each in hits["class"]] == [(2, 1.0), (0, None), (0, None), (1, 0.0)]
    means = by_group(values, text, mean_piece)["class"]
    assert [each.value for each in means] == [0.75, None, None, 0.0]
    assert "class" not in by_group(values, SideText(text.bins, text.bin_names, text.words, None), any_piece)


def test_tags_have_to_be_as_many_as_words() -> None:
    segmenter = word_segmentation().source
    ids = [segmenter.encode_ids(" ".join(SOURCE_WORDS[:3])), segmenter.encode_ids(SOURCE_WORDS[0])]
    bins = FrequencyBins.of(np.ones(segmenter.vocabulary_size, dtype=int))
    good = side_text(ids, segmenter, bins, [["ART", "NN", "ART"], ["ART"]], ["a:1", "a:7"])
    assert good.classes is not None
    assert good.classes[0].tolist() == [3, 0, 3]
    with pytest.raises(DataError, match=r"a:7: there are 2 tags, but the sentence has 1 words"):
        side_text(ids, segmenter, bins, [["ART", "NN", "ART"], ["ART", "NN"]], ["a:1", "a:7"])


def test_hoyer_is_zero_for_equal_and_one_for_single_features() -> None:
    rows = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.0, 0.7, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    assert hoyer(rows).tolist() == pytest.approx([0, 1, 2 - math.sqrt(2)], abs=1e-6)


def model_with_shortcuts(family: str) -> TranslationModel:
    torch.manual_seed(0)
    sizes = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8, "shortcuts": ShortcutConfig(kind="fusion")}
    config = (
        TransformerConfig(**sizes, encoder_layers=2, decoder_layers=1)  # type: ignore[arg-type]
        if family == "transformer"
        else ReformerFastConfig(**sizes, num_layers=1, prenet_layers=1)  # type: ignore[arg-type]
    )
    return build_model(config, 12, 12).eval()


def held_out() -> HeldOutText:
    bins = FrequencyBins.of(np.arange(12))
    source, target = (
        SideText([bins.of_piece[list(row)] for row in rows], bins.names, [np.arange(len(row)) for row in rows], None)
        for rows in zip(*PAIRS, strict=True)
    )
    return HeldOutText(PAIRS, {"source": source, "target": target})


def found(numbers: list[LayerMeasurement], measure: str, stack: str, side: str, layer: str) -> float:
    (value,) = [
        each.value.value
        for each in numbers
        if (each.measure, each.stack, each.side, each.layer, each.grouping) == (measure, stack, side, layer, "all")
    ]
    assert value is not None
    return value


def test_similarity_is_the_cosine_of_whole_sentences() -> None:
    model = model_with_shortcuts("transformer")
    numbers = [*measure_states(model, held_out(), {}, lambda _: None)]
    cosines = []
    for source, target in PAIRS:
        states = hidden_states(model, Batch.collate([source], [target]))
        layer = states[State("decoder", "target", "1")].flatten().numpy()
        embedded = states[State("embedding", "target", "embedding")].flatten().numpy()
        cosines.append(layer @ embedded / np.linalg.norm(layer) / np.linalg.norm(embedded))
    assert found(numbers, "similarity", "decoder", "target", "1") == pytest.approx(np.mean(cosines))
    assert found(numbers, "similarity", "embedding", "source", "embedding") == pytest.approx(1)
    assert not [each for each in numbers if each.measure == "accuracy"]  # without probes


class EvenProbe(Probe):
    """Recovers the pieces whose ids are even."""

    def hits(self, states: Tensor, ids: Tensor) -> Tensor:
        return (ids % 2 == 0).float()


def test_accuracy_is_of_pieces_and_by_class_of_words() -> None:
    """A word counts as recovered if any of its pieces is."""
    text, state = held_out(), State("encoder", "source", "2")
    words = [np.array([0, 0, 1]), np.array([0, 1])]  # (4, 5), 6 and 9, 4
    classes = [np.array([0, 0]), np.array([1, 0])]
    side = replace(text.sides["source"], words=words, classes=classes)
    probe = EvenProbe(8, 12, ProbeConfig(), torch.Generator())
    told: list[int] = []
    text = HeldOutText(text.pairs, {**text.sides, "source": side})
    measured = [*measure_states(model_with_shortcuts("transformer"), text, {state: probe}, told.append)]
    numbers = [each for each in measured if each.measure == "accuracy"]
    assert {(each.stack, each.side, each.layer) for each in numbers} == {state}
    values = {(each.grouping, each.value.bucket): (each.value.size, each.value.value) for each in numbers}
    assert values["all", "all"] == (5, 3 / 5)
    assert values["class", "NOUN"] == (3, 1.0)
    assert values["class", "VERB"] == (1, 0.0)
    assert sum(told) == 2


@pytest.mark.parametrize("family", ["transformer", "reformer-fast"])
def test_gates_are_means_over_pieces(family: str) -> None:
    model = model_with_shortcuts(family)
    numbers = [*measure_gates(model, held_out(), lambda _: None)]
    place, name = ("decoder", "decoder") if family == "transformer" else ("target", "grid target")
    gates, sparse = [], []
    for source, target in PAIRS:
        maps = AttentionMaps()
        model(*(lambda batch: (batch.source, batch.target_input))(Batch.collate([source], [target])), maps)
        keys = maps.gates[place][0][0].select(-2, 0).detach()  # [T, E], or [S, T, E] of all source positions
        for position in range(1, len(target) + 1):
            cells = keys[position] if keys.dim() == 2 else keys[:, position]
            gates.append(float(cells.mean()))
            sparse.append(float(hoyer(cells).mean()))
    assert found(numbers, "gate", f"{name} keys", "target", "1") == pytest.approx(np.mean(gates))
    assert found(numbers, "sparseness", f"{name} keys", "target", "1") == pytest.approx(np.mean(sparse), abs=1e-6)
    stacks = {each.stack for each in numbers if each.side == "source"}
    assert stacks == (
        {"encoder keys", "encoder values"}
        if family == "transformer"
        else {f"{where} {kind}" for where in ("prenet", "grid source", "grid target") for kind in ("keys", "values")}
    )


def test_figures_have_a_line_or_a_table_for_each_system_and_stack() -> None:
    systems = {}
    for family in ("transformer", "reformer-fast"):
        model = model_with_shortcuts(family)
        text = held_out()
        systems[family] = [*measure_states(model, text, {}, print), *measure_gates(model, text, print)]
    by_name = {topic.name: topic for topic in topics(systems)}
    assert set(by_name) == {
        "similarity-source",
        "similarity-target",
        *(f"{m}-{s}{by}" for m in ("gate", "sparseness") for s in ("source", "target") for by in ("", "-by-frequency")),
    }
    figure = topic_figure(by_name["similarity-target"])
    axes = figure.axes[0]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["transformer: decoder", "reformer-fast: grid"]
    assert [label.get_text().split("\n")[0] for label in axes.get_xticklabels()] == [
        "embedding",
        "input",
        "1",
        "reduced",
    ]
    *tables, _ = topic_figure(by_name["gate-source-by-frequency"]).axes  # the last one is the colour bar
    assert [each.get_title() for each in tables][:3] == [
        "transformer: encoder keys",
        "transformer: encoder values",
        "reformer-fast: prenet keys",
    ]
    rows = topic_csv(by_name["similarity-target"]).splitlines()
    assert rows[0] == "system,stack,layer,group,size (sentences),similarity,low,high"
    assert rows[1] == "transformer,embedding,embedding,all,2,1,1,1"
    assert len(rows) == 1 + 2 + 4
