"""Attention as a picture and as numbers."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import Tensor

from jointnmt.analysis import fonts
from jointnmt.analysis.attention import Panel, View, attention_numbers, attention_panels
from jointnmt.analysis.attention_figures import attention_figure
from jointnmt.analysis.buckets import BucketValue
from jointnmt.analysis.corpus import Analysis
from jointnmt.analysis.fonts import missing_letters
from jointnmt.analysis.lexical import LayerMeasurement
from jointnmt.analysis.study import LexicalStudy, write_studies
from jointnmt.models.interface import AttentionMaps
from jointnmt.report.analyses import write_analyses

pytestmark = pytest.mark.slow

SOURCE = ["▁Das", "▁kostet", "▁$5", "▁oder", "▁$6"]
TARGET = ["▁That", "▁costs", "▁$5"]
S, T, H = len(SOURCE) + 1, len(TARGET) + 1, 2


def weights(generator: torch.Generator, *shape: int) -> Tensor:
    """Attention weights of this shape; causal if the last two axes are both the target's."""
    scores = torch.randn(shape, generator=generator)
    if shape[-2:] == (T, T):
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


@pytest.fixture
def reformer(generator: torch.Generator) -> AttentionMaps:
    return AttentionMaps(
        prenet=[weights(generator, 1, H, S, S) for _ in range(2)],
        source=[weights(generator, 1, H, T, S, S) for _ in range(3)],
        target=[weights(generator, 1, H, S, T, T) for _ in range(3)],
        alignment=weights(generator, 1, T, S),
    )


@pytest.fixture
def transformer(generator: torch.Generator) -> AttentionMaps:
    cross = [weights(generator, 1, H, T, S) for _ in range(2)]
    return AttentionMaps(
        encoder=[weights(generator, 1, H, S, S) for _ in range(2)],
        decoder=[weights(generator, 1, H, T, T) for _ in range(2)],
        cross=cross,
        alignment=torch.stack(cross).mean((0, 2)),
    )


def titles(panels: list[Panel]) -> list[str]:
    return [panel.title for panel in panels]


def test_a_reformer_shows_the_alignment_and_both_axes(reformer: AttentionMaps) -> None:
    panels = attention_panels(reformer, SOURCE, TARGET)
    assert titles(panels) == [
        "Alignment (reduction)",
        "PreNet self-attention",
        "Source attention",
        "Target attention",
    ]
    alignment, _, source, target = panels
    assert alignment.rows == (*TARGET, "</s>")
    assert alignment.columns == source.rows == source.columns == (*SOURCE, "</s>")
    assert target.rows == target.columns == ("<s>", *TARGET)


def test_a_transformer_shows_encoder_decoder_and_alignment(transformer: AttentionMaps) -> None:
    panels = attention_panels(transformer, SOURCE, TARGET)
    assert titles(panels) == ["Alignment (cross-attention)", "Encoder self-attention", "Decoder self-attention"]
    assert panels[0].averaged_over == "layers, heads"
    assert transformer.alignment is not None
    np.testing.assert_allclose(panels[0].weights, transformer.alignment[0], rtol=1e-5)


def test_panels_are_means_over_all_but_two_axes(reformer: AttentionMaps) -> None:
    _, prenet, source, target = attention_panels(reformer, SOURCE, TARGET)
    layers = np.stack([layer.numpy() for layer in reformer.source])  # [layers, 1, H, T, S, S]
    np.testing.assert_allclose(source.weights, layers.mean((0, 1, 2, 3)), rtol=1e-5)
    layers = np.stack([layer.numpy() for layer in reformer.target])  # [layers, 1, H, S, T, T]
    np.testing.assert_allclose(target.weights, layers.mean((0, 1, 2, 3)), rtol=1e-5)
    for panel in (prenet, source, target):
        np.testing.assert_allclose(panel.weights.sum(1), 1, rtol=1e-5)


def test_a_chosen_token_has_another_attention_under_each_token_of_the_other_side(reformer: AttentionMaps) -> None:
    """Figure 5 of Li et al. 2020, and beside it the single distribution of a sequence's self-attention."""
    _, prenet, source, target = attention_panels(reformer, SOURCE, TARGET, View(source=1, target=2))
    layers = np.stack([layer.numpy() for layer in reformer.source])  # [layers, 1, H, T, S, S]
    np.testing.assert_allclose(source.weights, layers[..., 1, :].mean((0, 1, 2)), rtol=1e-5)
    assert (source.title, source.row_axis) == ("Source attention of “▁kostet”", "under target read")
    assert (source.rows, source.columns) == (("<s>", *TARGET), (*SOURCE, "</s>"))
    layers = np.stack([layer.numpy() for layer in reformer.target])  # [layers, 1, H, S, T, T]
    np.testing.assert_allclose(target.weights, layers[..., 2, :].mean((0, 1, 2)), rtol=1e-5)
    assert (target.title, target.rows) == ("Target attention of “▁costs”", (*SOURCE, "</s>"))
    layers = np.stack([layer.numpy() for layer in reformer.prenet])
    np.testing.assert_allclose(prenet.weights, layers[..., 1:2, :].mean((0, 1, 2)), rtol=1e-5)


def test_every_layer_and_head_has_a_panel_if_wanted(transformer: AttentionMaps, reformer: AttentionMaps) -> None:
    layers = attention_panels(transformer, SOURCE, TARGET, View("layer"))
    assert [(panel.title.split()[0], panel.layer, panel.head) for panel in layers] == [
        (title, layer, None) for title in ("Alignment", "Encoder", "Decoder") for layer in (1, 2)
    ]
    assert layers[3].subtitle == "layer 2, mean over heads"
    np.testing.assert_allclose(layers[3].weights, transformer.encoder[1].mean((0, 1)), rtol=1e-5)
    heads = attention_panels(reformer, SOURCE, TARGET, View("head", target=1))
    assert len(heads) == 1 + 2 * H + 3 * H + 3 * H
    assert heads[-1].subtitle == "layer 3, head 2"
    np.testing.assert_allclose(heads[-1].weights, reformer.target[2][0, 1, :, 1], rtol=1e-5)
    assert heads[-1 - 3 * H].subtitle == "layer 3, head 2, mean over target positions"
    figure = attention_figure(heads)
    rows = {round(axes.get_position().y1, 6) for axes in figure.axes}
    assert len(rows) == 1 + 2 + 3 + 3  # the alignment, and a line for each layer of each kind


@pytest.mark.parametrize("view", [View(), View("head", 1, 2), View("layer", source=3)])
@pytest.mark.parametrize("title", ["", "A rather long sentence that has to be broken. " * 9])
def test_nothing_in_the_picture_covers_anything_else(reformer: AttentionMaps, view: View, title: str) -> None:
    figure = attention_figure(attention_panels(reformer, SOURCE, TARGET, view), title)
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    if title:
        (heading,) = (text for text in figure.findobj(Text) if text.get_text() == title)
        boxes.append(heading.get_window_extent())
    for number, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
        assert box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_a_model_without_an_alignment_shows_the_rest(reformer: AttentionMaps) -> None:
    reformer.alignment = None
    assert not any("Alignment" in title for title in titles(attention_panels(reformer, SOURCE, TARGET)))


def test_pieces_that_do_not_fit_the_weights_are_refused(reformer: AttentionMaps) -> None:
    with pytest.raises(ValueError, match="3 rows"):
        attention_panels(reformer, SOURCE, TARGET[:2])
    reformer.alignment = torch.cat([reformer.alignment] * 2)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch of one sentence, got 2"):
        attention_panels(reformer, SOURCE, TARGET)


def drawn(maps: AttentionMaps) -> Figure:
    figure = attention_figure(attention_panels(maps, SOURCE, TARGET), "Das kostet $5 oder $6\nThat costs $5")
    figure.canvas.draw()
    return figure


def test_the_picture_has_pieces_for_labels_and_a_colour_bar_for_each_panel(reformer: AttentionMaps) -> None:
    figure = drawn(reformer)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 4
    assert [label.get_text() for label in panels[0].get_xticklabels()] == [*SOURCE, "</s>"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == [*TARGET, "</s>"]
    assert not any(label.get_parse_math() for axes in panels for label in axes.get_xticklabels())
    bars = [child for axes in panels for child in axes.child_axes]
    assert [bar.get_ylabel() for bar in bars] == ["weight"] * 4
    assert all(axes.images[0].get_cmap().name == "cividis" for axes in panels)


def test_one_certain_row_does_not_darken_the_others(transformer: AttentionMaps) -> None:
    decoder = next(axes for axes in drawn(transformer).axes if axes.get_title().startswith("Decoder"))
    expected = torch.stack(transformer.decoder).mean((0, 1, 2))[1:].max()  # row 0 has only one choice
    assert decoder.images[0].get_clim() == pytest.approx((0, float(expected)))
    assert decoder.images[0].get_array().mask[0].tolist() == [False, True, True, True]  # type: ignore[union-attr]


def test_drawing_needs_no_display_and_leaves_the_settings_alone(reformer: AttentionMaps) -> None:
    before = dict(matplotlib.rcParams)
    drawn(reformer)
    assert dict(matplotlib.rcParams) == before


def attention_to(pieces: list[str]) -> Figure:
    weights = np.full((1, len(pieces)), 1 / len(pieces))
    return attention_figure([Panel("Alignment", None, None, "", "written", ("▁it",), "read", tuple(pieces), weights)])


def test_letters_are_drawn_in_the_first_font_that_has_them(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with matplotlib.rc_context({"font.family": "cmr10"}):  # has no Cyrillic, which DejaVu Sans has
        figure = attention_to(["▁соба", "ка"])
        assert missing_letters("собака") == []
    figure.savefig(tmp_path / "figure.png")
    assert not [str(each.message) for each in recwarn if "Glyph" in str(each.message)]


def test_so_are_names_of_runs_in_analyses_and_studies(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    value = BucketValue("1", 9, 0.5, 0.4, 0.6)
    measured = [LayerMeasurement("accuracy", "encoder", "source", "1", kind, value) for kind in ("all", "frequency")]
    with matplotlib.rc_context({"font.family": "cmr10"}):
        write_analyses([Analysis("x", "Title", "position", "accuracy", "tokens", {"собака": [value]})], tmp_path)
        write_studies({"собака": LexicalStudy(measured, {})}, tmp_path)
    assert len([*tmp_path.glob("*.png")]) == 3
    assert not [str(each.message) for each in recwarn if "Glyph" in str(each.message)]


def test_letters_of_no_font_are_told_once_and_are_text_in_an_svg(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "FALLBACKS", ("DejaVu Sans",))
    figure = attention_to(["▁一只", "狗"])
    fonts.save_figure(figure, tmp_path / "figure.svg", dpi=100)
    assert "▁一只" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert not caplog.messages
    for name in ("figure.png", "figure.pdf"):
        fonts.save_figure(figure, tmp_path / name, dpi=100)
        assert (tmp_path / name).stat().st_size > 1000
    assert ["no font is installed for 一 只 狗, drawn as boxes" in message for message in caplog.messages] == [
        True,
        True,
    ]
    assert not [str(each.message) for each in recwarn if "Glyph" in str(each.message)]


def test_control_characters_are_symbols_of_which_xml_can_be_made(tmp_path: Path) -> None:
    figure = attention_to(["a\x01b", "\x7f\uffff"])
    fonts.save_figure(figure, tmp_path / "figure.svg", dpi=100)
    text = "".join(ElementTree.parse(tmp_path / "figure.svg").getroot().itertext())
    assert "a\u2401b" in text and "\u2421\ufffd" in text


def test_numbers_beside_the_picture(reformer: AttentionMaps) -> None:
    numbers = json.loads(json.dumps(attention_numbers(reformer, SOURCE, TARGET)))
    assert (numbers["source"], numbers["target"]) == (SOURCE, TARGET)
    assert [panel["title"] for panel in numbers["panels"]] == titles(attention_panels(reformer, SOURCE, TARGET))
    assert reformer.alignment is not None
    np.testing.assert_allclose(numbers["panels"][0]["weights"], reformer.alignment[0], atol=1e-6)
    source = np.stack([layer.numpy() for layer in reformer.source]).mean((0, 1, 2))  # [T, S, S]
    np.testing.assert_allclose(numbers["source_attention"], source, atol=1e-6)
    assert np.shape(numbers["target_attention"]) == (S, T, T)
