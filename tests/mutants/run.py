"""Applies the chosen mutants one by one, and runs the tests that must fail.

    python tests/mutants/run.py                       # all of them; exit code 1 if one survives without a reason
    python tests/mutants/run.py --only "beam|length"  # those whose name matches
    python tests/mutants/run.py --write               # write the results of those that run to docs/mutants.md

The mutants are in `mutants.toml`, which explains its keys. They are applied to a copy of `src` and `tests`; nothing in
the checkout changes. Needs a system with `fork`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
PAGE = ROOT / "docs" / "mutants.md"
COPIED = ("src", "tests", "recipes", "pretrained", "pyproject.toml")
PRELOADED = ("torch", "numpy", "pydantic", "pytest", "safetensors", "tokenizers", "lightning_fabric", "sacrebleu")
LONGEST = 300
"""Seconds after which tests that do not end also count as having noticed the mutant."""
START, END = "<!-- results -->\n", "<!-- end of the results -->"
HEAD = "| what is changed | in | what it breaks | killed by |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Mutant:
    """A change of one place that some test must notice."""

    area: str
    name: str
    file: str
    text: str
    becomes: str
    breaks: str
    tests: tuple[str, ...]
    survives: str = ""
    """Reason why no test fails, nor needs to."""

    def apply(self, source: str) -> str:
        """The source of the file with the change.

        Raises:
            ValueError: if the text does not occur exactly once.
        """
        count = source.count(self.text)
        if count != 1:
            raise ValueError(
                f"{self.name}: {self.file} has its text {count} times, not once. Bring {LIST.name} up to date"
            )
        return source.replace(self.text, self.becomes)


@dataclass(frozen=True)
class Outcome:
    """Result of running the tests of a mutant."""

    killed_by: str
    """The first test that failed; empty if none did."""
    seconds: float

    def verdict(self, mutant: Mutant) -> str:
        """Verdict of the table."""
        if not self.killed_by:
            return f"survives: {mutant.survives}" if mutant.survives else "SURVIVES"
        if mutant.survives:
            return "KILLED, although a reason to survive is stated"
        return f"`{self.killed_by}`" if self.killed_by.startswith("test_") else self.killed_by

    def is_as_wanted(self, mutant: Mutant) -> bool:
        """Whether the mutant was killed, or survived for a stated reason."""
        return bool(self.killed_by) != bool(mutant.survives)


def read_mutants() -> list[Mutant]:
    """All mutants, in the order of the list."""
    areas = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [Mutant(area, **{**each, "tests": tuple(each["tests"])}) for area, found in areas.items() for each in found]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the files that the tests need."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder)
        yield Path(folder)


def run_tests(tree: Path, tests: Sequence[str]) -> Outcome:
    """Run tests in a copy, in a process that has loaded the unchanged modules, as torch takes longer than most tests.

    Raises:
        RuntimeError: if the tests could not be run.
    """
    output, began = tree / "output.txt", time.perf_counter()
    process = multiprocessing.get_context("fork").Process(target=_run_pytest, args=(tree, tests, output))
    process.start()
    process.join(LONGEST)
    seconds = time.perf_counter() - began
    if process.is_alive():
        process.kill()
        process.join()
        return Outcome(f"no end after {LONGEST} seconds", seconds)
    text = output.read_text(encoding="utf-8", errors="replace")
    if process.exitcode not in (0, 1):
        raise RuntimeError(f"pytest ended with {process.exitcode} on {' '.join(tests)}:\n{text[-3000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\w+)", text, re.M)
    if (process.exitcode == 1) != bool(failed):
        raise RuntimeError(f"pytest ended with {process.exitcode}, but its report says otherwise:\n{text[-3000:]}")
    return Outcome(failed[1] if failed else "", seconds)


def _run_pytest(tree: Path, tests: Sequence[str], output: Path) -> None:
    os.chdir(tree)
    os.environ["PYTHONPATH"] = f"{tree / 'src'}{os.pathsep}{tree}"
    sys.path[:0] = [str(tree / "src"), str(tree)]
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import pytest

    import jointnmt

    assert Path(jointnmt.__file__).is_relative_to(tree), f"{jointnmt.__file__} is not the copy"
    # Without checks of shapes, which double the time: what fails without them also fails with them.
    options = ["-o", "addopts=-q --strict-markers", "-x", "-n0", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    sys.exit(int(pytest.main([*options, *tests])))


def run(mutants: Sequence[Mutant]) -> list[Outcome]:
    """Run each mutant's tests, after all of them without a mutant, and print a line for each.

    Raises:
        RuntimeError: if a test fails without any mutant, or cannot be run.
        ValueError: if a mutant's text is not found.
    """
    sys.dont_write_bytecode = True  # a changed file of the same size and second would pass as the old one
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in PRELOADED:
        import_module(name)
    outcomes = []
    with copied_tree() as tree:
        unchanged = run_tests(tree, list(dict.fromkeys(test for mutant in mutants for test in mutant.tests)))
        if unchanged.killed_by:
            raise RuntimeError(f"{unchanged.killed_by} fails without any mutant: fix that first")
        print(f"{unchanged.seconds:6.1f} s  without any mutant, all tests pass", flush=True)
        for mutant in mutants:
            path = tree / "src" / "jointnmt" / mutant.file
            source = path.read_text(encoding="utf-8")
            path.write_text(mutant.apply(source), encoding="utf-8")
            try:
                outcomes.append(run_tests(tree, mutant.tests))
            finally:
                path.write_text(source, encoding="utf-8")
            print(f"{outcomes[-1].seconds:6.1f} s  {mutant.name}: {outcomes[-1].verdict(mutant)}", flush=True)
    return outcomes


def results(mutants: Sequence[Mutant], verdicts: Mapping[str, str]) -> str:
    """The tables of the page, by area; `verdicts` by the mutants' names."""
    survivors = sum(verdict.startswith("survives") for verdict in verdicts.values())
    text = f"{len(mutants)} mutants, {len(mutants) - survivors} killed, {survivors} survive.\n"
    for area in dict.fromkeys(mutant.area for mutant in mutants):
        text += (
            f"\n### {area.capitalize()}\n\n| what is changed | in | what it breaks | killed by |\n|---|---|---|---|\n"
        )
        for mutant in mutants:
            if mutant.area == area:
                text += f"| {mutant.name} | `{mutant.file}` | {mutant.breaks} | {verdicts[mutant.name]} |\n"
    return text


def write_page(mutants: Sequence[Mutant], outcomes: Mapping[str, str]) -> None:
    """Write the verdicts on the mutants that were run into the page; those on others stay unchanged.

    Raises:
        ValueError: if a mutant has no verdict.
    """
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    old, _, after = rest.partition(END)
    rows = [line.strip("| ").split(" | ") for line in old.splitlines() if line.startswith("| ")]
    verdicts = {row[0]: row[-1] for row in rows} | outcomes
    if missing := [mutant.name for mutant in mutants if mutant.name not in verdicts]:
        raise ValueError(f"not run yet, so not written: {'; '.join(missing)}")
    verdicts = {mutant.name: verdicts[mutant.name] for mutant in mutants}
    PAGE.write_text(f"{before}{START}{results(mutants, verdicts)}{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="mutants whose name matches")
    parser.add_argument("--write", action="store_true", help="write the results to docs/mutants.md")
    options = parser.parse_args()
    every = read_mutants()
    mutants = [mutant for mutant in every if re.search(options.only, mutant.name, re.I)]
    try:
        outcomes = run(mutants)
        wrong = [mutant for mutant, outcome in zip(mutants, outcomes, strict=True) if not outcome.is_as_wanted(mutant)]
        if options.write and not wrong:
            pairs = zip(mutants, outcomes, strict=True)
            write_page(every, {mutant.name: outcome.verdict(mutant) for mutant, outcome in pairs})
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    killed = sum(bool(outcome.killed_by) for outcome in outcomes)
    print(f"{len(mutants)} mutants, {killed} killed, {len(wrong)} not as wanted")
    for mutant in wrong:
        print(f"  {mutant.name}: write a test, or say why it survives")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
