"""Raw text in, raw text out: the interface that commands, servers and users of the package share."""

from jointnmt.runs.loading import load_run
from jointnmt.translator.attention import AttentionTrace, attend
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.results import Aligned, Candidate, ScoredTranslation, Translation
from jointnmt.translator.translator import Translator

__all__ = [
    "Aligned",
    "AttentionTrace",
    "Candidate",
    "ScoredTranslation",
    "Translation",
    "TranslationOptions",
    "Translator",
    "attend",
    "load_run",
]
