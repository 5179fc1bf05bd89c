"""Measures by bucket: sizes, values and intervals worked out by hand, and the command that draws them."""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from jointnmt.analysis.buckets import Buckets, BucketValue, RatioTerms, ratios
from jointnmt.analysis.corpus import (
    FREQUENCIES,
    LENGTHS,
    POSITIONS,
    Analysis,
    Predictions,
    accuracies_by_frequency,
    accuracies_by_position,
    length_ratios,
    scores_by_length,
)
from jointnmt.analysis.figures import MARKERS, analysis_csv, analysis_figure
from jointnmt.cli.main import app
from jointnmt.data.catalogue import BUNDLED
from jointnmt.evaluation.scores import corpus_scores
from jointnmt.evaluation.significance import FEWEST_COMPARED
from jointnmt.report.curves import LearningCurves, perplexity_figure
from jointnmt.report.pictures import analysis_picture
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.training_text import open_text_of_run
from jointnmt.text.segmentation import Segmentation
from jointnmt.translator import Translator
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, write_run, write_run_of

pytestmark = pytest.mark.slow


def test_buckets_are_named_and_found() -> None:
    buckets = Buckets((10, 11, 40))
    assert buckets.names == ("1-9", "10", "11-39", "40+")
    assert [buckets.find(value) for value in (1, 9, 10, 11, 39, 40, 1000)] == [0, 0, 1, 2, 2, 3, 3]
    assert Buckets((1, 10), lowest=0).names == ("0", "1-9", "10+")


def test_empty_lines_are_in_no_bucket() -> None:
    assert Buckets((10,)).rows([0, 3, 12, 0, 9]) == [[1, 4], [2]]
    texts, lengths, buckets = ["", "a b", "c"], [0, 2, 12], Buckets((10,))
    found = scores_by_length({"one": texts}, texts, lengths, "en", "bleu", buckets).systems["one"]
    assert [(value.size, value.low) for value in found] == [(1, None), (1, None)]
    found = length_ratios({"one": ["x y", "a", "c"]}, texts, lengths, lambda text: len(text.split()), buckets)
    assert [value.value for value in found.systems["one"]] == [0.5, 1.0]


@pytest.mark.parametrize("edges", [(), (10, 10), (20, 10), (1,)])
def test_edges_have_to_rise(edges: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="increase"):
        Buckets(edges)


def test_an_interval_holds_what_resampling_sentences_gives() -> None:
    generator = np.random.default_rng(0)
    wholes = generator.integers(1, 9, (300, 1)).astype(float)
    parts = generator.binomial(wholes.astype(int), 0.4).astype(float)
    (value,) = RatioTerms(parts, wholes).ratios(["all"])
    drawn = [generator.integers(0, 300, 300) for _ in range(2000)]
    expected = np.quantile([parts[rows].sum() / wholes[rows].sum() for rows in drawn], [0.025, 0.975])
    assert value.value == pytest.approx(parts.sum() / wholes.sum())
    assert value.size == wholes.sum()
    assert [value.low, value.high] == pytest.approx(expected, abs=0.006)


def test_an_empty_bucket_has_no_value() -> None:
    table = np.array([[1.0, 0.0], [2.0, 0.0]])
    filled, empty = RatioTerms(table, table).ratios(["a", "b"])
    assert (filled.value, filled.low, filled.high) == (1.0, 1.0, 1.0)
    assert empty == BucketValue("b", 0, None)


def test_a_bucket_of_a_single_sentence_has_no_interval() -> None:
    wholes = np.array([[4.0, 3.0], [4.0, 0.0], [4.0, 0.0]])
    two, one = RatioTerms(wholes / 2, wholes).ratios(["a", "b"])
    assert two.low is not None and two.high is not None
    assert one == BucketValue("b", 3, 0.5)


def test_the_score_of_few_sentences_has_an_interval_for_a_single_system_too() -> None:
    """Also where some resampled texts have no n-gram in common with their references."""
    translations = ["zzz qq", "the dog sees", "qq", "qq"]
    references = ["the dog sees the cat"] * 3 + ["a b c d e f"]
    found = scores_by_length({"x": translations}, references, [1, 1, 1, 30], "en", "chrf")
    few, *_, one, _ = found.systems["x"]
    assert few.low is not None and few.high is not None and few.value is not None
    assert 0 <= few.low < few.value < few.high
    assert (one.size, one.value, one.low) == (1, 0.0, None)


def test_p_values_are_those_of_paired_resampling() -> None:
    """Systems with overlapping intervals that still differ significantly, as sentences vary more than systems."""
    generator = np.random.default_rng(1)
    wholes = np.full((200, 1), 10.0)
    first = generator.integers(2, 8, (200, 1)).astype(float)
    better, same = first + (generator.random((200, 1)) < 0.15), generator.permutation(first)
    systems = {"first": first, "better": better, "same": same, "equal": first.copy()}
    found = ratios({name: RatioTerms(parts, wholes) for name, parts in systems.items()}, ["all"])
    values = {name: each[0] for name, each in found.items()}
    assert values["better"].low is not None and values["first"].high is not None
    assert values["better"].low < values["first"].high
    assert values["first"].p_value is None
    assert values["better"].p_value == pytest.approx(1 / 1001)
    assert values["equal"].p_value == 1
    drawn = [generator.integers(0, 200, 200) for _ in range(2000)]
    true = float((same - first).mean())
    off = [abs(float((same - first)[rows].mean()) - true) >= abs(true) for rows in drawn]
    assert values["same"].p_value == pytest.approx(np.mean(off), abs=0.05)


def test_a_bucket_of_few_sentences_is_not_compared() -> None:
    few = np.array([[1.0, 1.0]] * (FEWEST_COMPARED - 1) + [[1.0, 0.0]])
    found = ratios({"first": RatioTerms(few, few), "second": RatioTerms(few / 2, few)}, ["ten", "nine"])
    assert [value.p_value for value in found["second"]] == [pytest.approx(1 / 1001), None]
    references = ["a b c d e f"] * FEWEST_COMPARED
    systems = {"first": references, "second": ["a b c d x f"] * FEWEST_COMPARED}
    lengths = [1] * (FEWEST_COMPARED - 1) + [30]
    first, second = scores_by_length(systems, references, lengths, "en", "bleu", Buckets((10,))).systems.values()
    assert [value.p_value for value in (*first, *second)] == [None] * 4
    _, second = scores_by_length(
        systems, references, [1] * FEWEST_COMPARED, "en", "bleu", Buckets((10,))
    ).systems.values()
    assert second[0].p_value == pytest.approx(1 / 1001)


def test_accuracy_is_counted_by_position_and_by_frequency() -> None:
    each = Predictions(hits=[[True, False, True], [False, True]], frequencies=[[5, 100, 7], [5, 0]])
    by_position = accuracies_by_position({"one": each}, Buckets((2, 3))).systems["one"]
    assert [(value.bucket, value.size, value.value) for value in by_position] == [
        ("1", 2, 0.5),
        ("2", 2, 0.5),
        ("3+", 1, 1.0),
    ]
    by_frequency = accuracies_by_frequency({"one": each}, Buckets((1, 6, 100), lowest=0)).systems["one"]
    assert [(value.bucket, value.size, value.value) for value in by_frequency] == [
        ("0", 1, 1.0),
        ("1-5", 2, 0.5),
        ("6-99", 1, 1.0),
        ("100+", 1, 0.0),
    ]


def test_accuracies_of_tokens_that_are_frequent_elsewhere_are_not_compared() -> None:
    """A model trained on other text has other tokens in a bucket, even with the same pieces."""
    tokens = [[5, 6]] * FEWEST_COMPARED
    first = Predictions([[True, False]] * FEWEST_COMPARED, [[7, 70]] * FEWEST_COMPARED, tokens)
    other = replace(first, frequencies=[[70, 7]] * FEWEST_COMPARED)
    systems, buckets = {"first": first, "other": other}, Buckets((10, 100), lowest=1)
    found = accuracies_by_frequency(systems, buckets)
    assert found.other_tokens == ("other",)
    assert all(each.p_value is None for each in found.systems["other"])
    assert accuracies_by_position(systems).other_tokens == ()


def test_accuracies_of_other_pieces_are_not_compared() -> None:
    tokens = [[5, 6]] * FEWEST_COMPARED
    first = Predictions([[True, False]] * FEWEST_COMPARED, [[7, 7]] * FEWEST_COMPARED, tokens)
    better = replace(first, hits=[[True, True]] * FEWEST_COMPARED)
    other = replace(better, tokens=[[5, 7]] * FEWEST_COMPARED)
    for accuracies in (accuracies_by_position, accuracies_by_frequency):
        found = accuracies({"first": first, "better": better, "other": other})
        p_values = {name: [each.p_value for each in values if each.size] for name, values in found.systems.items()}
        assert p_values == {"first": [None], "better": [pytest.approx(1 / 1001)], "other": [None]}
        assert found.other_tokens == ("other",)
        table = analysis_picture(found).table
        assert table is not None and table.caption.endswith(
            "and p against first; other: not compared with first, whose buckets have other tokens"
        )


def test_what_is_not_compared_is_said_below_the_table(runs: list[Path], tmp_path: Path) -> None:
    segmentation = RunDirectory(runs[1]).segmentation
    words = [*TARGET_WORDS[:3], "more", *TARGET_WORDS[3:]]
    config = RunDirectory(runs[1]).read_experiment().segmentation
    settings = config.model_copy(update={"min_frequency": 1, "vocabulary_size": 100})
    other = Segmentation.train(settings, [" ".join(SOURCE_WORDS)], [" ".join(words)], "de", "en")
    shutil.rmtree(segmentation)
    write_run_of(runs[1], RunDirectory(runs[1]).read_experiment(), other)
    texts = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en"), "--out", str(tmp_path / "out")]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["analyse", *map(str, runs), *texts, "--metric", "bleu"])
    assert result.exit_code == 0, result.output
    assert (
        " ".join(result.stdout.split()).count(
            "not compared, as their buckets hold other tokens than those of first: second"
        )
        == 2
    )


def test_scores_of_a_bucket_are_those_of_its_sentences_alone() -> None:
    references = ["a b c d e", "f g h i j k", "l m n o p", "q r s t"]
    translations = ["a b c d x", "f g h i j k", "l m x o p", "q r s t"]
    lengths = [3, 12, 3, 12]
    analysis = scores_by_length({"one": translations}, references, lengths, "en", "bleu", Buckets((10, 20)))
    short, long, none = analysis.systems["one"]
    expected = corpus_scores([translations[0], translations[2]], [references[0], references[2]], "en", ["bleu"])
    assert (short.size, short.value) == (2, pytest.approx(expected.bleu.value))
    assert (long.size, long.value) == (2, pytest.approx(100))
    assert none == BucketValue("20+", 0, None)
    ratio = length_ratios({"one": ["a b", *translations[1:]]}, references, lengths, lambda text: len(text.split()))
    assert [value.value for value in ratio.systems["one"]][:2] == [7 / 10, 1.0]


def test_intervals_end_where_the_metric_does() -> None:
    """BLEU's axis ends at 100; TER has no maximum."""
    references = ["a b c d e f"] * 30
    for metric, text, most in (("bleu", "a b c d e f", 100.0), ("ter", "x y z v w u k l m n o p", math.inf)):
        texts = [text if row % 3 else "a b c d e f x y" for row in range(30)]
        [value, _] = scores_by_length({"x": texts}, references, [3] * 30, "en", metric, Buckets((9,))).systems["x"]
        assert value.low is not None and value.high is not None
        assert value.low <= value.value <= value.high <= most
    assert value.high > 100


def many_systems(count: int) -> Analysis:
    values = [
        BucketValue("1-9", 30, 0.5, 0.4, 0.6),
        BucketValue("10-19", 20, 0.7, 0.6, 0.8),
        BucketValue("20+", 0, None),
    ]
    return Analysis("x", "Title", "length", "accuracy", "tokens", {f"system {n}": values for n in range(count)})


def test_a_figure_tells_systems_apart_and_names_sizes() -> None:
    figure = analysis_figure(many_systems(4))
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"system {n}" for n in range(4)]
    assert axes.get_legend() is None  # it would hide intervals
    looks = {(line.get_color(), line.get_marker()) for line in axes.get_lines() if line.get_marker() in MARKERS}
    assert len(looks) == 4
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "1-9\n30",
        "10-19\n20",
    ]  # the last one is empty


def test_sizes_that_are_all_equal_are_named_once() -> None:
    values = [BucketValue("1", 30, 0.5, 0.4, 0.6), BucketValue("2", 30, 0.7, 0.6, 0.8)]
    axes = analysis_figure(Analysis("x", "Title", "layer", "y", "pieces", {"one": values})).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    assert axes.get_xlabel() == "layer (n = 30 pieces)"


def test_a_star_marks_what_differs_from_the_first_system() -> None:
    values = [BucketValue("1-9", 30, 0.5, 0.4, 0.6, p_value=0.2), BucketValue("10+", 20, 0.7, 0.6, 0.8, p_value=0.01)]
    first = [BucketValue("1-9", 30, 0.5, 0.4, 0.6), BucketValue("10+", 20, 0.6, 0.5, 0.7)]
    axes = analysis_figure(Analysis("x", "Title", "length", "y", "tokens", {"first": first, "second": values})).axes[0]
    (star,) = (text for text in axes.texts if text.get_text() == "*")
    assert star.get_position()[1] == 1 and star.get_transform() == axes.get_xaxis_transform()
    assert star.get_color() != axes.lines[0].get_color()
    (legend,) = axes.figure.legends
    assert "p < 0.05" in legend.get_title().get_text()


def sized(names: Sequence[str], buckets: int = 5) -> Analysis:
    """Systems with different pieces: the sizes of buckets differ."""
    systems = {
        name: [BucketValue(f"{10 * i}-{10 * i + 9}", 15_000 - 1234 * i + n, 0.5, 0.4, 0.6) for i in range(buckets)]
        for n, name in enumerate(names)
    }
    return Analysis("x", "Title", "position", "accuracy", "target tokens", systems)


@pytest.mark.parametrize(
    "names", [["_base", "lr$5e_{-4$"], ["package:tatoeba-de-en-" + "x" * 20] * 5, ["y" * 120, "z"]]
)
@pytest.mark.parametrize("width", [5.4, 7.2])
def test_legends_name_every_system_and_are_not_cut_off(names: list[str], width: float) -> None:
    names = [f"{name}{'_' * n}" for n, name in enumerate(names)]
    figure = analysis_figure(sized(names), width)
    figure.savefig(io.BytesIO(), format="png")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    place, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= place.x0 and place.x1 <= whole.x1 and whole.y0 <= place.y0
    assert place.y1 <= figure.axes[0].get_window_extent().y0
    curves = [LearningCurves(name, [(1, 9.0), (2, 3.0)], [(1, 9.0), (2, 3.0)]) for name in names]
    perplexity_figure(curves).savefig(io.BytesIO(), format="svg")
    steep = LearningCurves("steep", training=[(1, 5000.0), (9, 4.0)], validation=[(5, 8.0), (9, 3.0)])
    assert perplexity_figure([steep]).axes[0].get_ylim()[1] == 16
    (legend,) = perplexity_figure(curves).legends
    assert legend.get_texts()[0].get_text() == f"{names[0]}, training"


def test_sizes_of_buckets_do_not_overlap() -> None:
    for buckets, lines in ((5, 3), (14, 1)):
        figure = analysis_figure(sized(["one", "two"], buckets), 5.4)
        figure.draw_without_rendering()
        labels = figure.axes[0].get_xticklabels()
        assert {label.get_text().count("\n") + 1 for label in labels} == {lines}
        if lines > 1:
            assert labels[1].get_text() == "10-19\n13,766\nto 13,767"
            extents = [label.get_window_extent() for label in labels]
            assert all(left.x1 < right.x0 for left, right in pairwise(extents))


def test_csv_has_a_row_for_each_system_and_bucket() -> None:
    rows = list(csv.reader(analysis_csv(many_systems(2)).splitlines()))
    assert rows[0] == ["system", "bucket", "size (tokens)", "accuracy", "low", "high", "p"]
    assert rows[1] == ["system 0", "1-9", "30", "0.5", "0.4", "0.6", ""]
    assert rows[6] == ["system 1", "20+", "0", "", "", "", ""]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    for name, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS)):
        (tmp_path / name).write_text("".join(f"{' '.join(words[:n])}\n" for n in range(2, 9)), encoding="utf-8")
    data: dict[str, Any] = {"root": str(tmp_path), "source_language": "de", "target_language": "en"}
    data["train"] = [{"source": "de", "target": "en"}]
    return [write_run(tmp_path / name, data=data) for name in ("first", "second")]


def test_help_says_the_default_edges() -> None:
    shown = " ".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, ["analyse", "--help"]).output.split())
    for buckets, count in ((LENGTHS, 2), (FREQUENCIES, 1)):
        assert shown.count(f"[default: ({', '.join(map(str, buckets.edges))})]") == count
    assert POSITIONS.edges == LENGTHS.edges


def test_the_command_writes_figures_and_numbers(runs: list[Path], tmp_path: Path) -> None:
    texts = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en"), "--out", str(tmp_path / "out")]
    runner = CliRunner(env={"COLUMNS": "200"})
    edges = ["--length-edges", "4", "--frequency-edges", "3", "--frequency-edges", "6"]
    result = runner.invoke(app, ["analyse", *map(str, runs), *texts, *edges])
    assert result.exit_code == 0, result.output
    names = ["length-ratio", "bleu-by-length", "chrf-by-length", "accuracy-by-position", "accuracy-by-frequency"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "analysis.json",
        *(f"{name}.{ending}" for name in names for ending in ("csv", "png")),
    }
    found = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert [each["name"] for each in found] == names
    ratio, accuracy = found[0], found[-1]
    assert list(ratio["systems"]) == ["first", "second"]
    assert [value["size"] for value in ratio["systems"]["first"]] == [2 + 3, 4 + 5 + 6 + 7 + 8]
    # The eight words occur in 7, 7, 6, 5, 4, 3, 2 and 1 of the training lines, the end mark in all seven.
    sizes = [value["size"] for value in accuracy["systems"]["first"]]
    assert sizes == [1 + 2, 3 + 4 + 5, 6 + 7 + 7 + 7]
    assert sum(sizes) == 2 + 3 + 4 + 5 + 6 + 7 + 8 + 7


def test_a_run_without_its_training_text_is_left_out_of_accuracy_by_frequency(runs: list[Path], tmp_path: Path) -> None:
    recipe = runs[1] / "experiment.yaml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("source: de", "source: gone"), encoding="utf-8")
    texts = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["analyse", *map(str, runs), *texts, "--json"])
    assert result.exit_code == 0, result.output
    found = {each["name"]: [*each["systems"]] for each in json.loads(result.stdout)}
    assert found.pop("accuracy-by-frequency") == ["first"]
    assert set(map(tuple, found.values())) == {("first", "second")}
    assert "second: left out of accuracy by frequency" in result.stderr


def test_a_run_whose_training_text_has_changed_is_left_out_of_accuracy_by_frequency(
    runs: list[Path], tmp_path: Path
) -> None:
    (runs[1] / "checkpoints").mkdir()
    checkpoint.write(runs[1] / "checkpoints" / "last.safetensors", {}, {"data": "of other text"})
    texts = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["analyse", *map(str, runs), *texts, "--json"])
    assert result.exit_code == 0, result.output
    assert [*json.loads(result.stdout)[-1]["systems"]] == ["first"]
    told = " ".join(result.stderr.split())
    assert "second: left out of accuracy by frequency" in told and "have changed since" in told


@pytest.mark.slow
def test_models_of_the_package_find_the_bundled_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not files of the same name in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "valid.tsv.xz").write_bytes(lzma.compress(b"der Hund\tthe dog\n"))
    run = Path("package:tatoeba-de-en-transformer")
    translator = Translator.load(run, "cpu")
    store = open_text_of_run(run, translator.experiment.data, translator.segmentation, "validation")
    with lzma.open(BUNDLED / "tatoeba-de-en" / "valid.tsv.xz") as lines:
        assert len(store) == sum(1 for _ in lines)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--metric", "ter"], "Choose bleu or chrf"),
        (["--length-edges", "9", "--length-edges", "3"], "increase"),
        (["RUN"], "same name"),
    ],
)
def test_wrong_use_is_refused(runs: list[Path], tmp_path: Path, extra: list[str], message: str) -> None:
    texts = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en"), "--out", str(tmp_path / "out")]
    extra = [str(runs[0]) if word == "RUN" else word for word in extra]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["analyse", str(runs[0]), *extra, *texts])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
