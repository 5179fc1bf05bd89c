"""Raw text in, raw text out: the interface that commands, servers and users of the package share."""

from jointnmt.translator.attention import AttentionTrace, attend
from jointnmt.translator.comparison import ModelComparison, compare
from jointnmt.translator.exploration import NextWords, TracedSearch, next_words, trace_search
from jointnmt.translator.limits import TextLimits
from jointnmt.translator.options import LoadOptions, TranslationOptions
from jointnmt.translator.results import Aligned, Candidate, ScoredTranslation, Translation, records
from jointnmt.translator.translator import Translator

__all__ = [
    "Aligned",
    "AttentionTrace",
    "Candidate",
    "LoadOptions",
    "ModelComparison",
    "NextWords",
    "ScoredTranslation",
    "TextLimits",
    "TracedSearch",
    "Translation",
    "TranslationOptions",
    "Translator",
    "attend",
    "compare",
    "next_words",
    "records",
    "trace_search",
]
