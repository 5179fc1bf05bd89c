"""What is known of languages by their codes."""

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "km", "my"})
"""Their sentences follow each other without a space, and so do most of their words."""


def base_language(code: str) -> str:
    """The language alone of a code that may name a region or a script too: `zh` of `zh-CN`, `pt` of `pt_BR`."""
    return code.replace("_", "-").partition("-")[0].lower()
