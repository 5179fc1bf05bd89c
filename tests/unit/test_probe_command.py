"""`jointnmt probe`: output, resumption after an interruption, and refusals."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner, Result

from jointnmt.analysis import probing
from jointnmt.cli.main import app
from jointnmt.data.building import Which
from jointnmt.data.store import text_fingerprint
from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.text.segmentation import Segmentation
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, experiment, write_run_of

pytestmark = pytest.mark.slow

FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {"family": "transformer", "encoder_layers": 1, "decoder_layers": 2, "shortcuts": {"kind": "plain"}},
    "reformer-base": {"family": "reformer-base", "num_layers": 1},
    "reformer-fast": {"family": "reformer-fast", "prenet_layers": 1, "num_layers": 1, "shortcuts": {"kind": "fusion"}},
}
QUICK = ["--set", "max_rounds=2", "--set", "rate=0.01"]


def write_text(path: Path, lines: list[list[str]]) -> None:
    path.write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")


@pytest.fixture(autouse=True)
def sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw pictures without content, which takes most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **options: Path(path).write_bytes(b"picture"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training and validation text, three runs, one for each family, and held-out text with tags."""
    made = tmp_path_factory.mktemp("made")
    for side, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS)):
        write_text(made / f"train.{side}", [words[:n] for n in range(2, 8)])
        write_text(made / f"valid.{side}", [words[2:5], words[3:8]])
        write_text(made / f"test.{side}", [words[4:8], words[1:3], [], words[5:8]])
        write_text(made / f"tags.{side}", [["NN", "VVFIN", "ADV", "NN"], ["NN", "KON"], [], ["NE", "ADJA", "$."]])
    data: dict[str, Any] = {"root": str(made), "source_language": "de", "target_language": "en"}
    data["train"] = [{"source": "train.de", "target": "train.en"}]
    data["validation"] = [{"source": "valid.de", "target": "valid.en"}]
    for family, model in FAMILIES.items():
        values = {**experiment(data=data).plain(), "model": {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8, **model}}
        write_run_of(made / family, Experiment.parse(values, origin="test"))
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder `made`."""
    return shutil.copytree(made, tmp_path / "folder")


def probe(folder: Path, *arguments: str, runs: tuple[str, ...] = ("reformer-fast",), **files: str) -> Result:
    names = {"source": "test.de", "reference": "test.en", "out": "out", **files}
    options = [word for name, file in names.items() for word in (f"--{name.replace('_', '-')}", str(folder / file))]
    paths = [str(folder / run) for run in runs]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["probe", *paths, *options, *QUICK, *arguments])


def test_the_command_writes_figures_and_numbers_of_every_family(folder: Path) -> None:
    tags = {"source_tags": "tags.de", "reference_tags": "tags.en"}
    result = probe(folder, runs=tuple(FAMILIES), **tags)
    assert result.exit_code == 0, result.output
    assert "1 empty" in " ".join(result.stderr.split())
    found = json.loads((folder / "out" / "probe.json").read_text())
    assert list(found) == list(FAMILIES)
    for family, facts in found.items():
        assert facts["held_out"] == {
            "sentences": 3,
            "left_out_as_known": 0,
            "left_out_as_half_known": 0,
            "left_out_as_empty": 1,
        }
        files = {path.stem for path in (folder / "out" / family).iterdir()}
        assert (
            files
            == set(facts["probes"])
            == {
                "-".join(dict.fromkeys((each["stack"], each["side"], each["layer"])))
                for each in facts["measured"]
                if each["measure"] == "accuracy"
            }
        )
    stacks = {
        (family, each["stack"], each["side"], each["layer"], each["value"]["size"])
        for family, facts in found.items()
        for each in facts["measured"]
        if (each["measure"], each["grouping"]) == ("accuracy", "all")
    }
    # Nine words are held out on either side, and each is a piece.
    layers = {
        "transformer": [("encoder", "source", "1"), ("decoder", "target", "1"), ("decoder", "target", "2")],
        "reformer-base": [],
        "reformer-fast": [("prenet", "source", "1")],
    }
    grid = [("grid", side, layer) for side in ("source", "target") for layer in ("input", "1")]
    expected = {
        (family, *state, 9)
        for family, own in layers.items()
        for state in [
            ("embedding", "source", "embedding"),
            ("embedding", "target", "embedding"),
            *own,
            *([] if family == "transformer" else [*grid, ("grid", "target", "reduced")]),
        ]
    }
    assert stacks == expected
    names = {path.name for path in (folder / "out").iterdir() if path.is_file()}
    groups = ("", "-by-frequency", "-by-class")
    topics = {
        f"{measure}-{side}{by}"
        for measure in ("accuracy", "gate", "sparseness")
        for side in ("source", "target")
        for by in groups
    }
    topics |= {"similarity-source", "similarity-target"}
    assert names == {"probe.json", *(f"{topic}.{ending}" for topic in topics for ending in ("csv", "png"))}
    by_class = sizes_of_groups(folder / "out" / "accuracy-source-by-class.csv")
    assert by_class == {"NOUN": 4, "VERB": 1, "ADJ/ADV": 2, "OTHER": 2}
    # The first seven source words occur in 6, 6, 5, 4, 3, 2 and 1 of the training lines, the others in none.
    by_frequency = sizes_of_groups(folder / "out" / "accuracy-source-by-frequency.csv")
    held_out = {"1 (1)": 2, "2 (2)": 2, "3 (3)": 1, "4 (4)": 0, "5 (5)": 1, "6 (6)": 0, "7 (6)": 1, "unseen": 2}
    assert by_frequency == {**held_out, "8 (none)": 0, "9 (none)": 0, "10 (none)": 0}


def sizes_of_groups(file: Path) -> dict[str, int]:
    """Sizes of groups of the encoder's pieces, or words."""
    with file.open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["stack"] == "encoder"]
    return {row["group"]: int(next(value for key, value in row.items() if key.startswith("size"))) for row in rows}


def test_an_interrupted_command_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probe(folder, "--json", out="whole")
    train_round, rounds = probing.train_round, []

    def interrupted(*arguments: Any) -> None:
        rounds.append(1)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        train_round(*arguments)

    monkeypatch.setattr(probing, "train_round", interrupted)
    stopped = probe(folder, "--json")
    assert stopped.exit_code == 130
    assert "round 2 was interrupted" in " ".join(stopped.stderr.split())
    resumed = probe(folder, "--json")
    assert len(rounds) == 3
    assert json.loads(resumed.stdout) == json.loads(whole.stdout)
    assert probe(folder, "--json").stdout == resumed.stdout
    assert len(rounds) == 3  # finished probes are not trained again


def test_without_rounds_there_is_what_needs_no_training(folder: Path) -> None:
    result = probe(folder, "--set", "max_rounds=0")
    assert result.exit_code == 0, result.output
    names = {path.stem.partition("-")[0] for path in (folder / "out").glob("*.csv")}
    assert names == {"similarity", "gate", "sparseness"}


def test_tags_of_a_model_of_which_nothing_is_measured_by_class_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TranslationModel, "has_shortcuts", False)
    tags, warning = {"source_tags": "tags.de"}, "tags have no effect"
    assert warning in probe(folder, "--set", "max_rounds=0", **tags).stderr
    assert warning not in probe(folder, "--set", "max_rounds=1", **tags).stderr


def test_known_pairs_are_left_out_and_counted(folder: Path) -> None:
    for side, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS)):
        write_text(folder / f"mixed.{side}", [words[:4], words[4:8], words[3:8]])  # trained on, new, stopped on
    result = probe(folder, source="mixed.de", reference="mixed.en")
    assert "2 of 3 pairs are left out" in " ".join(result.stderr.split())
    held_out = json.loads((folder / "out" / "probe.json").read_text())["reformer-fast"]["held_out"]
    assert held_out == counts_of_held_out(1, known=2)


def test_a_pair_of_which_one_side_is_known_is_left_out_and_counted(folder: Path) -> None:
    write_text(folder / "mixed.de", [SOURCE_WORDS[:4], SOURCE_WORDS[4:8], SOURCE_WORDS[5:9], SOURCE_WORDS[:3]])
    write_text(folder / "mixed.en", [TARGET_WORDS[4:8], TARGET_WORDS[4:8], TARGET_WORDS[2:5], TARGET_WORDS[:3]])
    result = probe(folder, "--set", "max_rounds=0", source="mixed.de", reference="mixed.en")
    assert "trained or validated on them (1) or on one of their sides (2)" in " ".join(result.stderr.split())
    held_out = json.loads((folder / "out" / "probe.json").read_text())["reformer-fast"]["held_out"]
    assert held_out == counts_of_held_out(1, known=1, half_known=2)


def counts_of_held_out(sentences: int, known: int = 0, half_known: int = 0, empty: int = 0) -> dict[str, int]:
    left_out = {"left_out_as_known": known, "left_out_as_half_known": half_known, "left_out_as_empty": empty}
    return {"sentences": sentences, **left_out}


def test_tags_hide_no_known_pair_and_are_no_pieces(folder: Path) -> None:
    write_tagged_run(folder)
    write_text(folder / "mixed.de", [SOURCE_WORDS[:4], ["<2en>", *SOURCE_WORDS[:5]], ["<2en>", *SOURCE_WORDS[4:8]]])
    write_text(folder / "mixed.en", [TARGET_WORDS[:4], TARGET_WORDS[:5], TARGET_WORDS[4:8]])
    tags = {"source_tags": "mixed.tags"}
    write_text(folder / "mixed.tags", [["NN"] * 4, ["NN"] * 5, ["NN"] * 4])
    result = probe(folder, runs=("tagged",), source="mixed.de", reference="mixed.en", **tags)
    assert result.exit_code == 0, result.output
    facts = json.loads((folder / "out" / "probe.json").read_text())["tagged"]
    assert facts["held_out"] == counts_of_held_out(1, known=2)
    sizes = {each["value"]["size"] for each in facts["measured"] if each["measure"] == "accuracy"} - {0}
    assert max(sizes) == 4  # words as in the lines, without tag
    bins = [each["value"]["bucket"] for each in facts["measured"] if each["grouping"] == "frequency"]
    assert "8 (none)" in bins  # seven words occur, without tag


def write_tagged_run(folder: Path) -> None:
    """A run `tagged` whose training sources begin with the tag <2en>."""
    values = experiment(data=RunDirectory(folder / "transformer").read_experiment().plain()["data"]).plain()
    values["data"]["root"] = str(folder)
    values["data"]["train"][0]["tag"] = "<2en>"
    values["segmentation"]["tags"] = ["<2en>"]
    configuration = Experiment.parse(values, origin="test")
    config = configuration.segmentation.model_copy(update={"min_frequency": 1, "vocabulary_size": 100})
    words = " ".join(SOURCE_WORDS), " ".join(TARGET_WORDS)
    write_run_of(folder / "tagged", configuration, Segmentation.train(config, words[:1], words[1:], "de", "en"))


def test_texts_that_have_changed_since_the_training_are_refused(folder: Path) -> None:
    """For runs whose last state records them."""
    run = RunDirectory(folder / "reformer-fast")
    data = run.read_experiment().data.model_copy(update={"root": folder})
    run.write_experiment(run.read_experiment().model_copy(update={"data": data}))
    segmentation = Segmentation.load(run.segmentation)
    parts: dict[str, Which] = {"data": "train", "validation": "validation"}
    known = {key: text_fingerprint(data, segmentation, which) for key, which in parts.items()}
    run.checkpoints.mkdir()
    checkpoint.write(run.states.last, {}, known)
    assert probe(folder, "--set", "max_rounds=0").exit_code == 0
    for name, which in (("valid", "validation"), ("train", "train")):
        text = (folder / f"{name}.de").read_text(encoding="utf-8")
        (folder / f"{name}.de").write_text(text.replace("die", "der"), encoding="utf-8")
        result = probe(folder, "--set", "max_rounds=0")
        assert result.exit_code == 3, result.output
        message = "".join(result.stderr.split())
        assert f"{run.path}:thefilesofitsdata.{which},in{folder},arenotthoseofitstraining" in message


def test_a_shared_model_does_not_take_what_lies_in_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    run = RunDirectory(folder / "reformer-fast")
    data = run.read_experiment().data.model_copy(update={"root": Path()})
    run.write_experiment(run.read_experiment().model_copy(update={"data": data}))
    result = probe(folder, "--set", "max_rounds=0")
    assert result.exit_code == 3, result.output
    assert "does not state where its data.train (train.de, train.en) is" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"source": "test.en", "reference": "test.de"}, "the source is en and the target de"),
        ({"reference": "valid.en"}, "are not parallel: 4 and 2 lines"),
        (
            {"source": "valid.de", "reference": "valid.en"},
            "2 occur in the text that the run was trained or validated on",
        ),
        ({"source_tags": "valid.de"}, "valid.de and"),
        ({"reference_tags": "short.en"}, "short.en:4: there are 2 tags, but the sentence has 3 words"),
        ({"source": "hole.de"}, "hole.de:2: an empty line cannot have a target"),
        ({"source": "empty.de", "reference": "empty.en"}, "no sentences"),
    ],
)
def test_text_that_does_not_fit_is_refused(folder: Path, files: dict[str, str], message: str) -> None:
    write_text(folder / "short.en", [["NN"] * 4, ["NN"] * 2, [], ["NN"] * 2])
    write_text(folder / "hole.de", [SOURCE_WORDS[4:8], [], [], SOURCE_WORDS[5:8]])
    for side in ("de", "en"):
        write_text(folder / f"empty.{side}", [])
    result = probe(folder, **files)
    assert result.exit_code == 3, result.output
    assert message in " ".join(result.stderr.split())


def test_wrong_use_is_refused(folder: Path) -> None:
    for arguments, message in (
        (["--set", "layers=2"], "layers: is not a known key"),
        (["--set", "rate=0"], "rate: should be more than 0"),
        ([str(folder / "reformer-fast")], "same name"),
    ):
        result = probe(folder, *arguments)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.stderr.split())


def test_a_file_in_the_place_of_the_folder_is_refused_before_the_work(folder: Path) -> None:
    for out in ("test.de", "test.de/in/it"):
        result = probe(folder, source="valid.de", reference="train.en", out=out)  # not parallel: found out later
        assert result.exit_code == 2, result.output
        assert "test.de: is a file, but figures and numbers go to a folder" in " ".join(result.stderr.split())


def test_probes_of_another_training_are_refused(folder: Path) -> None:
    assert probe(folder).exit_code == 0
    result = probe(folder, "--set", "rate=0.5")
    assert result.exit_code == 2
    assert "settings.rate: 0.01 -> 0.5" in " ".join(result.stderr.split())
    before = (folder / "out" / "probe.json").read_bytes()
    result = probe(folder, "--set", "max_rounds=0")
    assert result.exit_code == 2
    assert "holds trained probes" in " ".join(result.stderr.split())
    assert (folder / "out" / "probe.json").read_bytes() == before
