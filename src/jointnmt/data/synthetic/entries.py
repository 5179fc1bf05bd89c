"""The entries of the lexicon, typed: nouns, verbs, adjectives, adverbs, and what introduces a clause."""

from dataclasses import dataclass
from enum import Enum, auto

from jointnmt.data.synthetic.conjugation import EnglishVerb, GermanVerb
from jointnmt.data.synthetic.features import Case, Gender, Kind, Locality, Period, Person


@dataclass(frozen=True, slots=True)
class Preposition:
    """A German preposition with the case that it governs, and its English counterpart."""

    german: str
    case: Case
    english: str


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """One reading of a German noun; a noun with two readings has two entries."""

    german: str
    gender: Gender
    german_plural: str | None
    """None: never used in the plural."""
    weak: bool
    """Ends in -n in all cases but the nominative singular: der Junge, den Jungen."""
    english: str
    english_plural: str | None
    """None: a mass, without article and plural (milk)."""
    person: Person
    """The English pronoun that takes the singular up again."""
    kind: Kind
    where: Preposition | None = None
    """How one is at the place: im Garten, auf dem Markt."""
    whither: Preposition | None = None
    """How one goes to the place: in den Garten, auf den Markt."""
    evokes: Kind = Kind.NOTHING
    """Kinds that one expects at the place, by which it settles a word with two readings."""

    @property
    def mass(self) -> bool:
        return self.english_plural is None

    @property
    def english_pair(self) -> bool:
        """Plural in English though singular in German: eine Brille, a pair of glasses."""
        return self.english == self.english_plural and self.german_plural is None


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """One reading of a German adjective, with the kinds of nouns that it describes."""

    german: str
    english: str
    kind: Kind
    stem: str
    """What endings are put to: teuer, ein teures Kleid."""
    state: bool
    """A state that one can get into: müde werden."""
    gradable: bool
    """Goes with `sehr` and `zu`."""
    telling: bool
    """Says enough of a noun to settle its reading; what is big or beautiful could be anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A given name, the same in both languages."""

    text: str
    gender: Gender
    person: Person


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverb of time, place, manner, frequency, degree or reason, or one that asks for it."""

    german: str
    english: str
    period: Period = Period.ANY


@dataclass(frozen=True, slots=True)
class Argument:
    """What a verb asks of its object: the kinds of nouns, the case, and the German preposition, if any.

    The English preposition belongs to the English verb, where it also stays when the object moves away: the train
    that she waits for.
    """

    kind: Kind
    case: Case = Case.ACCUSATIVE
    preposition: str | None = None


class LinkForm(Enum):
    """The form of a linked clause: verb-final, verb-second, or an infinitive (English: to-infinitive or -ing)."""

    FINAL = auto()
    SECOND = auto()
    TO = auto()
    ING = auto()


@dataclass(frozen=True, slots=True)
class Link:
    """What joins a clause to another: a conjunction, or the mark of an infinitive."""

    german: str
    english: str
    form: LinkForm = LinkForm.FINAL
    comma: bool = False
    """Whether English puts a comma before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A German verb with its frame, and the English verb that renders it."""

    german: GermanVerb
    english: EnglishVerb
    subject: Kind
    direct: Argument | None = None
    recipient: Kind = Kind.NOTHING
    """Kinds of nouns that may be the dative beside an accusative or a clause; nothing: there is no such object."""
    links: tuple[Link, ...] = ()
    """The links of object clauses, one of which the verb needs; a clause without a link is an indirect question."""
    locality: Locality = Locality.OPTIONAL
    places: Kind = Kind.PLACE
    """Kinds of nouns that name the place."""
    stative: bool = False
    """English uses no progressive form of it, and it takes neither manner nor modal verb."""
    swapped: bool = False
    """The German object is the English subject: der Hut gefällt der Frau, the woman likes the hat."""


@dataclass(frozen=True, slots=True, eq=False)
class Modal:
    """A German modal verb, and the English phrases for present and past, affirmed and denied.

    An English phrase is a verb and what follows it up to the infinitive; it is None if it is not used.
    """

    german: GermanVerb
    present: EnglishVerb
    denied: EnglishVerb
    past: EnglishVerb | None


@dataclass(frozen=True, slots=True, eq=False)
class FixedPronoun:
    """A pronoun that asks or that speaks of anybody, with its German nominative, accusative and dative."""

    german: tuple[str, str, str]
    english: tuple[str, str]
    interrogative: bool
    negative: bool = False
