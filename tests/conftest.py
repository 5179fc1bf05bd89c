"""What all tests share: one thread, fixed seeds, and where real corpora are, if they are."""

import os
import signal
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).parents[1]


def pytest_configure() -> None:
    """Let Ctrl-C reach the tests and the processes they start, also where a shell has begun them in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests run side by side, one thread each; and a sum in one thread has one order."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Every test begins with the same random state, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test finds what another one, or the user, has in the cache."""
    monkeypatch.setenv("JOINTNMT_CACHE", f"{tmp_path}-cache")


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of random numbers, for code that takes one."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout: recipes, documentation, build files."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real corpora: JOINTNMT_DATA, or `../shared/data` beside the checkout; skips where there is none."""
    given = os.environ.get("JOINTNMT_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}: set JOINTNMT_DATA to a folder that has them")
    return folder
