"""Optional packages, from the extras of the installation, imported on use.

Translating, scoring and counting parameters need none of them. `pyproject.toml` lists the packages of each extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from jointnmt.errors import MissingPackageError

Extra = Literal["hub", "data", "train", "report", "serve", "export", "cluster"]


@contextmanager
def extra(*names: Extra) -> Iterator[None]:
    """A context for importing packages of an extra, or of several that are needed together.

    Raises:
        MissingPackageError: if one of them is not installed, with the command to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        if package == "jointnmt":
            raise
        which = "an extra" if len(names) == 1 else "extras"
        raise MissingPackageError(
            f"The package {package} is needed, but not installed. It comes with {which} of jointnmt: "
            f"pip install 'jointnmt[{','.join(names)}]'."
        ) from error
