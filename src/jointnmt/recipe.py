"""Recipes: the configuration of an experiment in YAML files that may extend others, read into plain values.

`extends: FILE` is relative to the file with this key; `extends: package:NAME` is a recipe of the package. Paths in a
recipe are relative to it; `cwd:PATH` is relative to the working directory, `package:PATH` to the package, and
`package:NAME` in `training.from` is a model of the package.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from jointnmt.bounded_yaml import shorten
from jointnmt.config import Settings, merged, override, read_yaml
from jointnmt.errors import ConfigurationError
from jointnmt.models import FamilyConfig, find_family
from jointnmt.shipped import CONFIGURATION_FILE, MODELS, OF_PACKAGE, shipped_models
from jointnmt.text.config import FILES, LEARNT
from jointnmt.text.languages import check_code

logger = logging.getLogger(__name__)

PACKAGE = Path(__file__).parent
RECIPES = PACKAGE / "recipes"
"""Folder of the package's recipes; in a clone, a link to the folder of this name in its root."""

OF_WORKING_DIRECTORY = "cwd:"
"""Prefix of paths relative to the working directory."""

OF_HOME = "~/"
"""Prefix of paths relative to the user's folder."""

DEFAULT, OF_TRAINED = f"{OF_PACKAGE}small-corpus", f"{OF_PACKAGE}fine-tuning"
"""Recipes to complete one that extends none and lacks a model or training: from scratch, or from a trained model."""

ADAMW = "adamw"
"""The optimiser of recipes that name none."""

OF_MODEL = ("model", "segmentation")
"""Sections that are taken from a trained model."""

UNWRITTEN = Path("recipe")
"""Path that values which are not in a file count as being in."""

LANGUAGES = ("source_language", "target_language")
TEXTS = ("train", "validation")

PLACES = {
    ("data", "root"): PACKAGE,
    ("data", "cache"): PACKAGE,
    **{("segmentation", key): PACKAGE for key in FILES.values()},
    ("training", "from"): MODELS,
}
"""Keys with paths as values, and the folder that `package:` refers to in each."""


def read_recipe(recipe: Path | Mapping[str, Any], settings: Settings = ()) -> dict[str, Any]:
    """The values of a recipe and what it extends, with settings applied, and absolute paths.

    Args:
        recipe: a recipe file, or the values of one in the working directory.
        settings: values to replace; paths are relative to the working directory, those of texts to `data.root`.

    Raises:
        ConfigurationError: if a file cannot be read, recipes extend each other in a circle, or a language code is bad.
    """
    values: dict[str, Any] = {}
    for file, said in reversed(_with_default(_beginning_with(_chain(recipe), _start(override({}, settings))))):
        if _start(said) is not None:
            values = _without_model(values, file)
        values = _without_learnt(values, said, str(file))
        values = _over(values, _with_places(said, values, file.parent), str(file))
    values = _without_learnt(values, override({}, settings), "settings")
    values = _over_settings(values, settings)
    for (section, key), package in PLACES.items():
        if (given := _section(values, section)).get(key) is not None:
            given[key] = _complete(given[key], Path(), package)
    if "data" in values:
        values["data"] = _with_named_texts(_section(values, "data"))
    if _start(values) is not None:
        values = with_trained(values, values)
    _check_languages(_section(values, "data"), origin_of(recipe))
    return values


def origin_of(recipe: Path | Mapping[str, Any]) -> str:
    """Name of a recipe in messages."""
    return UNWRITTEN.name if isinstance(recipe, Mapping) else str(recipe)


def _without_model(inherited: dict[str, Any], file: Path) -> dict[str, Any]:
    """Inherited values without those that `training.from` replaces; rates of dropout are kept."""
    dropout = {key: rate for key, rate in _section(inherited, "model").items() if _is_dropout(key)}
    replaced = [part for part in OF_MODEL if part in inherited and inherited[part] != dropout]
    if replaced:
        logger.info("%s: %s from training.from, not as inherited", file, " and ".join(replaced))
    data = {key: value for key, value in _section(inherited, "data").items() if key not in LANGUAGES}
    kept = {name: value for name, value in inherited.items() if name not in OF_MODEL}
    kept |= {"model": dropout} if dropout else {}
    return {**kept, "data": data} if data else kept


def _without_learnt(inherited: dict[str, Any], said: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Inherited values without what is learnt of a segmentation, if its merges are given now."""
    segmentation = _section(inherited, "segmentation")
    replaced = [key for key in LEARNT if key in segmentation]
    if not replaced or _section(said, "segmentation").get(FILES["codes"]) is None:
        return inherited
    logger.info("%s: segmentation.from, not the inherited %s", origin, ", ".join(replaced))
    return {**inherited, "segmentation": {key: segmentation[key] for key in segmentation if key not in LEARNT}}


def _is_dropout(key: str) -> bool:
    """Whether a model's key is a dropout rate common to all families."""
    return key.endswith("dropout") and key in FamilyConfig.model_fields


def with_trained(values: dict[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the model, segmentation and languages of `training.from`, overridden by those in `said`.

    If the trained model no longer exists, complete values, such as a RUN's, are returned unchanged: a training that
    has begun resumes without it.

    Raises:
        ConfigurationError: if incomplete values name no trained model.
    """
    if "family" in _section(values, "model") and not has_trained(_start(values)):
        return values
    trained = read_trained(_start(values))
    languages = {key: _section(trained, "data").get(key) for key in LANGUAGES}
    data = {
        **_section(values, "data"),
        **languages,
        **{k: v for k, v in _section(said, "data").items() if k in languages},
    }
    sections = {part: _over(trained, dict(said), "training.from").get(part) for part in OF_MODEL}
    return {**values, **sections, "data": data}


def has_trained(folder: Any) -> bool:
    """Whether a folder, which may be anything that a recipe names, has a trained model."""
    return (Path(str(folder)) / CONFIGURATION_FILE).is_file()


def read_trained(folder: Any) -> dict[str, Any]:
    """The configuration of a trained model, given as its RUN or shared folder.

    Raises:
        ConfigurationError: if it is none, or cannot be read.
    """
    configuration = Path(str(folder)) / CONFIGURATION_FILE
    if not has_trained(folder):
        raise ConfigurationError(
            f"{configuration.parent}: is not a trained model for training.from ({configuration.name} is "
            "missing). Give the directory that training or `jointnmt share` wrote, or a model of the package: "
            f"{', '.join(OF_PACKAGE + name for name in shipped_models())}. A training that has begun goes on without "
            f"it if its recipe is {configuration.name} of its RUN."
        )
    return read_yaml(configuration)


def _start(values: Mapping[str, Any]) -> Any:
    return _section(values, "training").get("from")


def names() -> list[str]:
    """Names of the package's recipes, without those that exist only to be extended."""
    files = (file.relative_to(RECIPES) for file in RECIPES.rglob("*.yaml") if not file.name.startswith("_"))
    return sorted(file.with_suffix("").as_posix() for file in files)


def locate(name: str | Path) -> Path:
    """The file of a recipe, given as a path or as `package:NAME`, with or without its ending.

    Raises:
        ConfigurationError: if the package has no such recipe.
    """
    text = str(name)
    if not text.startswith(OF_PACKAGE):
        return Path(name)
    file = RECIPES / f"{text.removeprefix(OF_PACKAGE).removesuffix('.yaml')}.yaml"
    if ".." in file.parts or not file.is_file():
        near = get_close_matches(text.removeprefix(OF_PACKAGE), names(), 1)
        meant = f" Did you mean {OF_PACKAGE}{near[0]}?" if near else ""
        raise ConfigurationError(f"{shorten(text)}: there is no such recipe.{meant} `jointnmt recipes` lists all.")
    return file


class Description(NamedTuple):
    """What a bundled recipe is: first sentences of comments."""

    corpus: str
    """That of the nearest base recipe it extends; empty: it extends none."""
    own: str


def describe(name: str) -> Description:
    """Description of a bundled recipe."""
    path = locate(f"{OF_PACKAGE}{name}")
    of_corpus = [_first_sentence(file) for file, _ in _chain(path)[1:] if file.name.startswith("_")]
    return Description(next(iter(of_corpus), ""), _first_sentence(path))


def _first_sentence(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = [line.removeprefix("#").strip() for line in lines[: next(i for i, x in enumerate(lines) if x[:1] != "#")]]
    sentence, *_ = re.split(r"(?<! al)\. ", " ".join(comment), maxsplit=1)  # not at "et al."
    return f"{sentence.removesuffix('.').partition(': ')[0]}." if sentence else ""


def _chain(recipe: Path | Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """A recipe and those that it extends, each with its own values; the most basic one last."""
    chain: list[tuple[Path, dict[str, Any]]] = []
    following: Path | None
    if isinstance(recipe, Mapping):
        values = deepcopy(dict(recipe))
        chain.append((UNWRITTEN, values))
        following = _extended(values, UNWRITTEN)
    else:
        following = locate(recipe)
    while following is not None:
        if os.path.realpath(following) in (os.path.realpath(file) for file, _ in chain):
            raise ConfigurationError(f"{chain[0][0]}: recipes extend each other in a circle, through {following}.")
        values = _read(following, chain[-1][0] if chain else None)
        chain.append((following, values))
        following = _extended(values, following)
    return chain


def _beginning_with(chain: list[tuple[Path, dict[str, Any]]], start: Any) -> list[tuple[Path, dict[str, Any]]]:
    """The chain with `training.from` of the settings set in its first recipe, unless a file of it sets the key.

    The trained model then replaces inherited values, and the recipe is completed for fine-tuning.
    """
    (file, values), *inherited = chain
    if start is None or any(_start(said) is not None for _, said in chain):
        return chain
    training = {**_section(values, "training"), "from": _complete(start, Path(), MODELS)}
    return [(file, {**values, "training": training}), *inherited]


def _with_default(chain: list[tuple[Path, dict[str, Any]]]) -> list[tuple[Path, dict[str, Any]]]:
    """The chain, with a default recipe at its end if it is a single, incomplete recipe."""
    file, values = chain[-1]
    if len(chain) == 1 and not ("training" in values and "family" in _section(values, "model")):
        default = DEFAULT if _start(values) is None else OF_TRAINED
        logger.info("%s: model and training are completed by %s", file, default)
        return [*chain, (locate(default), read_yaml(locate(default)))]
    return chain


def _read(file: Path, asked_by: Path | None) -> dict[str, Any]:
    try:
        return read_yaml(file)
    except ConfigurationError as error:
        if asked_by is None or file.is_file():
            raise
        raise ConfigurationError(
            f"{asked_by}: extends a recipe that cannot be read: {error} A path is relative to {asked_by.name}; "
            f"{OF_PACKAGE}NAME is a recipe of the package (jointnmt recipes)."
        ) from error


def _extended(values: dict[str, Any], file: Path) -> Path | None:
    """Remove `extends` from the values; return the file that it names, if there is one."""
    extended = values.pop("extends", None)
    if extended is None:
        return None
    if not isinstance(extended, str):
        raise ConfigurationError(f"{file}: extends should be the name of one file (given: {shorten(repr(extended))}).")
    return locate(extended) if extended.startswith(OF_PACKAGE) else file.parent / extended


def _with_places(said: dict[str, Any], inherited: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a recipe in this folder, with absolute paths at the keys of `PLACES`.

    The root of a recipe with texts but no root is its folder; inherited texts keep their paths.
    """
    data = _with_named_texts(_section(said, "data"))
    if any(key in data for key in TEXTS) and data.get("root") is None:
        data["root"] = "."
        before = _section(inherited, "data")
        for key in TEXTS:
            if key not in data and isinstance(before.get(key), list):
                data[key] = [_moved(text, before.get("root")) for text in before[key]]
    changed = {"data": data} | {name: dict(_section(said, name)) for name in ("segmentation", "training")}
    for (section, key), package in PLACES.items():
        if changed[section].get(key) is not None:
            changed[section][key] = _complete(changed[section][key], folder, package)
    return {**said, **{name: section for name, section in changed.items() if section}}


def _with_named_texts(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with absolute paths for its texts' files that do not depend on the root: of `package:`, `cwd:` or `~/`."""

    def complete(path: str) -> str:
        return str(_complete(path, Path())) if path.startswith((OF_PACKAGE, OF_WORKING_DIRECTORY, OF_HOME)) else path

    texts = {key: data[key] for key in TEXTS if isinstance(data.get(key), list)}
    return {**data, **{key: [_with_files(text, complete) for text in given] for key, given in texts.items()}}


def _moved(text: Any, root: Any) -> Any:
    """A text with absolute paths, independent of the root."""
    return _with_files(text, lambda path: str(Path(root) / path)) if isinstance(root, str) else text


def _with_files(text: Any, change: Callable[[str], str]) -> Any:
    """A text with the paths of its files changed; other values are left to validation."""
    if not isinstance(text, dict):
        return text
    files = {key: change(path) for key in ("source", "target", "path") if isinstance(path := text.get(key), str)}
    return {**text, **files}


def _complete(path: Any, folder: Path, package: Path = PACKAGE) -> Any:
    """The absolute path of one relative to `folder`; other values are left to validation."""
    if not isinstance(path, str):
        return path
    for scheme, start in ((OF_PACKAGE, package), (OF_WORKING_DIRECTORY, Path())):
        if path.startswith(scheme):
            path, folder = path.removeprefix(scheme), start
    return os.path.abspath(folder / os.path.expanduser(path))  # noqa: PTH100, PTH111 (links stay; no error)


def _over(old: dict[str, Any], new: dict[str, Any], origin: str) -> dict[str, Any]:
    """`new` merged over `old`; if the family changes, keys of the old model that the new family lacks are dropped.

    If the optimiser changes, all settings of the old one are dropped.
    """
    family = _section(new, "model").get("family")
    inherited = _section(old, "model")
    chosen = find_family(family) if isinstance(family, str) else None
    if chosen is not None and inherited.get("family") not in (None, family):
        known = chosen.config.model_fields
        dropped = [key for key in inherited if key not in known]
        if dropped:
            logger.info(
                "%s: ignores inherited settings of the %s: %s",
                origin,
                inherited["family"],
                ", ".join(f"model.{key}" for key in dropped),
            )
        old = {**old, "model": {key: value for key, value in inherited.items() if key in known}}
    if (name := _optimizer(new).get("name")) is not None and name != _optimizer(old).get("name", ADAMW):
        if dropped := [f"training.optimizer.{key}" for key in _optimizer(old)]:
            logger.info("%s: ignores inherited settings of another optimiser: %s", origin, ", ".join(dropped))
        training = {key: value for key, value in _section(old, "training").items() if key != "optimizer"}
        old = {**old, "training": training}
    return merged(old, new)


def _over_settings(values: dict[str, Any], settings: Settings) -> dict[str, Any]:
    changed = override(values, settings)
    family = _section(changed, "model").get("family")
    if isinstance(family, str) and family != _section(values, "model").get("family"):
        values = _over(values, {"model": {"family": family}}, f"--set model.family={family}")
        changed = override(values, settings)
    name = _optimizer(changed).get("name", ADAMW)
    if isinstance(name, str) and name != _optimizer(values).get("name", ADAMW):
        values = _over(values, {"training": {"optimizer": {"name": name}}}, f"--set training.optimizer.name={name}")
        changed = override(values, settings)
    return changed


def _optimizer(values: Mapping[str, Any]) -> dict[str, Any]:
    return _section(_section(values, "training"), "optimizer")


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section that is a mapping; otherwise an empty one, and validation will report the error."""
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _check_languages(data: Mapping[str, Any], origin: str) -> None:
    for key in LANGUAGES:
        if isinstance(code := data.get(key), str) and (wrong := check_code(code)):
            raise ConfigurationError(f"{origin}: data.{key}: {wrong}")
