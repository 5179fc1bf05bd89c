"""Search: translation of source sentences by beam search or sampling, and rescoring of given translations."""

from jointnmt.search.beam import SearchConfig, beam_search
from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.rules import Constraint, RulesConfig, target_limit, target_limits
from jointnmt.search.sampling import SamplingConfig, sample, sentence_generator
from jointnmt.search.scoring import LengthPenalty, Rescored, rescore, rescore_with_next
from jointnmt.search.trace import SearchNode, SearchTrace, SearchTree

__all__ = [
    "Constraint",
    "Hypothesis",
    "LengthPenalty",
    "Rescored",
    "RulesConfig",
    "SamplingConfig",
    "SearchConfig",
    "SearchNode",
    "SearchTrace",
    "SearchTree",
    "beam_search",
    "rescore",
    "rescore_with_next",
    "sample",
    "sentence_generator",
    "target_limit",
    "target_limits",
]
