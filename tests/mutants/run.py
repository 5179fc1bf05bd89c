"""Do the tests notice what must not happen? Apply the chosen mutants one by one, and run the tests that are to fail.

    python tests/mutants/run.py                       # all of them; exit code 1 if one survives without a reason
    python tests/mutants/run.py --only "beam|length"  # those whose name matches
    python tests/mutants/run.py --write               # all of them; the results go to docs/mutants.md

The mutants are in `mutants.toml`, which says what its keys mean. They are applied to a copy of `src` and `tests`;
nothing in the checkout changes. Needs a system with `fork`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
PAGE = ROOT / "docs" / "mutants.md"
COPIED = ("src", "tests", "recipes", "pyproject.toml")
PRELOADED = ("torch", "numpy", "pydantic", "pytest", "safetensors", "tokenizers", "lightning_fabric", "sacrebleu")
LONGEST = 300
"""Seconds after which tests that do not end have noticed the mutant, too."""
START, END = "<!-- begin: results -->\n", "<!-- end -->"


@dataclass(frozen=True)
class Mutant:
    """A change of one place that some test has to notice."""

    area: str
    name: str
    file: str
    text: str
    becomes: str
    breaks: str
    tests: tuple[str, ...]
    survives: str = ""
    """Why no test fails, and need not."""

    def apply(self, source: str) -> str:
        """The source of the file with the change.

        Raises:
            ValueError: if the text is not there exactly once.
        """
        count = source.count(self.text)
        if count != 1:
            raise ValueError(
                f"{self.name}: {self.file} has its text {count} times, not once. Bring {LIST.name} up to date"
            )
        return source.replace(self.text, self.becomes)


@dataclass(frozen=True)
class Outcome:
    """What running the tests of a mutant came to."""

    killed_by: str
    """The first test that failed; empty if none did."""
    seconds: float

    def verdict(self, mutant: Mutant) -> str:
        """What the table says."""
        if not self.killed_by:
            return f"survives: {mutant.survives}" if mutant.survives else "SURVIVES"
        return "KILLED, although a reason to survive is stated" if mutant.survives else self.killed_by

    def is_as_wanted(self, mutant: Mutant) -> bool:
        """Whether it was killed, or survived for a stated reason."""
        return bool(self.killed_by) != bool(mutant.survives)


def read_mutants() -> list[Mutant]:
    """All mutants, in the order of the list."""
    areas = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [Mutant(area, **{**each, "tests": tuple(each["tests"])}) for area, found in areas.items() for each in found]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of what the tests need."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder)
        yield Path(folder)


def run_tests(tree: Path, tests: Sequence[str]) -> Outcome:
    """Run tests in a copy, in a process that has loaded what does not change: importing torch takes longer than most.

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
    # Without the shapes checked, which takes as long as the rest: what fails without the checks fails with them, too.
    options = ["-o", "addopts=-q --strict-markers", "-x", "-n0", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    sys.exit(int(pytest.main([*options, *tests])))


def run(mutants: Sequence[Mutant]) -> list[Outcome]:
    """Run each mutant's tests, after all of them without a mutant, and print a line for each.

    Raises:
        RuntimeError: if a test fails without any mutant, or cannot be run.
        ValueError: if a mutant's text is not found.
    """
    sys.dont_write_bytecode = True  # a changed file of the same size and second would be taken for the old one
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in PRELOADED:
        import_module(name)
    outcomes = []
    with copied_tree() as tree:
        unchanged = run_tests(tree, list(dict.fromkeys(test for mutant in mutants for test in mutant.tests)))
        if unchanged.killed_by:
            raise RuntimeError(f"{unchanged.killed_by} fails without any mutant: mend that first")
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


def results(mutants: Sequence[Mutant], outcomes: Sequence[Outcome]) -> str:
    """The table of the page, by area."""
    survivors = sum(not outcome.killed_by for outcome in outcomes)
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    text = (
        f"{len(mutants)} mutants, {len(mutants) - survivors} killed, {survivors} survive; {minutes:.0f} minutes on "
        f"{os.cpu_count()} cores ({platform.machine()}), with one thread, torch {version('torch')}.\n"
    )
    for area in dict.fromkeys(mutant.area for mutant in mutants):
        text += (
            f"\n### {area.capitalize()}\n\n| what is changed | in | what it breaks | killed by |\n|---|---|---|---|\n"
        )
        for mutant, outcome in zip(mutants, outcomes, strict=True):
            if mutant.area == area:
                killer = f"`{outcome.killed_by}`" if outcome.killed_by.startswith("test_") else outcome.verdict(mutant)
                text += f"| {mutant.name} | `{mutant.file}` | {mutant.breaks} | {killer} |\n"
    return text


def write_page(text: str) -> None:
    """Put the results into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    PAGE.write_text(f"{before}{START}{text}{END}{rest.partition(END)[2]}", encoding="utf-8")


def chosen(mutants: Iterable[Mutant], pattern: str) -> list[Mutant]:
    """Those whose name matches."""
    return [mutant for mutant in mutants if re.search(pattern, mutant.name, re.I)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="mutants whose name matches")
    parser.add_argument("--write", action="store_true", help="write the results to docs/mutants.md")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes the results of all mutants: leave --only out")
    mutants = chosen(read_mutants(), options.only)
    try:
        outcomes = run(mutants)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    wrong = [mutant for mutant, outcome in zip(mutants, outcomes, strict=True) if not outcome.is_as_wanted(mutant)]
    killed = sum(bool(outcome.killed_by) for outcome in outcomes)
    print(f"{len(mutants)} mutants, {killed} killed, {len(wrong)} not as wanted")
    for mutant in wrong:
        print(f"  {mutant.name}: write a test, or say why it survives")
    if options.write and not wrong:
        write_page(results(mutants, outcomes))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
