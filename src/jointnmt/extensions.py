"""Parts that other installed packages provide by entry points: model families, optimisers, decays of the rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, TypeVar

from jointnmt.errors import MissingPackageError

Part = TypeVar("Part", bound=Callable[..., Any])


class ExtensionPoint(NamedTuple):
    """A kind of part that other packages may provide. A part is imported only when it is asked for."""

    group: str
    """The group of entry points."""
    what: str
    """What such a part is, for messages."""

    def find(self, name: str, fault: Callable[[Any], str | None]) -> Any:
        """What the entry point of this name refers to; None if there is none.

        Args:
            name: name of the part.
            fault: says what is wrong with a part, to follow its name; None: nothing.

        Raises:
            MissingPackageError: if several packages provide it, it cannot be imported, or it has a fault.
        """
        entries = list(entry_points(group=self.group, name=name))
        if not entries:
            return None
        packages = " and ".join(sorted(entry.dist.name if entry.dist else entry.value for entry in entries))
        if len(entries) > 1:
            raise MissingPackageError(
                f"The {self.what} {name!r} is provided by {packages}: uninstall all but one of them."
            )
        try:
            part = entries[0].load()
        except Exception as error:  # whatever its module does
            raise self._broken(entries[0], packages, f"cannot be imported: {type(error).__name__}: {error}") from error
        if (wrong := fault(part)) is not None:
            raise self._broken(entries[0], packages, wrong)
        return part

    def find_callable(self, name: str, known: Mapping[str, Part]) -> Part:
        """The function or class of this name: one of `known`, or another package's.

        Raises:
            MissingPackageError: as in `find`, or if there is none.
        """
        part: Part | None = known.get(name) or self.find(name, _uncallable)
        if part is None:
            raise MissingPackageError(
                f"There is no {self.what} {name!r} here, but {', '.join(map(repr, [*known, *self.names()]))}. Install "
                f"the package that provides it by the entry point {self.group}; versions.json of a RUN names it."
            )
        return part

    def names(self) -> list[str]:
        """Names of the parts that other packages provide."""
        return sorted(entry.name for entry in entry_points(group=self.group))

    def packages(self, name: str) -> list[str]:
        """Packages that provide a part of this name."""
        return [entry.dist.name for entry in entry_points(group=self.group, name=name) if entry.dist]

    def _broken(self, entry: EntryPoint, packages: str, how: str) -> MissingPackageError:
        return MissingPackageError(
            f"The {self.what} {entry.name!r} of {packages}, {entry.value}, {how}. Fix or reinstall that package; "
            "--debug shows the traceback."
        )


def _uncallable(part: object) -> str | None:
    return None if callable(part) else f"should be a function or a class, but is a {type(part).__name__}"
