"""Parts of a training that other installed packages provide by entry points: optimisers, and decays of the rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from jointnmt.errors import MissingPackageError

Part = TypeVar("Part", bound=Callable[..., Any])


def find_part(group: str, what: str, known: Mapping[str, Part], name: str) -> Part:
    """The part of that name: one of `known`, or what the entry point of this group and name refers to.

    Args:
        group: group of entry points.
        what: what the part is, for messages.
        known: parts of this package, and those that a script has added.
        name: name in the recipe.

    Raises:
        MissingPackageError: if there is none, several packages provide it, or it cannot be loaded.
    """
    if name in known:
        return known[name]
    entries = list(entry_points(group=group, name=name))
    if not entries:
        there = [*known, *sorted(entry.name for entry in entry_points(group=group))]
        raise MissingPackageError(
            f"There is no {what} {name!r} here, but {', '.join(map(repr, there))}. Install the package that "
            f"provides it by the entry point {group}; versions.json of a RUN names it."
        )
    packages = " and ".join(sorted(entry.dist.name if entry.dist else entry.value for entry in entries))
    if len(entries) > 1:
        raise MissingPackageError(f"The {what} {name!r} is provided by {packages}: uninstall all but one of them.")
    origin = f"The {what} {name!r} of {packages}, {entries[0].value},"
    try:
        part: Part = entries[0].load()
    except Exception as error:  # whatever its module does
        raise MissingPackageError(
            f"{origin} cannot be imported: {type(error).__name__}: {error}. Fix or reinstall that package; --debug "
            "shows the traceback."
        ) from error
    if not callable(part):
        raise MissingPackageError(f"{origin} should be a function or a class, but is a {type(part).__name__}.")
    return part


def packages_of_part(group: str, name: str) -> list[str]:
    """Packages that provide a part of that name by an entry point."""
    return [entry.dist.name for entry in entry_points(group=group, name=name) if entry.dist]
