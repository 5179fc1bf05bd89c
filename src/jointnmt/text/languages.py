"""What is known of languages by their codes."""

from pathlib import Path

from jointnmt.errors import DataError

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Their sentences follow each other without a space, and so do most of their words."""


def base_language(code: str) -> str:
    """The language alone of a code that may name a region or a script too: `zh` of `zh-CN`, `pt` of `pt_BR`."""
    return code.replace("_", "-").partition("-")[0].lower()


def check_sides(source: str, target: str, languages: tuple[str, str]) -> None:
    """See that two texts are not exchanged, as far as their files' names tell: `test.de` and `test.en`, say.

    Args:
        source: the name of the file, `.gz` and `.xz` aside.
        target: likewise.
        languages: of source and target, as they should be.

    Raises:
        DataError: if the names say that the source is in the target language and the target in the source language.
    """
    told = tuple(base_language(_ending(name)) for name in (source, target))
    wanted = tuple(map(base_language, languages))
    if told[0] != told[1] and told == wanted[::-1]:
        raise DataError(
            f"{source} and {target}: by the names of these files, the source is {told[0]} and the target {told[1]}, "
            f"but the model translates {wanted[0]} to {wanted[1]}. Exchange them, or rename them if the names mislead."
        )


def _ending(name: str) -> str:
    return Path(name.removesuffix(".gz").removesuffix(".xz")).suffix.removeprefix(".")
