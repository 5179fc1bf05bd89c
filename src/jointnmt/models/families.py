"""The table of model families: this package's, and those provided by other installed packages.

Another package provides a family by an entry point with the family's name, which refers to a `Family`:

    [project.entry-points."jointnmt.families"]
    my-family = "my_package:FAMILY"

It is imported only when a configuration names the family.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jointnmt.extensions import ExtensionPoint

if TYPE_CHECKING:
    from jointnmt.models.common import FamilyConfig
    from jointnmt.models.interface import TranslationModel

OTHERS = ExtensionPoint("jointnmt.families", "family")
"""Families of other packages."""


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

    def fault(family: object) -> str | None:
        if not isinstance(family, Family):
            return f"should be a jointnmt.models.Family, but is a {type(family).__name__}"
        field = getattr(family.config, "model_fields", {}).get("family")
        if field is None or field.annotation != Literal[name]:
            return f"needs settings with the field family: Literal[{name!r}]"
        return None

    return FAMILIES.get(name) or OTHERS.find(name, fault)


def known_families() -> list[str]:
    """The names of all families."""
    return list(dict.fromkeys([*FAMILIES, *OTHERS.names()]))


def packages_of(name: str) -> list[str]:
    """Other packages that provide a family of that name."""
    return [] if name in FAMILIES else OTHERS.packages(name)


def is_of_another_package(model: TranslationModel) -> bool:
    """Whether the class of a model is not this package's."""
    return type(model).__module__.partition(".")[0] != __name__.partition(".")[0]


def roots() -> frozenset[str]:
    """Top-level modules, loaded or not, that define families of other packages."""
    modules = [entry.module for entry in entry_points(group=OTHERS.group)]
    modules += [family.model.__module__ for family in FAMILIES.values()]
    return frozenset(module.partition(".")[0] for module in modules) - {__name__.partition(".")[0]}
