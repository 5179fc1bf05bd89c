"""Neural machine translation with joint representations of source and target."""

import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from jointnmt.extras import extra

if TYPE_CHECKING:
    from jointnmt.training.run import train_recipe as train
    from jointnmt.translator import Translator

warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)  # torch without NumPy: not needed here

__version__ = version("jointnmt")
__all__ = ["Translator", "__version__", "train"]


def __getattr__(name: str) -> Any:
    """Import `Translator` and `train`, and with them torch, only on use, so that `import jointnmt` is fast."""
    if name == "Translator":
        from jointnmt.translator import Translator

        return Translator
    if name == "train":
        with extra("train"):
            from jointnmt.training.run import train_recipe

        return train_recipe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
