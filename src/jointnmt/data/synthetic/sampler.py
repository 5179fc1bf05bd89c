"""Drawing sentences: verbs and their objects, places, and the clauses inside and beside each clause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jointnmt.data.synthetic import lexicon, links, timing, verbs
from jointnmt.data.synthetic.entries import Adjective, Adverb, FixedPronoun, Link, LinkForm, Verb
from jointnmt.data.synthetic.features import Case, Gender, Kind, Locality, Negation, Role, Tense
from jointnmt.data.synthetic.modifiers import (
    ADJECTIVES,
    DEGREES,
    GLADLY,
    MANNERS,
    WHAT,
    WHEN_ASKED,
    WHERE,
    WHO,
    WHY,
    Article,
)
from jointnmt.data.synthetic.phrases import (
    DEFINITE_ARTICLES,
    PLAIN_ARTICLES,
    PhraseSampler,
    Scope,
    Wish,
)
from jointnmt.data.synthetic.tree import (
    Clause,
    Genitive,
    Linked,
    Nominal,
    NounPhrase,
    Place,
    Predicate,
    Pronoun,
    RelativePronoun,
    Sentence,
    Timing,
    Whose,
)

_ANIMATE = Kind.PERSON | Kind.ANIMAL
_GROUPS = (
    (verbs.INTRANSITIVE, 17),
    (verbs.LOCAL, 9),
    (verbs.TRANSITIVE, 30),
    (verbs.STATIVE, 9),
    (verbs.OBLIQUE, 10),
    (verbs.DITRANSITIVE, 7),
    ((verbs.BE,), 12),
    ((verbs.BECOME,), 2),
)
CLAUSAL, CLAUSAL_DECAY = 0.13, 0.75
ADVERBIAL, ADVERBIAL_DECAY = 0.16, 0.6
"""How likely a clause has an object clause or an adverbial clause, and by what factor less for each one around it."""


@dataclass(frozen=True)
class Plan:
    """What is settled of a clause before the rest of it is drawn."""

    verb: Verb
    adjective: Adjective | None = None
    given: Mapping[Role, Nominal | Adverb] = field(default_factory=dict)
    """Relative and interrogative words, and the subject of an infinitive that is understood."""
    kind: Kind = Kind.NOTHING
    """The kind of a given subject."""
    front: Role = Role.SUBJECT
    main: bool = False
    """Whether something else than the subject may come to stand in front."""
    infinitive: bool = False
    marked: bool = False
    """Whether the subject's case must show, because the relative pronoun's does not."""


class Sampler(PhraseSampler):
    """Draws the trees of sentences."""

    def sentence(self) -> Sentence:
        """The tree of one sentence."""
        self.mentions.clear()
        scope = Scope(past=self.dice.chance(0.35))
        match self.dice.weigh((("statement", 72), ("compound", 8), ("polar", 8), ("question", 12))):
            case "compound":
                return self._compound(scope)
            case "polar":
                return Sentence(self._clause(self._any_plan(scope), replace(scope, depth=1)), question=True)
            case "question":
                return Sentence(self._asking_clause(replace(scope, depth=1)), question=True)
        return Sentence(self._clause(replace(self._any_plan(scope), main=True), scope))
    ...
