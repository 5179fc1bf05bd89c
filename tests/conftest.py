"""Shared parts of all tests: markers by folder, one thread, fixed seeds, and the folder of real corpora."""

import os
import signal
from pathlib import Path

import pytest
import torch

from support.commands import Commands
from support.tried import pytest_terminal_summary as pytest_terminal_summary
from support.tried import tried as tried

REPOSITORY = Path(__file__).parents[1]
INTEGRATION = (REPOSITORY / "tests" / "integration", REPOSITORY / "tests" / "faults")


def pytest_configure() -> None:
    """Let Ctrl-C reach the tests and their processes, even if a shell has started them in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in the folders of whole commands and trainings as `integration`."""
    for item in items:
        if any(folder in item.path.parents for folder in INTEGRATION):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One thread: tests run in parallel, and sums have one order."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Set the same random state at the start of every test."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def own_consoles() -> None:
    """New consoles for every test, as they keep the width of the terminal that they were made for."""
    from jointnmt.cli.console import stderr, stdout  # only once its shapes are checked

    for console in (stdout, stderr):
        console.cache_clear()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache for every test."""
    monkeypatch.setenv("JOINTNMT_CACHE", f"{tmp_path}-cache")


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded random generator."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora, JOINTNMT_DATA or `../shared/data`; skips if there is none."""
    given = os.environ.get("JOINTNMT_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}: set JOINTNMT_DATA to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """Starts commands."""
    return Commands(tmp_path_factory.mktemp("printed"))
