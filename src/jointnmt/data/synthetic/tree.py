"""The abstract tree of a sentence: one tree is realised in German and in English.

It says who does what to whom, where and when, and what stands in front; order, inflection and function words are the
realisers' (`german`, `english`).
"""

from __future__ import annotations

from dataclasses import dataclass

from jointnmt.data.synthetic.entries import (
    Adjective,
    Adverb,
    FixedPronoun,
    Link,
    Modal,
    Name,
    Noun,
    Preposition,
    Verb,
)
from jointnmt.data.synthetic.features import IT, THEY, Agreement, Gender, Negation, Person, Role, Tense
from jointnmt.data.synthetic.modifiers import WHEN_ASKED, WHERE, WHY, Article


@dataclass(frozen=True, slots=True)
class Possessive:
    """A possessive article: its stem follows the owner's German agreement, its English word the owner's person."""

    owner: Agreement
    person: Person


@dataclass(frozen=True, slots=True)
class Genitive:
    """A name in the genitive before a noun: Annas Hund."""

    name: Name


@dataclass(frozen=True, slots=True)
class Whose:
    """The relative pronoun in the genitive: dessen, deren."""

    head: Agreement


Determiner = Article | Possessive | Genitive | Whose


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with its article, at most one adjective, and a relative clause."""

    noun: Noun
    determiner: Determiner = Article.THE
    plural: bool = False
    adjective: Adjective | None = None
    relative: Clause | None = None

    @property
    def agreement(self) -> Agreement:
        return Agreement(self.noun.gender, self.plural)

    @property
    def person(self) -> Person:
        return THEY if self.plural or self.noun.english_pair else self.noun.person

    @property
    def definite(self) -> bool:
        """Whether it comes before adverbs and `nicht`."""
        return self.determiner in (Article.THE, Article.THIS) or not isinstance(self.determiner, Article)


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun: the German agrees with its antecedent's gender, the English with what the antecedent is."""

    agreement: Agreement
    person: Person


@dataclass(frozen=True, slots=True)
class RelativePronoun:
    """The head of a relative clause, which takes up a noun phrase."""

    agreement: Agreement
    person: Person
    human: bool


@dataclass(frozen=True, slots=True)
class Coordination:
    """Two noun phrases or names joined by `und`."""

    first: NounPhrase | Name
    second: NounPhrase | Name


Nominal = NounPhrase | Pronoun | RelativePronoun | Coordination | Name | FixedPronoun


@dataclass(frozen=True, slots=True)
class Place:
    """Where something happens or where it goes."""

    preposition: Preposition
    phrase: NounPhrase | RelativePronoun


@dataclass(frozen=True, slots=True)
class Predicate:
    """What `sein` and `werden` say of their subject: an adjective with a degree, or with a comparison (so alt wie)."""

    adjective: Adjective
    degree: Adverb | None = None
    equal_to: NounPhrase | Name | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """All that the finite verb and the adverbs of time say."""

    tense: Tense = Tense.PRESENT
    time: Adverb | None = None
    frequency: Adverb | None = None
    negation: Negation = Negation.NONE
    modal: Modal | None = None


@dataclass(frozen=True, slots=True)
class Linked:
    """A clause with what joins it to the clause before it or around it."""

    link: Link
    clause: Clause


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of any form: main, subordinate, relative, or an infinitive, which has no subject."""

    verb: Verb
    subject: Nominal | None
    direct: Nominal | None = None
    """The object of the verb's frame, whatever its case."""
    indirect: Nominal | None = None
    """The dative beside an accusative or a clause."""
    predicate: Predicate | None = None
    place: Place | Adverb | None = None
    manner: Adverb | None = None
    timing: Timing = Timing()
    complement: Linked | None = None
    adjunct: Linked | None = None
    front: Role = Role.SUBJECT
    """What stands before the finite verb of a statement, or is asked for, or is the relative pronoun's role."""
    reason: Adverb | None = None


@dataclass(frozen=True, slots=True)
class Sentence:
    """A main clause, perhaps a second one joined to it, and whether it asks.

    A question whose front is not interrogative is answered by yes or no.
    """

    clause: Clause
    question: bool = False
    second: Linked | None = None


def agreement_of(nominal: Nominal) -> Agreement:
    """The German agreement of a nominal."""
    if isinstance(nominal, Coordination):
        return Agreement(Gender.NEUTER, plural=True)
    if isinstance(nominal, Name):
        return Agreement(nominal.gender)
    if isinstance(nominal, FixedPronoun):
        return Agreement(Gender.MASCULINE)
    return nominal.agreement


def person_of(nominal: Nominal) -> Person:
    """The English pronoun that a nominal agrees with."""
    if isinstance(nominal, Coordination):
        return THEY
    return IT if isinstance(nominal, FixedPronoun) else nominal.person


def asks_for_part(clause: Clause) -> bool:
    """Whether the front of a question is interrogative (who, where, why), so that it is no question of yes or no."""
    part = {
        Role.SUBJECT: clause.subject,
        Role.DIRECT: clause.direct,
        Role.INDIRECT: clause.indirect,
        Role.TIME: clause.timing.time,
        Role.PLACE: clause.place,
        Role.REASON: clause.reason,
    }.get(clause.front)
    if isinstance(part, FixedPronoun):
        return part.interrogative
    return part in (WHERE, WHEN_ASKED, WHY)
