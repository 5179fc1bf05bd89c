"""Corpus scores, and the significance of their differences."""

import math
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest
from sacremoses import MosesTokenizer

from jointnmt.errors import ConfigurationError, DataError, MissingPackageError
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.evaluation.resampling import two_sided
from jointnmt.evaluation.scores import METRICS, corpus_metrics, corpus_scores
from jointnmt.evaluation.significance import likelihood_bootstrap, paired_bootstrap

REFERENCES = [
    "The old man's dog sleeps on the red sofa.",
    "Two children (a boy and a girl) are playing in the snow, aren't they?",
    "A woman in a blue dress reads the newspaper.",
    "Nobody has seen the film that he talked about.",
]
HYPOTHESES = [
    "The old man's dog is sleeping on the red sofa.",
    "Two children (a boy and a girl) play in the snow, don't they?",
    "A WOMAN in a blue dress reads a newspaper.",
    "Nobody has seen the film that he talked about.",
]


def multi_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Papineni et al. 2002, as `multi-bleu.perl -lc` computes it: clipped 1- to 4-grams, brevity penalty, no smoothing.

    An independent version, for texts whose tokens are separated by spaces.
    """
    matches, totals, lengths = Counter[int](), Counter[int](), [0, 0]
    for texts in zip(hypotheses, references, strict=True):
        hypothesis, reference = (text.lower().split() for text in texts)
        lengths = [lengths[0] + len(hypothesis), lengths[1] + len(reference)]
        for order in range(1, 5):
            grams, right = (
                Counter(tuple(side[i : i + order]) for i in range(len(side) - order + 1))
                for side in (hypothesis, reference)
            )
            matches[order] += (grams & right).total()
            totals[order] += grams.total()
    if not all(matches[order] for order in range(1, 5)):
        return 0.0
    precision = math.exp(sum(math.log(matches[order] / totals[order]) for order in range(1, 5)) / 4)
    return 100 * precision * min(1.0, math.exp(1 - lengths[1] / lengths[0]))


def test_tokenised_lower_cased_bleu_is_that_of_the_papers() -> None:
    moses = MosesTokenizer("en")
    sides = [[moses.tokenize(text, return_str=True) for text in texts] for texts in (HYPOTHESES, REFERENCES)]
    expected = multi_bleu(*sides)
    score = corpus_scores(HYPOTHESES, REFERENCES, "en").multi_bleu
    assert score is not None
    assert 40 < expected < 95
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert corpus_scores(*sides, "en", tokenized=True).multi_bleu.value == pytest.approx(expected, abs=1e-9)
    assert "case:lc" in score.signature
    assert "tok:none" in score.signature
    assert "smooth:none" in score.signature
    assert "pre:moses-en" in score.signature


def test_compound_bleu_counts_the_parts_of_a_compound_and_case() -> None:
    """Tokens of tensor2tensor's script, with a token `##AT##-##AT##` in place of a hyphen between two letters."""
    hypotheses = ["A well-known state-of-the-art model of great size.", "He is here and she is not there."]
    references = ["A well-known state-of-the-art system of great size.", "he is here and she is not there."]
    tokenised = [
        [MosesTokenizer("en").tokenize(text, return_str=True) for text in side] for side in (hypotheses, references)
    ]
    split = [[text.replace("-", " ##AT##-##AT## ") for text in side] for side in tokenised]
    # The independent version ignores case, so letters of the other case are written as other words.
    marked = [[re.sub(r"([A-Z])", r"^\1", text) for text in side] for side in split]
    expected = multi_bleu(*marked)
    score = corpus_scores(hypotheses, references, "en", metrics=["compound_bleu"]).compound_bleu
    assert score is not None and score.value == pytest.approx(expected, abs=1e-9)
    assert corpus_scores(hypotheses, references, "en").compound_bleu is None
    assert corpus_scores(*tokenised, "en", ["compound_bleu"], tokenized=True).compound_bleu.value == score.value
    assert score.signature.endswith("|pre:compounds") and "case:mixed" in score.signature
    curved = corpus_scores(
        ["He said “a well-known model” and left."], ['He said "a well-known model" and left.'], "en", ["compound_bleu"]
    )
    assert curved.compound_bleu is not None and curved.compound_bleu.value == pytest.approx(100)


def test_tokenised_bleu_is_not_smoothed() -> None:
    scores = corpus_scores(["one two three"], ["one two three"], "en")
    assert scores.multi_bleu is not None
    assert scores.multi_bleu.value == 0.0  # no 4-gram, and multi-bleu gives 0


def test_perfect_translations_score_perfectly() -> None:
    scores = corpus_scores(REFERENCES, REFERENCES, "en")
    values = {key: getattr(scores, key).value for key in METRICS}
    assert values == pytest.approx({"bleu": 100, "chrf": 100, "ter": 0, "multi_bleu": 100})
    assert scores.length_ratio == 1
    assert scores.sentences == 4


def test_only_the_metrics_that_are_asked_for() -> None:
    scores = corpus_scores(HYPOTHESES, REFERENCES, "en", metrics=["chrf"])
    assert scores.chrf is not None
    assert scores.ter is None
    assert scores.multi_bleu is None
    assert scores.bleu.value > 0


def test_case_counts_in_bleu_but_not_in_the_papers_bleu() -> None:
    lower = [text.lower() for text in REFERENCES]
    scores = corpus_scores(lower, REFERENCES, "en")
    assert scores.multi_bleu is not None
    assert scores.multi_bleu.value == pytest.approx(100)
    assert scores.bleu.value < 95
    blind = corpus_scores(lower, REFERENCES, "en", lowercase=True)
    assert blind.bleu.value == pytest.approx(100)
    assert "case:lc" in blind.bleu.signature
    assert blind.chrf is not None
    assert blind.chrf.value == pytest.approx(100)


def test_length_ratio_is_hypothesis_over_reference_tokens() -> None:
    scores = corpus_scores(["a b c d"], ["a b"], "en")
    assert scores.length_ratio == 2
    assert (scores.hypothesis_tokens, scores.reference_tokens) == (4, 2)
    assert corpus_scores([""], ["a b"], "en").length_ratio == 0


@pytest.mark.slow
def test_the_tokeniser_follows_the_language() -> None:
    scores = corpus_scores(["我喜欢读书。"], ["我喜欢看书。"], "zh")
    assert "tok:zh" in scores.bleu.signature
    assert scores.reference_tokens == 6
    for code in ("zh-CN", "zh_Hant_TW"):
        assert corpus_scores(["我喜欢读书。"], ["我喜欢看书。"], code) == scores


def test_scores_become_json_values() -> None:
    plain = corpus_scores(HYPOTHESES, REFERENCES, "en", metrics=["bleu"]).plain()
    assert plain["bleu"]["signature"].startswith("nrefs:1|")
    assert plain["ter"] is None
    assert plain["length_ratio"] == pytest.approx(plain["hypothesis_tokens"] / plain["reference_tokens"])


def test_texts_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(DataError, match="hypotheses and references are not parallel: 3 and 4 lines"):
        corpus_scores(HYPOTHESES[:3], REFERENCES, "en")
    with pytest.raises(DataError, match="no sentences"):
        corpus_scores([], [], "en")
    with pytest.raises(DataError, match="other"):
        paired_bootstrap({"first": HYPOTHESES, "other": HYPOTHESES[:3]}, REFERENCES, corpus_metrics("en"))


def test_a_missing_tokeniser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)  # as if it were not installed
    with pytest.raises(MissingPackageError, match=r"pip install 'sacrebleu\[ja\]'\. "):
        corpus_scores(["a"], ["a"], "ja")


@pytest.fixture(scope="module")
def systems() -> tuple[dict[str, list[str]], list[str]]:
    """A system, one that is clearly worse, one that is better or worse by chance, and the first again."""
    source = random.Random(7)
    words = [f"w{i}" for i in range(30)]
    references = [" ".join(source.choices(words, k=10)) for _ in range(120)]

    def spoil(count: int, seed: int) -> list[str]:
        chance = random.Random(seed)
        spoilt = [chance.sample(range(10), k=count + i % 3 - 1) for i in range(len(references))]
        return [
            " ".join("?" if i in places else word for i, word in enumerate(text.split()))
            for text, places in zip(references, spoilt, strict=True)
        ]

    first = spoil(2, 1)
    return {"first": first, "worse": spoil(3, 2), "alike": spoil(2, 3), "again": list(first)}, references


def test_paired_bootstrap_tells_difference_from_chance(systems: tuple[dict[str, list[str]], list[str]]) -> None:
    (comparison,) = paired_bootstrap(*systems, corpus_metrics("en", ["bleu"]), samples=300)
    first, worse, alike, again = comparison.systems
    assert [system.system for system in comparison.systems] == list(systems[0])
    assert first.p_value is None
    assert worse.p_value is not None
    assert worse.p_value < 0.01
    assert alike.p_value is not None
    assert alike.p_value > 0.05
    assert again.p_value == 1.0
    assert "bs:300" in comparison.signature
    assert "seed:12345" in comparison.signature


def test_paired_bootstrap_gives_the_scores_and_intervals(systems: tuple[dict[str, list[str]], list[str]]) -> None:
    outputs, references = systems
    comparisons = paired_bootstrap(outputs, references, corpus_metrics("en"), samples=100)
    assert [comparison.metric for comparison in comparisons] == list(METRICS)
    scores = corpus_scores(outputs["worse"], references, "en")
    for comparison in comparisons:
        worse = comparison.systems[1]
        assert worse.score == pytest.approx(getattr(scores, comparison.metric).value)
        assert abs(worse.mean - worse.score) < worse.half_width < 20


def test_intervals_are_sacrebleus_and_p_values_count_both_sides(
    systems: tuple[dict[str, list[str]], list[str]],
) -> None:
    """sacrebleu's p-value counts the resampled differences above their mean by more than the real one."""
    outputs, references = systems
    (comparison,) = paired_bootstrap(outputs, references, corpus_metrics("en", ["chrf"]), samples=200)
    test = PairedTest([*outputs.items()], {"chrf": CHRF()}, [references], test_type="bs", n_samples=200)
    _, table = test()
    for ours, theirs in zip(comparison.systems, table["chrF2"], strict=True):
        assert (ours.score, ours.mean) == pytest.approx((theirs.score, theirs.mean), abs=1e-4)
        assert ours.half_width == pytest.approx(theirs.ci, abs=1e-4)
    ours, theirs = comparison.systems[2], table["chrF2"][2]
    assert ours.p_value is not None
    assert ours.p_value == pytest.approx(2 * theirs.p_value, rel=0.35)
    assert ours.p_value > 1.3 * theirs.p_value


@pytest.fixture(scope="module")
def likelihoods() -> dict[str, list[Likelihood]]:
    """Systems of three runs over 400 sentences, with about one nat a piece."""
    generator = np.random.default_rng(5)
    pieces = generator.integers(3, 20, size=400)
    hard = generator.normal(1.0, 0.5, size=400)

    def run(nll: float, segmentation: str = "s") -> Likelihood:
        noise = generator.normal(0, 0.2, size=400)
        return Likelihood((-pieces * (nll - 1 + hard + noise)).tolist(), pieces.tolist(), segmentation)

    levels = {"first": 1.0, "better": 0.95, "alike": 1.0}
    found = {name: [run(level + 0.003 * seed) for seed in range(3)] for name, level in levels.items()}
    return {**found, "files": [], "other": [run(0.5, "other")]}


def test_likelihoods_are_compared_by_nats_a_piece(likelihoods: dict[str, list[Likelihood]]) -> None:
    (comparison,) = likelihood_bootstrap(likelihoods, samples=500)
    assert comparison.metric == "nll"
    assert comparison.signature == "nats a piece|teacher-forced|bs:500|seed:12345"
    assert [each.system for each in comparison.systems] == [
        "first",
        "better",
        "alike",
    ]  # the others have other pieces
    assert comparison.of("files") is comparison.of("other") is None
    first, better, alike = comparison.systems
    for result in comparison.systems:
        expected = [-sum(each.log_probabilities) / sum(each.pieces) for each in likelihoods[result.system]]
        assert result.runs == pytest.approx(expected)
        assert result.score == pytest.approx(statistics.mean(expected))
    assert better.difference is not None
    assert alike.difference is not None
    assert better.difference.value == pytest.approx(better.score - first.score)
    assert better.difference.value + better.difference.half_width < 0
    assert better.difference.p_value < 0.01
    assert alike.difference.p_value > 0.05


def test_the_interval_of_nats_is_that_of_resampled_sentences(likelihoods: dict[str, list[Likelihood]]) -> None:
    one, two = likelihoods["first"][0], likelihoods["better"][0]
    (comparison,) = likelihood_bootstrap({"one": [one], "two": [two]}, samples=200)
    generator = np.random.default_rng(12345)
    losses, pieces = -np.array(two.log_probabilities), np.array(two.pieces)
    drawn = [generator.choice(400, size=400) for _ in range(200)]
    ordered = sorted(losses[rows].sum() / pieces[rows].sum() for rows in drawn)
    result = comparison.systems[1]
    assert result.half_width == pytest.approx((ordered[-6] - ordered[5]) / 2)
    assert result.difference is None
    assert result.p_value is not None
    assert result.p_value < 0.01


def test_what_chosen_sentences_cost_more_is_compared(likelihoods: dict[str, list[Likelihood]]) -> None:
    """A system that is one nat better on every other sentence, and half a nat worse on the rest."""
    chosen = [number % 2 == 0 for number in range(400)]
    runs = likelihoods["first"]
    changed = [
        Likelihood(
            [
                value + (1.0 if mine else -0.5) * count
                for value, count, mine in zip(run.log_probabilities, run.pieces, chosen, strict=True)
            ],
            run.pieces,
            "s",
        )
        for run in runs
    ]
    (comparison,) = likelihood_bootstrap({"first": runs, "changed": changed}, 200, chosen)
    parts = [run.of(row for row in range(400) if chosen[row] == wanted) for run in runs for wanted in (True, False)]
    assert comparison.systems[0].score == pytest.approx(
        sum(a.nll - b.nll for a, b in zip(parts[::2], parts[1::2], strict=True)) / 3
    )
    difference = comparison.systems[1].difference
    assert difference is not None
    assert difference.value == pytest.approx(-1.5)
    assert difference.p_value < 0.01
    whole = parts[0].followed_by(parts[1])
    assert sorted(whole.log_probabilities) == sorted(runs[0].log_probabilities)
    assert whole.nll == pytest.approx(runs[0].nll)


def test_likelihoods_of_fewer_than_two_runs_are_not_compared(likelihoods: dict[str, list[Likelihood]]) -> None:
    only = likelihoods["other"]
    for systems in ({}, {"files": [], "other": only}, {"other": only, "first": likelihoods["first"]}):
        assert likelihood_bootstrap(systems) == []


def test_perplexity_is_finite() -> None:
    assert Likelihood([-2.0, -4.0], [2, 4], "s").perplexity == pytest.approx(math.e)
    assert Likelihood([], [], "s").perplexity == 1
    assert Likelihood([-1e6], [2], "s").perplexity < math.inf


def test_p_values_count_the_original_text_so_that_none_is_zero() -> None:
    assert two_sided(5.0, np.full(99, 5.0)) == 1 / 100  # no resampled difference is 5 away from 5
    assert two_sided(5.0, np.array([0.0, 10.0, 9.9, 0.1])) == 3 / 5  # two are, one on each side
    assert two_sided(-5.0, np.array([0.0, -10.0, -9.9, -0.1])) == 3 / 5
    assert two_sided(0.0, np.zeros(9)) == 1


def test_of_systems_that_do_not_differ_one_in_twenty_seems_to() -> None:
    generator = np.random.default_rng(3)
    by_sentence = generator.normal(size=(2000, 100))
    texts = generator.integers(100, size=(400, 100))
    p_values = np.array([two_sided(each.mean(), each[texts].mean(1)) for each in by_sentence])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p_values < level) == pytest.approx(level, abs=3 * (level * (1 - level) / 2000) ** 0.5 + 0.01)
    assert two_sided(0.0, np.zeros(9)) == 1
    assert two_sided(-1.0, np.array([-2.5, -1.0, 0.5, 0.0])) == (1 + 3) / 5


def test_a_wrong_seed_is_named(
    systems: tuple[dict[str, list[str]], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "many")
    with pytest.raises(ConfigurationError, match="SACREBLEU_SEED is 'many'"):
        paired_bootstrap(*systems, corpus_metrics("en", ["bleu"]), samples=3)
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    assert "seed:none" in paired_bootstrap(*systems, corpus_metrics("en", ["bleu"]), samples=3)[0].signature


def test_paired_bootstrap_is_deterministic(systems: tuple[dict[str, list[str]], list[str]]) -> None:
    twice = [paired_bootstrap(*systems, corpus_metrics("en", ["chrf"]), samples=50) for _ in range(2)]
    assert twice[0] == twice[1]


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(ValueError, match="meteor"):
        corpus_metrics("en", ["meteor"])


def test_one_system_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="two or more"):
        paired_bootstrap({"only": HYPOTHESES}, REFERENCES, corpus_metrics("en"))
