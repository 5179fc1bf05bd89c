"""Raw text in, raw text out: what the command line, servers and users of the package share."""

from jointnmt.runs.loading import load_run
from jointnmt.translator.attending import Attended, attend
from jointnmt.translator.results import Aligned, Candidate, ScoredTranslation, Translation
from jointnmt.translator.translator import TranslationOptions, Translator

__all__ = [
    "Aligned",
    "Attended",
    "Candidate",
    "ScoredTranslation",
    "Translation",
    "TranslationOptions",
    "Translator",
    "attend",
    "load_run",
]
