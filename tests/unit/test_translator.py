"""The translator: raw lines in, raw lines out, independent of other lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from jointnmt.data.batch import Batch
from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.models import AttentionMaps, build_model
from jointnmt.ops.out_of_memory import in_parts
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import SPECIAL_PIECES
from jointnmt.translator import Candidate, TranslationOptions, Translator, forced_decoding, searching
from jointnmt.translator.attention import attend
from jointnmt.translator.batching import default_cells, in_order, plan_window, windows
from jointnmt.translator.preprocessing import EncodedSentence
from jointnmt.translator.results import Counts, Translation
from support.table_model import TableModel, TableState
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, experiment, sizes, unbind, word_segmentation, write_run

LINES = [
    "der Hund sieht die Katze .",
    "",
    "die Katze",
    "der Hund hört die Katze nicht und die Katze sieht der Hund !",
    "  \t",
    "und",
    "nicht der Hund .",
    "die Katze hört",
]


@pytest.fixture(scope="module")
def segmentation() -> Segmentation:
    return word_segmentation()


@pytest.fixture
def translator(segmentation: Segmentation) -> Translator:
    return make(segmentation)


def make(segmentation: Segmentation, max_cells: int | None = None, **changes: Any) -> Translator:
    model = TableModel(segmentation.target.vocabulary_size, seed=1)
    return Translator(model, segmentation, experiment(**changes), max_cells=max_cells)


def options(**settings: Any) -> TranslationOptions:
    return TranslationOptions(**settings)


def test_lines_come_out_in_order_and_empty_ones_stay_empty(translator: Translator) -> None:
    found = list(translator.translate_stream(LINES))
    assert [each.source for each in found] == LINES
    for translation in found:
        assert (not translation.source.strip()) == (translation.candidates == ())
        assert set(translation.text.split()) <= {*TARGET_WORDS, "<unk>"}
    assert sum(bool(each.text) for each in found) > 3
    assert translator.translate(LINES) == [each.text for each in found]
    assert translator.translate([]) == []


@pytest.mark.parametrize("search", [None, SamplingConfig()])
def test_a_translation_does_not_depend_on_what_is_translated_beside_it(
    segmentation: Segmentation, search: SamplingConfig | None
) -> None:
    expected = make(segmentation).translate(LINES * 5, options(search=search))
    if search is None:
        assert expected == make(segmentation).translate(LINES) * 5
        assert expected[:8] == [make(segmentation).translate([line])[0] for line in LINES]
    for max_cells, window in [(1, 1), (1, 1024), (200, 5), (10**6, 40)]:
        assert make(segmentation, max_cells).translate(LINES * 5, options(search=search, window=window)) == expected


def test_the_first_lines_do_not_wait_for_the_last(translator: Translator) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield LINES[read % len(LINES)]

    stream = translator.translate_stream(endless())
    next(stream)
    assert read <= 16
    following = translator.translate_stream(endless(), options(window=1))
    for count in range(1, 5):
        read = 0 if count == 1 else read
        next(following)
        assert read == count


def test_what_the_model_cannot_read_is_counted(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    translator.translate([LINES[0], "漢字", f"{LINES[0]} 漢字"])
    assert "2 of 3 lines have characters or words that the model has no piece for" in caplog.text
    assert "The first: 漢字" in caplog.text
    caplog.clear()
    translator.translate(LINES[:1])
    assert "no piece" not in caplog.text


def test_candidates_say_what_search_found(translator: Translator) -> None:
    [translation] = translator.translate_stream(LINES[:1], options(num_best=3))
    assert len(translation.candidates) == 3
    assert translation.source_tokens == (*LINES[0].split(), "</s>")
    scores = [each.score for each in translation.candidates]
    assert scores == sorted(scores, reverse=True)
    for each in translation.candidates:
        assert each.text.split() == list(each.tokens[:-1])
        assert each.tokens[-1] == "</s>"
        assert len(each.token_log_probabilities) == len(each.tokens)
        assert each.log_probability == pytest.approx(sum(each.token_log_probabilities))
        assert each.score == pytest.approx(each.log_probability / len(each.tokens))
    assert translation.text == translation.candidates[0].text
    with pytest.raises(ConfigurationError, match="beam_size is 3"):
        translator.translate_stream(LINES, options(num_best=4))  # before the first is requested
    with pytest.raises(ConfigurationError, match="num_best is 0"):
        options(num_best=0)
    with pytest.raises(ConfigurationError, match="must be at most 1000000"):
        options(num_best=10**20)
    with pytest.raises(ConfigurationError, match="split is 'cut', but must be one of never, long, always"):
        options(split="cut")
    with pytest.raises(ConfigurationError, match="seed is -1"):
        options(seed=-1)


def test_an_unknown_precision_is_refused(run: Path) -> None:
    with pytest.raises(ConfigurationError, match="precision is 'float64', but must be one of auto, float32, bfloat16"):
        Translator.load(run, precision="float64")  # type: ignore[arg-type]


def test_scores_of_given_translations_are_those_of_search(translator: Translator) -> None:
    search = SearchConfig(allow_unknown=False)
    found = list(translator.translate_stream(LINES, options(search=search)))
    scored = translator.score(LINES, [each.text for each in found])
    for translation, score in zip(found, scored, strict=True):
        assert (score.source, score.target) == (translation.source, translation.text)
        if translation.candidates:
            best = translation.candidates[0]
            assert score.tokens == best.tokens
            assert score.token_log_probabilities == pytest.approx(best.token_log_probabilities, abs=1e-5)
            assert score.score == pytest.approx(best.score, abs=1e-5)
        else:
            assert (score.log_probability, score.tokens) == (0, ())
    [empty] = translator.score(["der Hund"], [""])
    assert empty.tokens == ("</s>",)
    assert empty.log_probability < 0


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_are_scored_as_search_chose_them(kind: str) -> None:
    config = SegmentationConfig.model_validate({"kind": kind, "vocabulary_size": 40, "min_frequency": 1})
    segmentation = Segmentation.train(config, [" ".join(SOURCE_WORDS)], [" ".join(TARGET_WORDS)], "de", "en")
    translator = make(segmentation)
    found = list(translator.translate_stream(LINES))
    pieces = [" ".join(each.candidates[0].tokens[:-1]) if each.candidates else "" for each in found]
    scored = list(translator.score_stream(LINES, pieces, pieces=True))
    for translation, score in zip(found, scored, strict=True):
        expected = translation.candidates[0].token_log_probabilities if translation.candidates else ()
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
    as_text = translator.score(LINES, [each.text for each in found])
    assert any(len(text.tokens) != len(score.tokens) for text, score in zip(as_text, scored, strict=True))
    with pytest.raises(DataError, match=r"^input:1: the target holds 'zzz', which is not a piece"):
        list(translator.score_stream(["und"], ["zzz"], pieces=True))
    marked = [" ".join(each.candidates[0].tokens) if each.candidates else "" for each in found]
    of_marked = translator.score_stream(LINES, marked, pieces=True)  # the end mark may also be given
    assert [each.log_probability for each in of_marked] == [each.log_probability for each in scored]
    with pytest.raises(DataError, match="'</s>', which is not a piece"):
        list(translator.score_stream(["und"], ["</s> </s>"], pieces=True))


def test_words_spelt_like_special_pieces_are_scored_as_search_chose_them() -> None:
    config = SegmentationConfig.model_validate({"kind": "word", "min_frequency": 1, "joint": False})
    words = [*TARGET_WORDS, *SPECIAL_PIECES]
    segmentation = Segmentation.train(config, [" ".join(SOURCE_WORDS)], [" ".join(words)], "de", "en")
    translator = make(segmentation)
    found = translator.translations(LINES, sample=True, seed=1, num_best=9)
    pairs = [(each.source, candidate) for each in found for candidate in each.candidates]
    assert {token for _, each in pairs for token in each.tokens} > {"</s>", "<s>▁", "</s>▁", "<unk>", "<unk>▁"}
    sources, pieces = zip(*((source, " ".join(each.tokens)) for source, each in pairs), strict=True)
    for (_, each), scored in zip(pairs, translator.score_stream(sources, pieces, pieces=True), strict=True):
        assert scored.tokens == each.tokens
        assert scored.token_log_probabilities == pytest.approx(each.token_log_probabilities, abs=1e-5)


def test_what_cannot_be_scored_is_an_error_that_names_the_line(translator: Translator) -> None:
    with pytest.raises(DataError, match=r"^input:2: an empty line cannot have a target"):
        translator.score(["der Hund", ""], ["the dog", "cat"])
    with pytest.raises(DataError, match="more lines than targets, which end after 1"):
        translator.score(["der Hund", "die Katze"], ["the dog"])
    with pytest.raises(DataError, match="more targets than lines, which end after 0"):
        translator.score([], ["the dog"])


def test_alignments_have_a_row_for_each_target_token(translator: Translator) -> None:
    for translation in translator.translate_stream(LINES, options(num_best=2, alignments=True)):
        for each in translation.candidates:
            assert each.alignment is not None
            assert each.alignment.shape == (len(each.tokens), len(translation.source_tokens))
            assert np.allclose(each.alignment.sum(1), 1)


@pytest.mark.parametrize("reduction", ["attention", "max", "mean"])
def test_alignments_are_those_of_the_model(
    segmentation: Segmentation, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed without storing the attention of the layers."""
    recorded: list[AttentionMaps] = []
    monkeypatch.setattr(
        forced_decoding, "AttentionMaps", lambda **named: recorded.append(AttentionMaps(**named)) or recorded[-1]
    )
    configuration = experiment(model={"reduction": reduction})
    model = build_model(configuration.model, *sizes(segmentation))
    translator = Translator(model, segmentation, configuration)
    for translation in translator.translate_stream(LINES, options(num_best=2, alignments=True)):
        source = segmentation.source.encode_ids(translation.source)
        for each in translation.candidates:
            maps = AttentionMaps()
            batch = Batch.collate([source], [segmentation.target.encode_ids(each.text)])
            model(batch.source, batch.target_input, maps)
            assert each.alignment is not None
            assert maps.alignment is not None
            assert np.allclose(each.alignment, maps.alignment[0].detach().numpy(), atol=1e-6)
            assert maps.prenet and maps.source and maps.target
    assert recorded and not any(each.prenet or each.source or each.target for each in recorded)


def score_of(candidates: Sequence[Candidate]) -> float:
    """Score of translations of consecutive sentences, with length penalty 1."""
    return sum(each.log_probability for each in candidates) / sum(len(each.tokens) for each in candidates)


def test_translations_of_a_split_line_are_in_the_order_of_their_scores(
    segmentation: Segmentation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translations of its sentences are joined by rank, and the best ones may have the lower score together; samples
    keep their order."""

    def candidate(text: str, mean: float, length: int, complete: bool = True) -> Candidate:
        return Candidate(text, ("x",) * length, (mean,) * length, mean, complete)

    second = candidate("c", -0.1, 1), candidate("d", -0.2, 10, complete=False)
    found = [candidate("a", -2.0, 10), candidate("b", -2.1, 1)], [*second]
    monkeypatch.setattr(searching, "translate_sentences", lambda *_: iter(found))
    translator = make(segmentation, model={"max_length": 6})
    for search, expected in ((SearchConfig(), ["b d", "a c"]), (SamplingConfig(), ["a c", "b d"])):
        split = options(split="long", num_best=2, search=search)
        [line] = translator.translate_stream(["Hund sieht Katze . Katze hört Hund ."], split)
        assert [each.text for each in line.candidates] == expected
        assert [each.complete for each in line.candidates] == [text == "a c" for text in expected], (
            "cut in any sentence"
        )


def test_a_line_beyond_the_models_limit_is_an_error_or_split_but_never_cut(segmentation: Segmentation) -> None:
    translator = make(segmentation, model={"max_length": 6})
    sentences = ["Hund sieht Katze .", "Katze !", "Katze hört Hund nicht ."]
    lines = ["die Katze", " ".join(sentences), "der Hund sieht die Katze"]
    with pytest.raises(DataError, match=r"^input:2: a sentence has 12 tokens.*at most 6"):
        translator.translate(lines)
    assert translator.translate([lines[2]])[0], "as long as the limit, end mark counted"
    split = options(split="long", num_best=2, alignments=True)
    found = list(translator.translate_stream(lines, split))[1]
    parts = list(translator.translate_stream(sentences, split))
    assert found.source_tokens == tuple(token for part in parts for token in part.source_tokens)
    joined = [[part.candidates[number] for part in parts] for number in (0, 1)]
    joined.sort(key=lambda each: -score_of(each))
    assert [each.score for each in found.candidates] == pytest.approx([score_of(each) for each in joined])
    for candidate, each in zip(found.candidates, joined, strict=True):
        assert candidate.text == " ".join(one.text for one in each if one.text)
        assert candidate.log_probability == pytest.approx(sum(one.log_probability for one in each))
        assert candidate.score == pytest.approx(candidate.log_probability / len(candidate.tokens))
        assert candidate.alignment is not None
        assert candidate.alignment.shape == (len(candidate.tokens), len(found.source_tokens))
        assert np.allclose(candidate.alignment.sum(1), 1)
        assert not candidate.alignment[: len(each[0].tokens), len(parts[0].source_tokens) :].any()
    with pytest.raises(DataError, match=r"^input:1: a sentence has 8 tokens.*no end of a sentence"):
        translator.translate(["und und und und und und . Hund"], options(split="long"))
    with pytest.raises(DataError, match=r"^lines\.txt:1: a sentence has 12 tokens.*\. Split it\.$"):
        next(translator.score_stream([lines[1]], ["the dog"], "lines.txt"))


def test_prefixes_begin_the_translations(segmentation: Segmentation) -> None:
    translator = make(segmentation, model={"max_length": 6})
    prefixes = ["not the", "", "cat"]
    found = translator.translate(["die Katze", "", "und"], prefixes=prefixes)
    assert found[0].startswith("not the ")
    assert found[1] == ""
    assert found[2].startswith("cat")
    with pytest.raises(DataError, match=r"^input:2: an empty line cannot have"):
        translator.translate(["die Katze", ""], prefixes=["", "the"])
    with pytest.raises(DataError, match=r"^input:1: a line of several sentences cannot have"):
        translator.translate(["Hund sieht Katze . Katze hört Hund ."], options(split="long"), prefixes=["the"])
    with pytest.raises(DataError, match=r"^input:2: the target prefix has 9 pieces, .* at most 5 tokens"):
        translator.translate(["und", "und"], prefixes=["", "the " * 9])
    with pytest.raises(DataError, match=r"^input:2: the target prefix holds .* no piece for"):
        translator.translate(["und", "und"], prefixes=["", "the zebra"])
    with pytest.raises(DataError, match="more lines than target prefixes"):
        translator.translate(["und", "und"], prefixes=[""])


def test_a_single_text_is_not_taken_for_a_list(translator: Translator) -> None:
    assert translator.translate("die Katze") == translator.translate(["die Katze"])[0]
    with pytest.raises(TypeError, match="a list of texts"):
        translator.translations("die Katze")
    with pytest.raises(TypeError, match="a list of texts"):
        translator.score(["die Katze"], "the cat")
    with pytest.raises(TypeError, match="a list of prefixes"):
        translator.translate(["die Katze", "der Hund"], prefixes="th")
    with pytest.raises(TypeError, match="a list of texts"):
        list(translator.align_stream("ab", "cd"))
    with pytest.raises(TypeError, match="text 2 is None, but must be a str"):
        translator.translate(["die Katze", None])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample": "no"}, "sample is 'no', but must be True or False"),
        ({"sample": True, "seed": 1.5}, "seed is 1.5, but must be an integer"),
        ({"num_best": 2.0}, "num_best is 2.0, but must be an integer"),
        ({"alignments": "yes"}, "alignments is 'yes', but must be True or False"),
        ({"limits": {"beam_size": 3}}, "limits is .*, but must be TextLimits"),
        ({"search": {"beam_size": 3}}, "search is .*, but must be a SearchConfig or a SamplingConfig"),
        ({"options": {"beam_size": 3}}, "must be TranslationOptions; single ones are keywords"),
    ],
)
def test_an_option_of_another_type_is_named(translator: Translator, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        translator.translate(["die Katze"], **changes)


def test_a_seed_is_for_sampling(translator: Translator) -> None:
    with pytest.raises(ConfigurationError, match="seed is for sampling"):
        translator.translate(["die Katze"], seed=1)


def test_a_split_that_cannot_happen_is_reported(segmentation: Segmentation, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make(segmentation).translate(["die Katze"], options(split="long", search=SearchConfig(max_length_offset=50)))
    assert "splits nothing: this model takes lines of any length" in caplog.text
    caplog.clear()
    limited = make(segmentation, model={"max_length": 9})
    with caplog.at_level(logging.WARNING):
        limited.translate(["die Katze"], options(split="long", search=SearchConfig(max_length_offset=50)))
    assert not caplog.text


def test_translations_ended_by_the_limit_are_reported(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    short = SearchConfig(beam_size=1, max_length_factor=0, max_length_offset=1)
    with caplog.at_level(logging.WARNING):
        found = list(translator.translate_stream(LINES, options(search=short)))
    assert "6 of 8 translations reached the maximum length" in caplog.text
    assert [each.candidates[0].complete for each in found if each.candidates] == [False] * 6
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        translator.translate(["die Katze"], options(search=SearchConfig(max_length_offset=50)))
    assert not caplog.text


@pytest.mark.parametrize("cells", [0, -5, 2 * 10**9])
def test_a_batch_has_a_cell_at_least(translator: Translator, cells: int) -> None:
    with pytest.raises(ConfigurationError, match=f"max_cells is {cells}, but must be from 1 to"):
        Translator(translator.trained, translator.segmentation, translator.experiment, max_cells=cells)


@pytest.mark.parametrize("cells", [1.5, "10", True])
def test_cells_are_counted_by_an_integer(translator: Translator, cells: Any) -> None:
    with pytest.raises(TypeError, match=f"max_cells is {cells!r}, but must be an integer"):
        Translator(translator.trained, translator.segmentation, translator.experiment, max_cells=cells)


def test_alternatives_are_not_fewer_than_none(translator: Translator) -> None:
    with pytest.raises(ConfigurationError, match="alternatives is -1"):
        translator.score_stream(["die Katze"], ["the cat"], alternatives=-1)


def test_mostly_empty_translations_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    nothing, something = (Candidate(text, (), (), 0.0, complete=True) for text in ("", "a word"))
    for empty, of, warns in ((2, 3, True), (2, 4, False), (0, 0, False)):
        caplog.clear()
        counts = Counts()
        for number in range(of):
            counts.add(Translation("text", candidates=(nothing if number < empty else something,)))
        counts.add(Translation(""))  # the translation of an empty line is empty
        counts.warn()
        assert (f"{empty} of {of} translations are empty" in caplog.text) is warns


def test_of_a_length_limit_that_leaves_nothing_only_the_limit_is_blamed(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    shortest = SearchConfig(max_length_factor=0, max_length_offset=0)
    translator.translate(["die Katze", "der Hund"], options(search=shortest))
    assert "2 of 2 translations reached the maximum length" in caplog.text and "are empty" not in caplog.text


def test_samples_follow_the_seed(translator: Translator) -> None:
    def draw(seed: int) -> list[str]:
        wanted = options(search=SamplingConfig(), seed=seed, num_best=5)
        return [each.text for line in translator.translate_stream(LINES, wanted) for each in line.candidates]

    assert draw(0) == draw(0) != draw(1)
    assert len(draw(0)) == 5 * 6
    assert len(set(draw(0))) > 6


class LittleMemory(TableModel):
    """A model with memory for two sentences at once."""

    def start(self, source: Tensor) -> TableState:
        if len(source) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return super().start(source)


class NoMemory(TableModel):
    def start(self, source: Tensor) -> TableState:
        raise torch.OutOfMemoryError


def test_a_batch_that_does_not_fit_in_memory_is_halved(segmentation: Segmentation) -> None:
    size = segmentation.target.vocabulary_size
    expected = make(segmentation).translate(LINES)
    assert Translator(LittleMemory(size, seed=1), segmentation, experiment()).translate(LINES) == expected
    with pytest.raises(DataError, match=r"^input:\d: this sentence does not fit in memory"):
        Translator(NoMemory(size), segmentation, experiment()).translate(LINES)


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    def fail(parts: object) -> list[int]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_parts([EncodedSentence("input:1", (1, 0), (2,), ())], fail, lambda part: DataError(part.origin))


def test_batches_are_larger_for_a_transformer_on_a_cpu_unless_told_otherwise(segmentation: Segmentation) -> None:
    transformer = {"family": "transformer"}
    assert make(segmentation, model=transformer).max_cells == 200_000
    assert make(segmentation, max_cells=7, model=transformer).max_cells == 7
    assert make(segmentation).max_cells == 50_000
    assert default_cells("cuda", is_grid=False) == default_cells("cuda", is_grid=True) == 1_000_000


def test_batches_are_bounded_and_results_come_back_in_order() -> None:
    source, target = [3, 9, 4, 4, 30, 9], [3, 9, 4, 4, 30, 9]
    batches = plan_window(source, target, max_cells=200, max_tokens=100)
    assert sorted(number for batch in batches for number in batch) == list(range(6))
    assert batches[0][0] == 0 or 0 in batches[0]
    assert [4] in batches, "a sentence that is too large for all limits is a batch of its own"
    small = plan_window(source[:4], target[:4], max_cells=100, max_tokens=100)
    assert all(max(source[n] for n in batch) * max(target[n] for n in batch) * len(batch) <= 100 for batch in small)
    assert list(in_order(batches, lambda batch: [10 * number for number in batch])) == [0, 10, 20, 30, 40, 50]
    assert [len(window) for window in windows(range(100), 32)] == [16, 32, 32, 20]
    assert [len(window) for window in windows(range(3), 1)] == [1, 1, 1]
    assert plan_window([], [], 10, 10) == []


def test_joining_one_sentence_changes_nothing() -> None:
    candidate = Candidate("a", ("a", "</s>"), (-1.0, -0.5), -0.75, complete=True)
    assert Candidate.joined([candidate], " ", 1.0) is candidate


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def test_loads_the_weights_of_a_run_and_leaves_the_random_state_alone(run: Path) -> None:
    before = torch.get_rng_state()
    translator = Translator.load(run, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert not translator.model.training
    assert translator.translate(LINES) == Translator.load(str(run), device="cpu").translate(LINES)
    half = Translator.load(run, device="cpu", precision="bfloat16")
    assert len(half.translate(LINES)) == len(LINES)
    exact, rounded = (each.score(LINES[:1], ["the dog"])[0] for each in (translator, half))
    assert exact.log_probability == pytest.approx(rounded.log_probability, abs=0.1)
    assert exact.log_probability != rounded.log_probability


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8"])
def test_attention_is_read_in_float32_whatever_the_translator_computes_in(run: Path, precision: Any) -> None:
    exact, rounded = (
        attend(Translator.load(run, device="cpu", precision=each), LINES[0], "the dog").attn_weights
        for each in ("float32", precision)
    )
    assert exact.alignment is not None
    assert rounded.alignment is not None
    assert torch.equal(exact.alignment, rounded.alignment)


def test_a_run_that_is_not_whole_is_a_model_error_that_names_the_file(run: Path) -> None:
    with pytest.raises(ModelError, match="no trained model here"):
        Translator.load(run / "nowhere")
    weights = run / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        Translator.load(run)
    weights.unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: is missing"):
        Translator.load(run)
    weights.write_bytes(content)
    (run / "experiment.yaml").write_text("name: [")
    with pytest.raises(ModelError, match=r"experiment\.yaml"):
        Translator.load(run)


def test_weights_of_another_model_are_refused(run: Path) -> None:
    """Even if they do not record which parts they belong to, as in older versions."""
    unbind(run)
    text = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(text.replace("ffn_dim: 8", "ffn_dim: 10"))
    with pytest.raises(ModelError, match=r"model\.safetensors: .*is \(8,\) instead of \(10,\)"):
        Translator.load(run, device="cpu")
    (run / "experiment.yaml").write_text(text.replace("num_layers: 1", "num_layers: 2"))
    with pytest.raises(ModelError, match="is missing instead of"):
        Translator.load(run, device="cpu")


def test_a_device_that_is_not_there_is_a_configuration_error(run: Path) -> None:
    for place in ("nonsense", "meta"):
        with pytest.raises(ConfigurationError, match=f"'{place}'"):
            Translator.load(run, device=place)
    with pytest.raises(ConfigurationError, match="'xla'") as caught:
        Translator.load(run, device="xla")
    assert len(str(caught.value)) < 200  # PyTorch names all that it can compute on
    if not torch.cuda.is_available():
        with pytest.raises(ConfigurationError, match="'cuda'"):
            Translator.load(run, device="cuda")


def test_lines_of_several_sentences_are_reported_if_there_are_many(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    for split, few, reported in (("never", 8, True), ("never", 9, False), ("always", 8, False), ("long", 8, True)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            translator.translate(["Hund sieht . Katze hört .", *["die Katze"] * few], options(split=split))
        assert ("1 of 9 lines hold several sentences" in caplog.text) == reported
