"""Inspecting models: inspections of every family against the model itself, next words, comparisons."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jointnmt.analysis.inspection import GRID, Inspection, inspect_pair
from jointnmt.analysis.states import hidden_states
from jointnmt.data.batch import Batch
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.models.gates import gate_means
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.search.rules import target_limit
from jointnmt.translator import TranslationOptions, Translator, attend
from jointnmt.translator.comparison import compare
from jointnmt.translator.exploration import next_words, trace_search
from support.serving import write_model
from support.tiny_run import experiment, write_run_of

SOURCE, TARGET = "der Hund sieht die Katze .", "the dog sees the cat"
S, T = 7, 6
FUSION = {"kind": "fusion", "places": ["source", "target"]}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer", "encoder_layers": 2},
    "shortcuts": {"family": "transformer", "shortcuts": {}},
    "base": {"family": "reformer-base", "num_layers": 3},
    "fast": {"family": "reformer-fast", "num_layers": 2, "prenet_layers": 2},
    "fusion": {"family": "reformer-fast", "num_layers": 2, "shortcuts": FUSION},
}


def translator_of(folder: Path, changes: dict[str, Any]) -> Translator:
    """A random model."""
    model = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8, **changes}
    values = experiment().plain() | {"model": model}
    return Translator.load(write_run_of(folder / "run", Experiment.parse(values, "test")), "cpu")


@pytest.fixture(scope="module", params=MODELS)
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return translator_of(tmp_path_factory.mktemp(request.param), MODELS[request.param])


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect_pair(translator, SOURCE, TARGET)


def test_attention_is_that_of_the_maps(translator: Translator, inspection: Inspection) -> None:
    maps = attend(translator, SOURCE, TARGET).attn_weights
    for name in ("encoder", "decoder", "cross", "prenet", *GRID):
        layers = getattr(maps, name)
        assert (name in inspection.attention) == bool(layers)
        if layers:
            assert np.array_equal(inspection.attention[name], torch.cat(layers).numpy())
    assert maps.alignment is not None
    assert np.array_equal(inspection.alignment, maps.alignment[0].numpy())


def test_entropies_are_of_the_rows(inspection: Inspection) -> None:
    places = {"encoder": (S,), "prenet": (S,), "decoder": (T,), "cross": (T,), "source": (S, T), "target": (S, T)}
    for name, maps in inspection.attention.items():
        assert inspection.entropy[name].shape == (*maps.shape[:2], *places[name])
        for layer, head in np.ndindex(maps.shape[:2]):
            for place in np.ndindex(places[name]):
                row = maps[layer, head][place[::-1] if name == "source" else place]
                row = row[row > 0]
                expected = -(row * np.log(row)).sum()
                assert inspection.entropy[name][(layer, head, *place)] == pytest.approx(expected, abs=1e-5)


def test_states_are_those_between_the_layers(translator: Translator, inspection: Inspection) -> None:
    """States of the model's layers, called one by one where that is easy, and by `hidden_states` elsewhere."""
    model = translator.trained
    assert list(inspection.states) == list(model.stacks())
    for name, (layers, _) in model.stacks().items():
        places = {"grid": (S, T), "decoder": (T,)}.get(name, (S,))
        found = inspection.states[name]
        assert found.norm.shape == (len(layers) + 1, *places) and found.change.shape == (len(layers), *places)
        # A triangle has no side longer than the two others together.
        assert (abs(np.diff(found.norm, axis=0)) <= found.change + 1e-4).all()
        assert (found.change <= found.norm[1:] + found.norm[:-1] + 1e-4).all() and (found.change > 0).all()
    segmentation = translator.segmentation
    ids = segmentation.source.encode_ids(SOURCE), segmentation.target.encode_ids(TARGET)
    batch = Batch.collate([ids[0]], [ids[1]])
    embedded = model.source_embedding(batch.source).detach(), model.target_embedding(batch.target_input).detach()
    if inspection.is_grid:
        side = model.encode(batch.source).detach()
        grid = side[0, :, None] + embedded[1][0, None]  # Eq. 4
        assert inspection.states["grid"].norm[0] == pytest.approx(grid.norm(dim=-1).numpy(), rel=1e-5)
    else:
        for name, values in zip(("encoder", "decoder"), embedded, strict=True):
            assert inspection.states[name].norm[0] == pytest.approx(values[0].norm(dim=-1).numpy(), rel=1e-5)
    for state, values in hidden_states(model, batch).items():  # for a last layer, after the final norm
        if state.stack in ("encoder", "prenet") and int(state.layer) < len(model.stacks()[state.stack].layers):
            norms = inspection.states[state.stack].norm[int(state.layer)][:-1]  # the end mark is no piece
            assert norms == pytest.approx(values.norm(dim=-1).numpy(), rel=1e-5)


def test_the_last_state_of_a_grid_is_what_the_reduction_reads(tmp_path: Path) -> None:
    translator = translator_of(tmp_path, MODELS["base"])
    seen: list[torch.Tensor] = []
    hook = translator.trained.reduction.register_forward_pre_hook(
        lambda _, arguments: seen.append(arguments[0].clone())
    )
    found = inspect_pair(translator, SOURCE, TARGET)
    hook.remove()
    assert found.states["grid"].norm[-1] == pytest.approx(seen[-1][0].norm(dim=-1).numpy(), rel=1e-5)


def test_changes_are_the_differences_between_layers(translator: Translator) -> None:
    for name, (layers, _) in translator.trained.stacks().items():
        states: list[np.ndarray] = []

        def keep(x: torch.Tensor, to: list[np.ndarray] = states) -> None:
            to.append(x[0].detach().numpy().copy())

        hooks = [layers[0].register_forward_pre_hook(lambda _, x, keep=keep: keep(x[0]))]
        hooks += [layer.register_forward_hook(lambda _, __, x, keep=keep: keep(x)) for layer in layers]
        found = inspect_pair(translator, SOURCE, TARGET).states[name]
        for hook in hooks:
            hook.remove()
        expected = [np.sqrt(((after - before) ** 2).sum(-1)) for before, after in pairwise(states)]
        assert len(states) == len(layers) + 1
        assert found.change == pytest.approx(np.stack(expected), rel=1e-4)


def test_a_layer_that_is_applied_twice_is_measured_at_each_call(tmp_path: Path) -> None:
    translator = translator_of(tmp_path, {**MODELS["base"], "num_layers": 2})
    layers = translator.trained.layers
    layers[1] = copy.deepcopy(layers[0])
    expected = inspect_pair(translator, SOURCE, TARGET).states["grid"]
    layers[1] = layers[0]
    found = inspect_pair(translator, SOURCE, TARGET).states["grid"]
    assert found.norm.shape == (3, S, T) and found.change.shape == (2, S, T)
    assert found.norm == pytest.approx(expected.norm, rel=1e-5)


def test_log_probabilities_are_those_of_scoring(translator: Translator, inspection: Inspection) -> None:
    [scored] = translator.score([SOURCE], [TARGET])
    assert inspection.token_log_probabilities == pytest.approx(scored.token_log_probabilities, abs=1e-5)
    assert inspection.target_predicted == scored.tokens
    assert inspection.target_read == ("<s>", *scored.tokens[:-1])
    assert (len(inspection.source_tokens), len(inspection.target_read)) == (S, T)


def test_gates_are_those_of_the_maps_by_place(translator: Translator, inspection: Inspection) -> None:
    maps = attend(translator, SOURCE, TARGET).attn_weights
    assert bool(inspection.gates) == translator.trained.has_shortcuts
    means = gate_means(maps, torch.ones(1, S, dtype=torch.bool), torch.ones(1, T, dtype=torch.bool))
    assert list(inspection.gates) == list(means)
    for place, layers in means.items():
        gates = inspection.gates[place]
        assert gates.shape[1:] == {"decoder": (T, 2), "source": (S, T, 2), "target": (S, T, 2)}.get(place, (S, 2))
        over = tuple(range(1, gates.ndim - 1))
        assert gates.mean(over) == pytest.approx(torch.cat(layers).numpy(), abs=1e-6)


def test_a_cell_is_a_part_of_the_inspection(inspection: Inspection) -> None:
    source, target = 2, 4
    cell = inspection.cell(source, target)
    assert cell.alignment == inspection.alignment[target, source]
    for name, maps in inspection.attention.items():
        place = {"source": (target, source), "target": (source, target), "decoder": (target,), "cross": (target,)}
        row = maps[(slice(None), slice(None), *place.get(name, (source,)))]
        assert np.array_equal(cell.attention[name], row)
        entropies = torch.special.entr(torch.from_numpy(row.copy())).sum(-1).numpy()
        assert cell.entropy[name] == pytest.approx(entropies, abs=1e-5)
    for name, stream in inspection.states.items():
        place = {"grid": (source, target), "decoder": (target,)}.get(name, (source,))
        assert np.array_equal(cell.states[name].norm, stream.norm[(slice(None), *place)])
        assert np.array_equal(cell.states[name].change, stream.change[(slice(None), *place)])
    for name, gates in inspection.gates.items():
        place = {"source": (source, target), "target": (source, target), "decoder": (target,)}.get(name, (source,))
        assert np.array_equal(cell.gates[name], gates[(slice(None), *place)])
    for wrong in ((-1, 0), (S, 0), (0, -1), (0, T)):
        with pytest.raises(DataError, match="There is no"):
            inspection.cell(*wrong)


def test_without_a_translation_the_models_own_is_looked_into(translator: Translator) -> None:
    [own] = translator.translate_stream([SOURCE])
    found = inspect_pair(translator, SOURCE)
    assert found.translation == own.text
    assert found.target_predicted == own.candidates[0].tokens
    assert found.token_log_probabilities == pytest.approx(own.candidates[0].token_log_probabilities, abs=1e-4)


def test_of_a_long_translation_the_first_positions_are_as_in_the_whole(translator: Translator) -> None:
    target = f"{TARGET} the cat sees the dog"
    whole, found = inspect_pair(translator, SOURCE, target), inspect_pair(translator, SOURCE, target, most_tokens=S)
    assert (whole.left_out, found.left_out, len(whole.target_read)) == (0, 4, S + 4)
    assert found.translation == target
    for name in ("target_read", "target_predicted", "token_log_probabilities"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name)[:S])
    assert found.alignment == pytest.approx(whole.alignment[:S], abs=1e-6)
    for position in (0, S - 1):
        ours, theirs = (each.cell(2, position) for each in (found, whole))
        for name, rows in ours.attention.items():
            assert rows == pytest.approx(theirs.attention[name][..., : rows.shape[-1]], abs=1e-6)
        for name, values in ours.entropy.items():
            assert values == pytest.approx(theirs.entropy[name], abs=1e-5)
        for name, stream in ours.states.items():
            assert stream.norm == pytest.approx(theirs.states[name].norm, rel=1e-5)


def test_what_is_too_long_or_empty_is_refused(translator: Translator) -> None:
    assert inspect_pair(translator, SOURCE, "").target_predicted == ("</s>",)
    assert inspect_pair(translator, SOURCE, TARGET, most_tokens=S).left_out == 0
    for target in (None, TARGET):
        with pytest.raises(DataError, match=rf"more than {S - 1} tokens \({S}\)"):
            inspect_pair(translator, SOURCE, target, S - 1)
    for source in ("", "  "):
        with pytest.raises(DataError, match="empty"):
            inspect_pair(translator, source, TARGET)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """Its pieces are parts of words."""
    run = write_model(tmp_path_factory.mktemp("letters") / "run", segmentation={"kind": "bpe", "joint": False})
    return Translator.load(run, "cpu")


def test_the_models_own_translation_is_read_as_the_pieces_that_were_found(letters: Translator) -> None:
    """They differ from the pieces that its text is segmented into."""
    found = letters.translations([SOURCE])[0].candidates[0]
    assert letters.segmentation.target.encode(found.text) != list(found.tokens[:-1])
    trace = attend(letters, SOURCE)
    assert (*trace.target_pieces, "</s>") == found.tokens
    assert trace.translation == found.text
    assert inspect_pair(letters, SOURCE).target_predicted == found.tokens
    assert attend(letters, SOURCE, found.text).target_pieces == list(letters.segmentation.target.encode(found.text))


@pytest.mark.parametrize("prefix", ["", "the", "the dog s"])
def test_next_words_begin_new_words_and_go_on_to_translations(letters: Translator, prefix: str) -> None:
    found = next_words(letters, SOURCE, prefix, 6, alignments=True)
    assert len(found.words) > 1
    assert len({each.word for each in found.words}) == len(found.words)
    values = [each.log_probability for each in found.words]
    assert values == sorted(values, reverse=True)
    given = len(letters.segmentation.target.encode(prefix))
    for each in found.words:
        assert each.prefix.replace(" ", "") == (prefix + each.word).replace(" ", "")
        assert each.candidate.text.startswith(each.prefix)
        pieces = " ".join(each.candidate.tokens[:-1])
        [scored] = letters.score_stream(
            [SOURCE], [pieces], pieces=True, alternatives=letters.segmentation.target.vocabulary_size
        )
        assert each.candidate.token_log_probabilities == pytest.approx(scored.token_log_probabilities, abs=1e-4)
        assert each.log_probability == pytest.approx(scored.token_log_probabilities[given], abs=1e-4)
        assert each.candidate.score == pytest.approx(scored.score, abs=1e-4)
        assert each.candidate.alignment is not None and len(each.candidate.alignment) == len(each.candidate.tokens)


@pytest.fixture(scope="module")
def shipped() -> Translator:
    return Translator.load(Path(__file__).parents[2] / "pretrained" / "tatoeba-de-en-transformer", "cpu")


@pytest.mark.parametrize(
    ("source", "prefix", "likeliest", "others"),
    [
        ("Tom sagte: „Ja.“", "Tom said,", '"', {"but"}),  # not the end, though its first piece is a mere space
        ("Tom sagte: „Ja.“", 'Tom said, "', "Yes", {"So"}),  # no space precedes it
        ("Ich weiß es nicht.", "I don'", "t", {""}),
        ("Sie ist fünfundzwanzig.", "She is twenty-", "five", {"seven"}),
        ("Ich habe Hunger.", "I'm hungry.", "", {"I"}),
        ("Ich habe Hunger.", "I'm hung", ".", {"up"}),  # the word is finished: not "hungry"
        ("Tom sagte: „Ja.“", 'Tom said, "Yes.', '"', {"", "Tom"}),
    ],
)
def test_next_words_are_those_of_the_language(
    shipped: Translator, source: str, prefix: str, likeliest: str, others: set[str]
) -> None:
    words = [each.word for each in next_words(shipped, source, prefix, 9).words]
    assert words[0] == likeliest and others <= set(words) and 7 <= len(words) <= 9


def test_next_words_are_no_marks_however_likely(letters: Translator) -> None:
    words = next_words(letters, SOURCE, "", 64).words
    assert words
    assert not {"<s>", "<pad>", "<unk>"} & {each.candidate.tokens[0] for each in words}


def test_next_words_keep_the_limits(letters: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="count should be 1 or more"):
        next_words(letters, SOURCE, "", 0)
    with pytest.raises(DataError, match="no piece"):
        next_words(letters, SOURCE, "ж")
    with pytest.raises(DataError, match="prefix has"):
        next_words(letters, "der", "the dog sees the cat and the dog hears the cat")
    assert next_words(letters, SOURCE, "the", 1).words[0].candidate.alignment is None
    limit = target_limit(len(letters.segmentation.source.encode("der")) + 1, letters.experiment.search)
    given = letters.segmentation.target.encode_ids("the dog sees the cat and the dog hears the cat")
    last = letters.segmentation.target.decode_ids(given[: limit - 1])
    assert len(letters.segmentation.target.encode_ids(last)) == limit - 1
    monkeypatch.setattr("jointnmt.translator.exploration.POOL", 1)  # the end mark is not among the likeliest pieces
    (end,) = next_words(letters, "der", last, 5).words
    assert (end.word, end.candidate.text, end.candidate.complete) == ("", last, False), "room for the end alone"
    assert end.log_probability == letters.score(["der"], [last])[0].token_log_probabilities[-1]


def test_pieces_that_might_stand_beside_the_given_ones(letters: Translator) -> None:
    passes: list[bool] = []
    with letters.only_model().register_forward_hook(lambda *_: passes.append(True)):
        [scored] = letters.score_stream([SOURCE], [TARGET], alternatives=letters.segmentation.target.vocabulary_size)
    assert len(passes) == 1
    [plain] = letters.score([SOURCE], [TARGET])
    assert plain.alternatives == () and "alternatives" not in plain.plain()
    for token, value, first, choices in zip(
        scored.tokens, scored.token_log_probabilities, scored.first_choices, scored.alternatives, strict=True
    ):
        assert dict(choices)[token] == pytest.approx(value, abs=1e-5)
        assert first == (choices[0].piece == token)
        assert sum(np.exp(choice.log_probability) for choice in choices) < 1 + 1e-4


def test_a_traced_search_is_that_of_the_translator(translator: Translator) -> None:
    options = TranslationOptions(num_best=3)
    [own] = translator.translate_stream([SOURCE], options)
    with pytest.raises(ConfigurationError, match="Only beam search can be recorded"):
        trace_search(translator, SOURCE, search=SamplingConfig())  # type: ignore[arg-type]
    found = trace_search(translator, SOURCE)
    assert found.translations == tuple(each.text for each in own.candidates)
    assert found.source_tokens == own.source_tokens
    values = found.plain()
    for number, candidate in zip(values["finished"], own.candidates, strict=True):
        node, pieces = values["nodes"][number], []
        assert (node["id"], node["fate"]) == (number, "finished")
        assert node["score"] == pytest.approx(candidate.score, abs=1e-5)
        while node["parent"] is not None:
            pieces.append(node["piece"])
            node = values["nodes"][node["parent"]]
        assert tuple(pieces[::-1]) == candidate.tokens
    wide = trace_search(translator, SOURCE, "the dog", SearchConfig(beam_size=4), most_pruned=0)
    assert not [node for node in wide.tree.nodes if node.fate == "pruned"]
    assert all(text.startswith("the dog") for text in wide.translations)


def test_models_score_each_others_translations(tmp_path: Path) -> None:
    for name in ("base", "fast"):
        (tmp_path / name).mkdir()
    translators = {name: translator_of(tmp_path / name, MODELS[name]) for name in ("base", "fast")}
    found = compare(translators, SOURCE, [TARGET])
    own = [translators[name].translate([SOURCE])[0] for name in translators]
    assert found.texts == tuple(dict.fromkeys([*own, TARGET]))
    for text, by in zip(found.texts, found.by, strict=True):
        assert by == tuple(name for name, mine in zip(translators, own, strict=True) if mine == text)
    for name, translator in translators.items():
        assert list(found.scores[name]) == translator.score([SOURCE] * len(found.texts), found.texts)
    same = compare({"a": translators["base"], "b": translators["base"]}, SOURCE)
    assert same.by == (("a", "b"),)
    regional = Translator.load(write_model(tmp_path / "regional", "de-AT", "en"), "cpu")
    assert set(compare({**translators, "regional": regional}, SOURCE).scores) == {*translators, "regional"}
    back = Translator.load(write_model(tmp_path / "back", "en", "de"), "cpu")
    with pytest.raises(ConfigurationError, match="different language pairs"):
        compare({**translators, "back": back}, SOURCE)
