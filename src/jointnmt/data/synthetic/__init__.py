"""The embedded corpus: a generator of German-English sentence pairs from a hand-written grammar and lexicon.

It is synthetic, and meant to be told from real text at a glance. It has what makes translation from German hard:
verb-second and verb-final order, separable verbs, the verb bracket, case and gender agreement, relative and
subordinate clauses of any depth, negation, pronouns whose English depends on their antecedent, and words whose
translation depends on another word far away. Every German sentence has exactly one English translation.

A tree (`tree`) is drawn at random (`sampler`, with `phrases`, `plans` and `timing`) and realised in both languages
(`german` with `declension`, `english`). The words are in `nouns`, `verbs`, `modifiers` and `links`.
"""

from jointnmt.data.synthetic.corpus import Split, SyntheticPair, generate, split_of, write_corpus

__all__ = ["Split", "SyntheticPair", "generate", "split_of", "write_corpus"]
