"""The table of model families: this package's, and those that installed packages bring.

Another package brings a family by an entry point, whose name is that of the family, and whose object is a `Family`:

    [project.entry-points."jointnmt.families"]
    my-family = "my_package:FAMILY"

It is imported when a configuration names the family, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from jointnmt.errors import MissingPackageError

if TYPE_CHECKING:
    from jointnmt.models.common import ModelSettings
    from jointnmt.models.interface import TranslationModel

GROUP = "jointnmt.families"
"""The group of entry points."""


class Family(NamedTuple):
    """A family of models."""

    config: type[ModelSettings]
    """Its settings, with a literal `family`."""
    model: Callable[[Any, int, int], TranslationModel]
    """Makes a model of its settings and the sizes of the source and the target vocabulary."""


FAMILIES: dict[str, Family] = {}
"""This package's families, by name; `jointnmt.models` fills it."""


def find_family(name: str) -> Family | None:
    """The family of that name, of this package or another; None if nobody has it.

    Raises:
        MissingPackageError: if another package's cannot be had.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    brought = [_load(entry) for entry in entry_points(group=GROUP, name=name)]
    return brought[0] if brought else None


def known_families() -> list[str]:
    """The names of all families."""
    return list(dict.fromkeys([*FAMILIES, *sorted(entry.name for entry in entry_points(group=GROUP))]))


def _load(entry: EntryPoint) -> Family:
    package = entry.dist.name if entry.dist else entry.value
    try:
        family = entry.load()
    except (ImportError, AttributeError) as error:
        raise MissingPackageError(
            f"The family {entry.name!r} of {package} cannot be imported: {error}. Install {package} anew."
        ) from error
    if not isinstance(family, Family):
        raise MissingPackageError(
            f"The family {entry.name!r} of {package} should be a jointnmt.models.Family; its entry point, "
            f"{entry.value}, is a {type(family).__name__}."
        )
    return family
