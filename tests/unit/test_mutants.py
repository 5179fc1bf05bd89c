"""The list of mutants agrees with the code, the tests and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants.run import PAGE, Mutant, Outcome, read_mutants

MUTANTS = read_mutants()


def test_every_mutant_changes_one_place_of_its_file_to_other_code(repository: Path) -> None:
    for mutant in MUTANTS:
        source = (repository / "src/jointnmt" / mutant.file).read_text(encoding="utf-8")
        changed = mutant.apply(source)
        assert changed != source, mutant.name
        if mutant.file.endswith(".py"):
            compile(changed, mutant.file, "exec")


def test_every_mutant_names_tests_that_are_there(repository: Path) -> None:
    for test in {test for mutant in MUTANTS for test in mutant.tests}:
        path, _, function = test.partition("::")
        assert f"def {function}(" in (repository / path).read_text(encoding="utf-8") if function else True, test


def test_the_page_lists_every_mutant_once(repository: Path) -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    rows = [line.split(" | ")[:2] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    listed = [row for row in rows if row[0] != "| what is changed"]
    assert listed == [[f"| {mutant.name}", f"`{mutant.file}`"] for mutant in MUTANTS]


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    mutant = Mutant("models", "a", "b.py", text="x = 1", becomes="x = 2", breaks="", tests=())
    assert mutant.apply("y\nx = 1\n") == "y\nx = 2\n"
    for source in ("", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match="not once"):
            mutant.apply(source)


@pytest.mark.parametrize(("killed_by", "survives", "wanted"), [("t", "", True), ("", "", False), ("", "because", True)])
def test_a_survivor_needs_a_reason(killed_by: str, survives: str, wanted: bool) -> None:
    mutant = Mutant("models", "a", "b.py", "x", "y", "", (), survives)
    assert Outcome(killed_by, 1.0).is_as_wanted(mutant) == wanted
    assert not Outcome("t", 1.0).is_as_wanted(Mutant("models", "a", "b.py", "x", "y", "", (), "because"))
