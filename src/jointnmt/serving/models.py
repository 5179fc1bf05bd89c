"""The models that are served, by name and by language pair; reloaded when they have changed on disk."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jointnmt.runs.members import members_of
from jointnmt.serving.engine import Engine
from jointnmt.serving.errors import RequestError
from jointnmt.serving.metrics import Metrics
from jointnmt.shipped import CONFIGURATION_FILE, WEIGHTS_FILE
from jointnmt.text.languages import base_language

logger = logging.getLogger(__name__)

Load = Callable[[Path], Awaitable[Engine]]
Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Served:
    """A model under its name."""

    name: str
    path: Path
    """Path of its RUN; A+B: those of an ensemble."""
    fingerprint: Fingerprint
    engine: Engine

    @property
    def pair(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.engine.info.source_language, self.engine.info.target_language


def fingerprint(run: Path) -> Fingerprint:
    """Name, size and modification time of every file that a model is loaded from, to detect changes."""
    members = members_of(run)
    files = [
        file
        for each in members
        for file in (each / CONFIGURATION_FILE, each / WEIGHTS_FILE, *sorted((each / "segmentation").glob("*")))
    ]
    stats = ((file, file.stat()) for file in files if file.is_file())
    return tuple((file.name, stat.st_size, stat.st_mtime_ns) for file, stat in stats)


class Models:
    """The models in the given order; the first one of a language pair translates unless another is named.

    A request keeps the model it began with, even if that is reloaded meanwhile.
    """

    def __init__(self, served: Sequence[Served], metrics: Metrics) -> None:
        self._served = {each.name: each for each in served}
        self._metrics = metrics

    @classmethod
    def load(cls, paths: dict[str, Path], load: Callable[[Path], Engine], metrics: Metrics) -> Models:
        """Load the models of these names and directories.

        Raises:
            JointNMTError: if one cannot be loaded.
        """
        served = []
        for name, path in paths.items():
            found = fingerprint(path)  # before loading: a change meanwhile is found by the next reload
            served.append(Served(name, path, found, load(path)))
            logger.info("loaded %s from %s: %s to %s", name, path, *served[-1].pair)
        return cls(served, metrics)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    async def reload(self, load: Load) -> None:
        """Reload models that have changed on disk; one that cannot be loaded stays, and the error is logged."""
        for old in list(self._served.values()):
            try:
                if (found := fingerprint(old.path)) == old.fingerprint:
                    logger.info("%s has not changed: it is not reloaded", old.name)
                    continue
                self._served[old.name] = replace(old, fingerprint=found, engine=await load(old.path))
            except Exception as error:
                self._metrics.reloads.labels("failed").inc()
                logger.error("%s cannot be reloaded and stays unchanged: %s", old.name, error)
            else:
                self._metrics.reloads.labels("loaded").inc()
                logger.info("reloaded %s from %s", old.name, old.path)

    def named(self, name: str) -> Served:
        """The model of this name.

        Raises:
            RequestError: if there is none.
        """
        if name not in self._served:
            raise RequestError(400, f"There is no model {name!r}; there are {', '.join(sorted(self._served))}.")
        return self._served[name]

    def for_pair(self, source: str, target: str) -> Served:
        """The first model from one language to another; `auto` as the source is allowed if only one fits.

        A source with a region, such as `de-AT`, is accepted by the model of its language. A target with a region is
        not, as a model writes only for the region that it names. A language without a region matches one with a region.

        Raises:
            RequestError: if there is no such model, or `auto` could be several languages.
        """
        for each in self:  # first, as nearly all requests match exactly
            if each.pair == (source, target):
                return each
        writing = [each for each in self if _writes(each.pair[1], target)]
        if not writing:
            raise RequestError(400, f"{target!r} is not supported as a target: no model here translates to it.")
        sources = list(dict.fromkeys(each.pair[0] for each in writing))
        if source != "auto":
            for reads in (_same, _reads):  # a model that names the region is preferred
                if found := next((each for each in writing if reads(each.pair[0], source)), None):
                    return found
            if not any(_reads(each.pair[0], source) for each in self):
                raise RequestError(400, f"{source!r} is not supported as a source: no model here translates from it.")
            raise RequestError(400, f"No model here translates from {source} to {target}.")
        if len(sources) > 1:
            raise RequestError(400, f"The source language cannot be auto: it may be {' or '.join(sources)}. Name it.")
        return writing[0]

    def choose(self, name: str | None, source: str | None, target: str | None) -> Served:
        """The model of a name or a language pair, or the only one.

        Raises:
            RequestError: if these do not determine a model.
        """
        if name is not None:
            found = self.named(name)
            if not (
                (source is None or _reads(found.pair[0], source)) and (target is None or _writes(found.pair[1], target))
            ):
                raise RequestError(400, f"The model {name!r} translates from {found.pair[0]} to {found.pair[1]}.")
            return found
        if target is not None:
            return self.for_pair(source or "auto", target)
        if len(self._served) > 1 or source is not None:
            raise RequestError(400, f"Name a model ({', '.join(sorted(self._served))}), or a pair of languages.")
        return next(iter(self._served.values()))

    def pairs(self) -> dict[str, list[str]]:
        """The target languages of each source language."""
        found: dict[str, list[str]] = {}
        for each in self:
            source, target = each.pair
            if target not in found.setdefault(source, []):
                found[source].append(target)
        return found

    def targets(self) -> list[str]:
        """All target languages."""
        return list(dict.fromkeys(each.pair[1] for each in self))


def _same(code: str, asked: str) -> bool:
    """Whether two codes are the same, ignoring case and separator: `en-US`, `en_us`."""
    return code.replace("_", "-").lower() == asked.replace("_", "-").lower()


def _writes(code: str, asked: str) -> bool:
    """Whether a model that writes `code` writes what is asked for."""
    return _same(code, asked) or _same(base_language(code), asked)


def _reads(code: str, asked: str) -> bool:
    """Whether a model that reads `code` reads text in another variant, or without a stated one."""
    return _writes(code, asked) or _same(code, base_language(asked))
