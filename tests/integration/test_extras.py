"""Without the packages of the extras: what still works, and what says which extra it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.tiny_run import write_run

HIDE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from jointnmt.cli.main import main
main()
"""
MODULES = {
    "charset-normalizer": "charset_normalizer",
    "lightning-fabric": "lightning_fabric",
    "translate-toolkit": "translate",
}
"""Modules whose package has another name."""


def packages(pyproject: Path, extra: str) -> set[str]:
    """The modules of an extra's packages, those of the extras that it names included."""
    found = set()
    for requirement in tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"][extra]:
        if requirement.startswith("jointnmt["):
            for other in requirement.removeprefix("jointnmt[").removesuffix("]").split(","):
                found |= packages(pyproject, other)
        else:
            name = requirement.partition(">=")[0].partition("[")[0]
            found.add(MODULES.get(name, name))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("extras") / "run")


def without_extras(repository: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """The command line where no package of any extra can be found."""
    hidden = packages(repository / "pyproject.toml", "all") | packages(repository / "pyproject.toml", "cluster")
    assert {"lightning_fabric", "matplotlib", "numpy", "sacrebleu", "sacremoses", "tokenizers"} <= hidden
    code = f"HIDDEN = {hidden!r}\n{HIDE}"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=text, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "RUN"],
        ["translate", "RUN", "--json", "--alignments", "--num-best", "2"],
        ["translate", "RUN", "--sample", "--seed", "3"],
        ["translate", "RUN", "der Hund", "--precision", "bfloat16"],
        ["translate", "package:tatoeba-de-en-reformer-fast", "der Hund"],
        ["score", "RUN", "--source", "RUN/a.de", "--target", "RUN/a.en"],
        ["align", "RUN", "--source", "RUN/a.de", "--target", "RUN/a.en"],
        ["info", "RUN"],
        ["info", "recipes/demo.yaml"],
        ["recipes"],
        ["data"],
        ["kernels", "status"],
    ],
    ids=" ".join,
)
def test_what_needs_no_extra_works_without_any(
    arguments: list[str], repository: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is there a word about what is missing, such as PyTorch's about NumPy."""
    monkeypatch.chdir(repository)
    (run / "a.de").write_text("der Hund sieht die Katze .\n", encoding="utf-8")
    (run / "a.en").write_text("the dog sees the cat .\n", encoding="utf-8")
    given = [argument.replace("RUN", str(run)) for argument in arguments]
    result = without_extras(repository, *given, text="der Hund sieht die Katze .\n")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 1
    assert "Warning" not in result.stderr and "umpy" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "recipes/demo.yaml", "--out", "RUN/new"], "train"),
        (["scale", "recipes/demo.yaml", "--out", "RUN/new"], "train"),
        (["report", "RUN", "--source", "x", "--reference", "y", "--out", "z"], "report"),
        (["attention", "RUN", "--text", "x", "--out", "RUN/x.png"], "report"),
        (["contrast", "RUN", "--source", "RUN/a", "--right", "RUN/a", "--wrong", "RUN/a"], "report"),
        (["analyse", "RUN", "--source", "RUN/a", "--reference", "RUN/a", "--out", "RUN/new"], "report"),
        (["probe", "RUN", "--out", "RUN/new"], "report"),
        (["explore", "RUN", "--text", "x", "--out", "RUN/new"], "report"),
        (["share", "RUN", "--out", "RUN/shared"], "report"),
        (["serve", "RUN"], "serve"),
        (["translate-corpus", "RUN", "RUN/a", "--out", "RUN/new"], "cluster"),
        (["export", "RUN", "--to", "ctranslate2", "--out", "RUN/new"], "export"),
        (["data", "check", "RUN/a.tsv"], "data"),
        (["init", "RUN/new", "--from", "RUN/a.tsv"], "data,train"),
        (["evaluate", "--hypothesis", "RUN/a", "--reference", "RUN/a", "--language", "en"], "report"),
    ],
)
def test_what_needs_an_extra_names_it(
    arguments: list[str], extra: str, repository: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    (run / "a").write_text("a\n", encoding="utf-8")
    (run / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    result = without_extras(repository, *(argument.replace("RUN", str(run)) for argument in arguments))
    assert result.returncode == 5, result.stderr
    package = re.search(r"The package (\w+) is not installed", result.stderr)
    assert package is not None
    assert f"pip install 'jointnmt[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert any(package[1] in packages(repository / "pyproject.toml", each) for each in extra.split(","))
    assert not (run / "new").exists() and not (run / "shared").exists()


def test_a_model_on_moses_tokens_names_its_extra(repository: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    settings = run / "segmentation" / "segmentation.json"
    settings.write_text(settings.read_text().replace('"moses": false', '"moses": true'))
    result = without_extras(repository, "translate", str(run), text="der Hund\n")
    assert result.returncode == 5, result.stderr
    assert "pip install 'jointnmt[moses]'" in result.stderr
