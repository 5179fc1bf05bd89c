"""Looking up the lexicon: which nouns, verbs and adjectives go together, and which words settle another's reading."""

from functools import cache

from jointnmt.data.synthetic.entries import Adjective, Noun, Verb
from jointnmt.data.synthetic.features import Gender, Kind, Locality, Role
from jointnmt.data.synthetic.links import ADVERBIAL_LINKS, MAIN_LINKS, THAT, WHETHER
from jointnmt.data.synthetic.modifiers import (
    ADJECTIVES,
    ALREADY,
    DEGREES,
    FREQUENCIES,
    FUTURE_TIMES,
    GLADLY,
    HABITS,
    MANNERS,
    NEVER,
    NOBODY,
    PAST_TIMES,
    PRESENT_TIMES,
    SOMEBODY,
    WHAT,
    WHEN_ASKED,
    WHERE,
    WHO,
    WHY,
    Article,
)
from jointnmt.data.synthetic.nouns import NAMES, NOUNS
from jointnmt.data.synthetic.verbs import MODALS, VERBS


def size() -> dict[str, int]:
    """How many entries of each part of speech the lexicon has; a word with two readings has two entries."""
    adverbs = (*PAST_TIMES, *PRESENT_TIMES, *FUTURE_TIMES, *HABITS, *FREQUENCIES, *MANNERS, *DEGREES)
    return {
        "nouns": len(NOUNS),
        "names": len(NAMES),
        "verbs": len({(verb.german, verb.english) for verb in VERBS}) + len(MODALS),
        "adjectives": len(ADJECTIVES),
        "adverbs": len((*adverbs, NEVER, ALREADY, GLADLY, WHERE, WHEN_ASKED, WHY)),
        "articles and pronouns": len(Article) + len((WHO, WHAT, SOMEBODY, NOBODY)),
        "conjunctions": len((*ADVERBIAL_LINKS, *MAIN_LINKS, THAT, WHETHER)),
    }


@cache
def nouns_of(kinds: Kind) -> tuple[Noun, ...]:
    """All nouns of any of the kinds."""
    return tuple(noun for noun in NOUNS if noun.kind & kinds)


@cache
def can_be_owned(noun: Noun) -> bool:
    """Whether the noun goes with a possessive: places seldom do, and meine Frau is not my woman but my wife."""
    return not noun.kind & Kind.SPOUSE and (not noun.kind & Kind.PLACE or bool(noun.kind & Kind.HOME))


@cache
def masculine_nouns_of(kinds: Kind) -> tuple[Noun, ...]:
    """The masculine nouns among them, whose article tells the nominative from the accusative."""
    return tuple(noun for noun in nouns_of(kinds) if noun.gender is Gender.MASCULINE)


@cache
def places(kinds: Kind, goal: bool) -> tuple[Noun, ...]:
    """The nouns that name a place of these kinds where one can be, or where one can go."""
    return tuple(
        noun
        for noun in nouns_of(kinds)
        if (preposition := noun.whither if goal else noun.where) is not None
        and not any(
            other.kind & kinds
            and (rival := other.whither if goal else other.where) is not None
            and rival.german == preposition.german
            for other in rivals(noun, plural=False)
        )
    )


@cache
def rivals(noun: Noun, plural: bool) -> tuple[Noun, ...]:
    """The other readings of the noun's German form."""
    if plural:
        return tuple(other for other in NOUNS if other is not noun and other.german_plural == noun.german_plural)
    same = (other for other in NOUNS if other is not noun and other.german == noun.german)
    return tuple(other for other in same if other.gender is noun.gender)


@cache
def settles(kinds: Kind, noun: Noun, plural: bool) -> bool:
    """Whether a word that asks for these kinds leaves this reading of the noun, and no other."""
    return bool(noun.kind & kinds) and not any(other.kind & kinds for other in rivals(noun, plural))


@cache
def asked_kinds(verb: Verb, role: Role) -> Kind:
    """The kinds that the German verb asks for in a role: those of all its readings with the same frame."""
    kinds = Kind.NOTHING
    for reading in VERBS:
        if reading.german == verb.german and _frame(reading) == _frame(verb):
            kinds |= own_kinds(reading, role)
    return kinds


@cache
def readings(verb: Verb) -> int:
    """How many English verbs the German verb has in this frame; the object tells which is meant."""
    return sum(other.german == verb.german and _frame(other) == _frame(verb) for other in VERBS)


def _frame(verb: Verb) -> tuple[object, ...]:
    direct = verb.direct
    return (
        None if direct is None else (direct.case, direct.preposition),
        bool(verb.recipient),
        bool(verb.links),
        verb.locality is Locality.GOAL,
    )


@cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that may describe the noun."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.kind & noun.kind)


@cache
def settling_adjectives(noun: Noun, plural: bool) -> tuple[Adjective, ...]:
    """The adjectives that leave this reading of the noun only."""
    telling = (adjective for adjective in adjectives_for(noun) if adjective.telling)
    return tuple(adjective for adjective in telling if settles(adjective_kinds(adjective.german), noun, plural))


@cache
def adjective_kinds(german: str) -> Kind:
    """The kinds that a German adjective may describe in any of its readings."""
    kinds = Kind.NOTHING
    for adjective in ADJECTIVES:
        if adjective.german == german:
            kinds |= adjective.kind
    return kinds


@cache
def verbs_for(noun: Noun, plural: bool, role: Role, settling: bool) -> tuple[Verb, ...]:
    """The verbs in whose role the noun may stand; if `settling`, those that leave this reading of it only."""
    return tuple(
        verb
        for verb in VERBS
        if noun.kind & own_kinds(verb, role) and (not settling or settles(asked_kinds(verb, role), noun, plural))
    )


@cache
def verbs_of(subject: Kind, among: tuple[Verb, ...]) -> tuple[Verb, ...]:
    """Those of the verbs whose subject may be of one of these kinds."""
    return tuple(verb for verb in among if verb.subject & subject)


def own_kinds(verb: Verb, role: Role) -> Kind:
    """The kinds that a reading of a verb asks for in a role."""
    if role is Role.SUBJECT:
        return verb.subject
    if role is Role.DIRECT:
        return verb.direct.kind if verb.direct is not None else Kind.NOTHING
    return verb.recipient
