"""Neural machine translation with joint representations of source and target."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jointnmt.translator import Translator

__version__ = version("jointnmt")
__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> Any:
    """Import `Translator`, and with it torch, only when it is asked for, so that `import jointnmt` is quick."""
    if name == "Translator":
        from jointnmt.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
