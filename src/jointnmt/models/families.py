"""The table of model families: this package's, and those provided by other installed packages.

Another package provides a family by an entry point with the family's name, which refers to a `Family`:

    [project.entry-points."jointnmt.families"]
    my-family = "my_package:FAMILY"

It is imported only when a configuration names the family.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jointnmt.errors import MissingPackageError

if TYPE_CHECKING:
    from jointnmt.models.common import FamilyConfig
    from jointnmt.models.interface import TranslationModel

GROUP = "jointnmt.families"
"""The group of entry points."""


class Family(NamedTuple):
    """A model family."""

    config: type[FamilyConfig]
    """Class of its settings, with a literal `family`."""
    model: Callable[[Any, int, int], TranslationModel]
    """Builds a model from its settings and the sizes of the source and target vocabulary."""


FAMILIES: dict[str, Family] = {}
"""This package's families, by name; `jointnmt.models` fills it."""


def find_family(name: str) -> Family | None:
    """The family of that name, of this package or another; None if there is none.

    Raises:
        MissingPackageError: if another package's family cannot be loaded, or two packages provide one of that name.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    entries = list(entry_points(group=GROUP, name=name))
    if len(entries) > 1:
        packages = " and ".join(sorted(map(_package, entries)))
        raise MissingPackageError(f"The family {name!r} is provided by {packages}: uninstall all but one of them.")
    return _load(entries[0]) if entries else None


def known_families() -> list[str]:
    """The names of all families."""
    return list(dict.fromkeys([*FAMILIES, *sorted(entry.name for entry in entry_points(group=GROUP))]))


def packages_of(name: str) -> list[str]:
    """Other packages that provide a family of that name."""
    return [] if name in FAMILIES else [each.dist.name for each in entry_points(group=GROUP, name=name) if each.dist]


def is_of_another_package(model: TranslationModel) -> bool:
    """Whether the class of a model is not this package's."""
    return type(model).__module__.partition(".")[0] != __name__.partition(".")[0]


def roots() -> frozenset[str]:
    """Top-level modules, loaded or not, that define families of other packages."""
    modules = [entry.module for entry in entry_points(group=GROUP)]
    modules += [family.model.__module__ for family in FAMILIES.values()]
    return frozenset(module.partition(".")[0] for module in modules) - {__name__.partition(".")[0]}


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def _load(entry: EntryPoint) -> Family:
    try:
        family = entry.load()
    except Exception as error:  # whatever its module does
        raise _broken(entry, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise _broken(entry, f"should be a jointnmt.models.Family, but is a {type(family).__name__}")
    named = getattr(family.config, "model_fields", {}).get("family")
    if named is None or named.annotation != Literal[entry.name]:
        raise _broken(entry, f"needs settings with the field family: Literal[{entry.name!r}]")
    return family


def _broken(entry: EntryPoint, how: str) -> MissingPackageError:
    return MissingPackageError(
        f"The family {entry.name!r} of {_package(entry)}, {entry.value}, {how}. Fix or reinstall that package; --debug "
        "shows the traceback."
    )
