"""Languages by their codes and names, from langcodes.

Checking a code needs only langcodes' own list; the names are in another package, of some extras, which is imported only
when they are needed.
"""

from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from string import ascii_lowercase

from jointnmt.compression import plain_name
from jointnmt.errors import DataError
from jointnmt.extras import extra

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Languages written without spaces between sentences and most words."""
NAMED_IN = ("en", "de", "es", "fr", "it", "nl", "pl", "pt", "ru", "zh")
"""Languages in which names of languages are recognised."""


@lru_cache(1024)
def base_language(code: str) -> str:
    """The two-letter language of a code: `zh` for `zh-CN` and `zho`, `pt` for `pt_BR` and `por`."""
    language = code.replace("_", "-").partition("-")[0].lower()
    if len(language) != 3 or not (language.isascii() and language.isalpha()):
        return language
    import langcodes  # imported here: most codes have two letters

    return "zh" if language == "cmn" else langcodes.standardize_tag(language).partition("-")[0]


def has_spaces(code: str) -> bool:
    """Whether there are spaces between the sentences and words of a language."""
    return base_language(code) not in LANGUAGES_WITHOUT_SPACES


def space_of(code: str) -> str:
    """The separator between the sentences of a language."""
    return " " if has_spaces(code) else ""


def check_code(code: str) -> str | None:
    """The error for a code that BCP 47 does not have, with a suggestion; None: the code is valid."""
    import langcodes  # imported here: translating needs none of it

    if langcodes.tag_is_valid(code):
        return None
    try:
        meant = f" (is it {langcodes.find(code).to_tag()}?)"
    except (LookupError, ImportError):  # no such name, or no names are installed
        meant = ""
    return f"{code!r} is not a language code{meant}. Give a code such as de, en or pt-BR (ISO 639, BCP 47)."


def language_name(code: str) -> str:
    """A language's English name, such as `Portuguese (Brazil)`; its code, if it has none.

    Raises:
        MissingPackageError: if the names of languages are not installed.
    """
    import langcodes

    with extra("serve"):
        import language_data  # noqa: F401 (langcodes reads names out of it)
    return langcodes.get(code).display_name("en") if langcodes.tag_is_valid(code) else code


@cache
def languages_by_name() -> dict[str, str]:
    """Two-letter codes by code and by the names of their languages in `NAMED_IN`, in lower case.

    Raises:
        MissingPackageError: if the names of languages are not installed.
    """
    import langcodes

    with extra("data"):
        import language_data  # noqa: F401
    codes = [code for code in map("".join, product(ascii_lowercase, repeat=2)) if langcodes.tag_is_valid(code)]
    found = {code: code for code in codes}
    for language, code in product(NAMED_IN, codes):
        found.setdefault(langcodes.get(code).display_name(language).casefold(), code)
    return found


def num_words(text: str, language: str) -> int:
    """Number of words of a text, or of characters in a language without spaces."""
    return len(text.split()) if has_spaces(language) else len("".join(text.split()))


def check_sides(source: str, target: str, languages: tuple[str, str]) -> None:
    """Check by their file names, such as `test.de` and `test.en`, that source and target are not swapped.

    Args:
        source: file name of the source, possibly of a compressed file.
        target: file name of the target, possibly of a compressed file.
        languages: expected languages of source and target.

    Raises:
        DataError: if the names say that the source is in the target language and the target in the source language.
    """
    named = tuple(base_language(language_of_file(name)) for name in (source, target))
    wanted = tuple(map(base_language, languages))
    if named[0] != named[1] and named == wanted[::-1]:
        raise DataError(
            f"{source} and {target}: by the names of these files, the source is {named[0]} and the target {named[1]}, "
            f"but the model translates {wanted[0]} to {wanted[1]}. Swap them, or rename them if the names mislead."
        )


def language_of_file(name: str) -> str:
    """The extension of a file name, by convention the text's language: `de` for `test.de.gz`."""
    return Path(plain_name(Path(name))).suffix.removeprefix(".")
