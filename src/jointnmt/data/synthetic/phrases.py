"""Drawing nominals: noun phrases whose reading is settled, and pronouns whose antecedent is.

A German sentence must have one English translation only. So a noun with two readings is drawn only where something
settles which is meant: the verb, the place, an adjective, or a relative clause. And a pronoun of the third person is
drawn only if it can take up exactly one noun of an earlier clause, or, for somebody not named, none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jointnmt.data.synthetic import lexicon
from jointnmt.data.synthetic.declension import pronoun
from jointnmt.data.synthetic.dice import Dice
from jointnmt.data.synthetic.entries import FixedPronoun, Name, Noun
from jointnmt.data.synthetic.features import HE, SHE, THEY, WE, YOU, Agreement, Case, Gender, I, Kind, Person
from jointnmt.data.synthetic.modifiers import NOBODY, SOMEBODY, Article
from jointnmt.data.synthetic.nouns import NAMES
from jointnmt.data.synthetic.tree import (
    Clause,
    Coordination,
    Determiner,
    Genitive,
    Nominal,
    NounPhrase,
    Place,
    Possessive,
    Pronoun,
    agreement_of,
    person_of,
)

SPEAKERS = (
    Pronoun(Agreement(Gender.MASCULINE, person=1), I),
    Pronoun(Agreement(Gender.MASCULINE, person=2), YOU),
    Pronoun(Agreement(Gender.MASCULINE, plural=True, person=1), WE),
    Pronoun(Agreement(Gender.MASCULINE, plural=True, person=2), YOU),
)
STRANGERS = (
    Pronoun(Agreement(Gender.MASCULINE), HE),
    Pronoun(Agreement(Gender.FEMININE), SHE),
    Pronoun(Agreement(Gender.MASCULINE, plural=True), THEY),
)
"""Pronouns of people whom the sentence does not name."""

Articles = Sequence[tuple[Article, int]]
"""Articles with their weights."""

PLAIN_ARTICLES: Articles = ((Article.THE, 65), (Article.A, 28), (Article.THIS, 7))
DEFINITE_ARTICLES: Articles = ((Article.THE, 90), (Article.THIS, 10))
_SINGULAR_ARTICLES = (*PLAIN_ARTICLES, (Article.EVERY, 3))
_PLURAL_ARTICLES = (
    *PLAIN_ARTICLES,
    *((Article.ALL, 6), (Article.MANY, 10), (Article.SOME, 8), (Article.TWO, 10), (Article.THREE, 6)),
)
_SUBJECTS = (("noun", 60), ("speaker", 17), ("name", 9), ("stranger", 7), ("pair", 4), ("anybody", 3))

PLURAL = 0.2
ADJECTIVE = 0.2
RELATIVE, RELATIVE_DECAY = 0.12, 0.75
"""How likely a noun has a relative clause, and by what factor less for each clause around it."""


@dataclass(frozen=True)
class Mention:
    """Somebody or something that the sentence has named, which a pronoun may take up."""

    agreement: Agreement
    person: Person
    kind: Kind


@dataclass(frozen=True)
class Scope:
    """What a clause inherits from the sentence around it."""

    depth: int = 0
    """How many clauses are around it; the deeper, the fewer clauses it has in turn."""
    past: bool = False
    timed: bool = True
    """Whether it may have adverbs of time and any tense, or only the plain present or preterite."""
    known: tuple[Mention, ...] = ()
    """What earlier clauses have named."""
    third_person: bool = True
    """Whether it may have pronouns of the third person."""


@dataclass(frozen=True)
class Wish:
    """What a place in a clause asks of its nominal."""

    kinds: Kind
    asked: Kind
    """The kinds by which the German verb settles a reading."""
    scene: Kind = Kind.NOTHING
    """The kinds that the clause's place evokes, which settle a reading too."""
    owner: Nominal | None = None
    """The subject of the clause, which `sein` and `ihr` refer to."""
    articles: Articles | None = None
    """The articles to draw from, if not from all."""
    relative: bool = False
    """Whether it may have a relative clause."""
    marked: bool = False
    """Whether the nominative must show: in the masculine singular, and in pronouns of the first and second person."""
    polite: bool = False
    """Whether to leave out du and ihr, which are rare in the preterite."""


RelativeClause = Callable[[NounPhrase, Scope, bool], Clause | None]
"""Draws a relative clause on a phrase; if it must settle the phrase's reading and none does, None."""


class Phrases:
    """Draws the nominals of a sentence and remembers what it has named."""

    def __init__(self, dice: Dice, relative_clause: RelativeClause) -> None:
        self.dice = dice
        self.mentions: list[Mention] = []
        self._relative_clause = relative_clause

    @property
    def known(self) -> tuple[Mention, ...]:
        """What the sentence has named so far."""
        return tuple(self.mentions)

    def noun_phrase(self, wish: Wish, scope: Scope) -> NounPhrase:
        """A noun phrase that fits, its reading settled."""
        nouns = (lexicon.masculine_nouns_of if wish.marked else lexicon.nouns_of)(wish.kinds)
        while True:
            noun = self.dice.pick(nouns)
            plural = noun.german_plural is not None and not wish.marked and self.dice.chance(PLURAL)
            bare = NounPhrase(noun, self._determiner(noun, plural, wish), plural)
            remembered = len(self.mentions)
            self._mention(bare, noun.kind)
            settled = lexicon.settles(wish.asked, noun, plural) or lexicon.settles(wish.scene, noun, plural)
            phrase = self._describe(bare, wish, scope) if settled else self._settle(bare, wish, scope)
            if phrase is not None:
                return phrase
            del self.mentions[remembered:]

    def subject(self, wish: Wish, scope: Scope) -> tuple[Nominal, Kind]:
        """A subject that fits, and its kind."""
        if self.dice.chance(0.5) and (resumed := self.resumed(wish, scope, Case.NOMINATIVE)) is not None:
            return resumed
        choice = self.dice.weigh(_SUBJECTS) if Kind.PERSON & wish.kinds else "noun"
        if choice == "speaker":
            return self.dice.pick(SPEAKERS[::2] if wish.polite else SPEAKERS), Kind.PERSON
        person = self._unmarked_person(choice, wish, scope) if not wish.marked else None
        if person is not None:
            return person, Kind.PERSON
        phrase = self.noun_phrase(wish, scope)
        return phrase, phrase.noun.kind

    def object(self, wish: Wish, scope: Scope, case: Case, subject: Nominal | None) -> Nominal:
        """An object that fits: a pronoun, a name, or a noun phrase."""
        resumed = self.resumed(wish, scope, case) if self.dice.chance(0.4) else None
        # A subject and an object that took up the same noun would have to be reflexive.
        if resumed and not (isinstance(subject, Pronoun) and subject.agreement == agreement_of(resumed[0])):
            return resumed[0]
        if Kind.PERSON & wish.kinds and subject is not None:
            choice = self.dice.weigh((("noun", 80), ("speaker", 9), ("name", 7), ("stranger", 4)))
            if choice == "speaker" and agreement_of(subject).person == 3:
                return self.dice.pick(SPEAKERS)
            if choice == "name":
                return self._name()
            if choice == "stranger" and (stranger := self._stranger(scope, case)) is not None:
                return stranger
        return self.noun_phrase(wish, scope)

    def resumed(self, wish: Wish, scope: Scope, case: Case) -> tuple[Nominal, Kind] | None:
        """A pronoun that takes up the one noun of an earlier clause that it can mean, and the noun's kind."""
        if not scope.third_person or wish.marked:
            return None
        for mention in reversed(scope.known):
            form = pronoun(mention.agreement, case)
            rivals = [other for other in scope.known if pronoun(other.agreement, case) == form]
            if len(rivals) == 1 and mention.kind & wish.kinds:
                return Pronoun(mention.agreement, mention.person), mention.kind
        return None

    def place(self, kinds: Kind, goal: bool, owner: Nominal | None) -> Place:
        """A place where something happens, or a goal."""
        noun = self.dice.pick(lexicon.places(kinds, goal))
        preposition = noun.whither if goal else noun.where
        assert preposition is not None, f"{noun.german} is no place"
        wish = Wish(noun.kind, noun.kind, owner=owner, articles=((Article.THE, 82), (Article.A, 12), (Article.THIS, 6)))
        phrase = NounPhrase(noun, self._determiner(noun, False, wish))
        self._mention(phrase, noun.kind)
        return Place(preposition, self._describe(phrase, wish, Scope()))

    def _describe(self, phrase: NounPhrase, wish: Wish, scope: Scope) -> NounPhrase:
        """The phrase, perhaps with an adjective or a relative clause."""
        adjectives = lexicon.adjectives_for(phrase.noun)
        if adjectives and self.dice.chance(ADJECTIVE):
            phrase = replace(phrase, adjective=self.dice.pick(adjectives))
        if wish.relative and self.dice.chance(RELATIVE * RELATIVE_DECAY**scope.depth):
            phrase = replace(phrase, relative=self._relative_clause(phrase, scope, False))
        return phrase

    def _settle(self, phrase: NounPhrase, wish: Wish, scope: Scope) -> NounPhrase | None:
        """The phrase with an adjective or a relative clause that settles its reading, if there is any."""
        if wish.relative and self.dice.chance(0.6):
            relative = self._relative_clause(phrase, scope, True)
            if relative is not None:
                return replace(phrase, relative=relative)
        adjectives = lexicon.settling_adjectives(phrase.noun, phrase.plural)
        return replace(phrase, adjective=self.dice.pick(adjectives)) if adjectives else None

    def _determiner(self, noun: Noun, plural: bool, wish: Wish) -> Determiner:
        if self.dice.chance(0.16) and lexicon.can_be_owned(noun):
            return self._possessive(wish, ambiguous=plural and noun.german == noun.german_plural)
        if wish.articles is not None:
            return self.dice.weigh(wish.articles)
        if noun.mass or noun.english_pair:
            return self.dice.weigh(PLAIN_ARTICLES[:2])
        return self.dice.weigh(_PLURAL_ARTICLES if plural else _SINGULAR_ARTICLES)

    def _possessive(self, wish: Wish, ambiguous: bool) -> Determiner:
        """The subject's possessive if there can be one, or else mine, yours, ours or a name's.

        A name leaves open whether a noun of one form is singular or plural: Annas Messer.
        """
        owner = wish.owner
        if owner is not None and not isinstance(owner, FixedPronoun) and self.dice.chance(0.7):
            return Possessive(agreement_of(owner), person_of(owner))
        if not wish.marked and not ambiguous and self.dice.chance(0.25):
            return Genitive(self.dice.pick(NAMES))
        speaker = self.dice.pick(SPEAKERS[:3])
        return Possessive(speaker.agreement, speaker.person)

    def _unmarked_person(self, choice: str, wish: Wish, scope: Scope) -> Nominal | None:
        if choice == "name":
            return self._name()
        if choice == "stranger":
            return self._stranger(scope, Case.NOMINATIVE)
        if choice == "anybody" and wish.articles is None:
            return self.dice.pick((SOMEBODY, NOBODY))
        return self._pair(wish, scope) if choice == "pair" else None

    def _name(self) -> Name:
        name = self.dice.pick(NAMES)
        self._mention(name, Kind.PERSON)
        return name

    def _stranger(self, scope: Scope, case: Case) -> Pronoun | None:
        """A pronoun of somebody not named, if nothing named before can be meant by it.

        German `sie` as an object does not tell her from them, so it is left out.
        """
        stranger = self.dice.pick(STRANGERS)
        form = pronoun(stranger.agreement, case)
        if not scope.third_person or any(pronoun(other.agreement, case) == form for other in scope.known):
            return None
        if case is Case.ACCUSATIVE and form == "sie":
            return None
        self._mention(stranger, Kind.PERSON)
        return stranger

    def _pair(self, wish: Wish, scope: Scope) -> Coordination:
        """Two people joined by `und`."""
        alone = replace(wish, kinds=Kind.PERSON, relative=False, articles=DEFINITE_ARTICLES)
        first = self._name() if self.dice.chance(0.4) else self.noun_phrase(alone, scope)
        second = self.noun_phrase(alone, scope)
        pair = Coordination(first, second)
        self._mention(pair, Kind.PERSON)
        return pair

    def _mention(self, phrase: Nominal, kind: Kind) -> None:
        self.mentions.append(Mention(agreement_of(phrase), person_of(phrase), kind))
