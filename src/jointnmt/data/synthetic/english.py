"""English clauses: word order, do-support, and the tense that the German tense and adverbs ask for together."""

from dataclasses import dataclass
from enum import Enum, auto

from jointnmt.data.synthetic.conjugation import EnglishVerb, english_verb
from jointnmt.data.synthetic.entries import Adverb, FixedPronoun, LinkForm, Modal, Name
from jointnmt.data.synthetic.features import Negation, Period, Person, Role, Tense
from jointnmt.data.synthetic.modifiers import GLADLY, Article
from jointnmt.data.synthetic.surface import COMMA, with_articles, write
from jointnmt.data.synthetic.tree import (
    Clause,
    Coordination,
    Genitive,
    Linked,
    Nominal,
    NounPhrase,
    Place,
    Possessive,
    Predicate,
    Pronoun,
    RelativePronoun,
    Sentence,
    Timing,
    Whose,
    asks_for_part,
    person_of,
)

_BE, _HAVE, _WILL, _DO = (english_verb(base) for base in ("be", "have", "will", "do"))
_LIKE = english_verb(GLADLY.english)


class Form(Enum):
    """A finite clause with the subject first, a question with the auxiliary before it, or a clause without subject."""

    STATEMENT = auto()
    QUESTION = auto()
    TO = auto()
    ING = auto()


@dataclass(frozen=True, slots=True)
class Chain:
    """A verb group: the finite verb, whether it is past, whether it is an auxiliary, and the words that follow it."""

    finite: EnglishVerb
    past: bool
    auxiliary: bool
    rest: tuple[str, ...]


def sentence(tree: Sentence) -> str:
    """The English text of a sentence."""
    words = _clause(tree.clause, Form.QUESTION if tree.question else Form.STATEMENT)
    if tree.second is not None:
        words += _linked(tree.second)
    return write(with_articles(words), "?" if tree.question else ".")


def _clause(clause: Clause, form: Form) -> list[str]:
    if form in (Form.TO, Form.ING):
        verb = clause.verb.english
        denial = [] if clause.timing.negation is Negation.NONE else ["not"]
        head = ["to", verb.base] if form is Form.TO else [verb.ing]
        return [*denial, *head, *verb.tail, *_after_verb(clause, None)]
    subject, subject_role, _, _ = _roles(clause)
    asked = _asked_or_relative(clause)
    front = _front(clause)
    words = [] if asked and clause.front is subject_role else _nominal(subject, subject=True)
    inverted = form is Form.QUESTION and not (asked and clause.front is subject_role)
    return [*front, *_finite(clause, words, person_of(subject), inverted), *_after_verb(clause, clause.front)]


def _roles(clause: Clause) -> tuple[Nominal, Role, Nominal | None, Role]:
    """The English subject and object with their German roles, which verbs such as `gefallen` swap."""
    assert clause.subject is not None, "a finite clause has a subject"
    if clause.verb.swapped and clause.direct is not None:
        return clause.direct, Role.DIRECT, clause.subject, Role.SUBJECT
    return clause.subject, Role.SUBJECT, clause.direct, Role.DIRECT


def _asked_or_relative(clause: Clause) -> bool:
    """Whether the German front is an interrogative or a relative pronoun, which leads the English clause too."""
    return asks_for_part(clause) or _relative_front(clause) is not None


def _relative_front(clause: Clause) -> list[str] | None:
    """The words of the relative pronoun that leads a clause, None if none does."""
    _, subject_role, _, _ = _roles(clause)
    part = {
        Role.SUBJECT: clause.subject,
        Role.DIRECT: clause.direct,
        Role.INDIRECT: clause.indirect,
        Role.PLACE: clause.place.phrase if isinstance(clause.place, Place) else None,
    }.get(clause.front)
    if isinstance(part, NounPhrase) and isinstance(part.determiner, Whose):
        return _nominal(part, subject=True)
    if not isinstance(part, RelativePronoun):
        return None
    if clause.front is Role.PLACE:
        return ["where"]
    return [("who" if clause.front is subject_role else "whom") if part.human else "that"]


def _front(clause: Clause) -> list[str]:
    """What English too puts before the subject: a time, a place, an adverbial clause, an interrogative, a relative."""
    if (relative := _relative_front(clause)) is not None:
        return relative
    match clause.front:
        case Role.TIME:
            return _adverb(clause.timing.time)
        case Role.PLACE:
            return _place(clause.place)
        case Role.REASON:
            return _adverb(clause.reason)
        case Role.ADJUNCT if clause.adjunct is not None:
            return [*_linked(clause.adjunct), COMMA]
    if not asks_for_part(clause):
        return []
    _, subject_role, _, _ = _roles(clause)
    asked = {Role.SUBJECT: clause.subject, Role.DIRECT: clause.direct, Role.INDIRECT: clause.indirect}[clause.front]
    assert isinstance(asked, FixedPronoun)
    return [asked.english[0 if clause.front is subject_role else 1]]


def _finite(clause: Clause, subject: list[str], person: Person, inverted: bool) -> list[str]:
    """The subject and the verb group, with `do` where English needs it for negation and questions."""
    timing = clause.timing
    chain = _chain(clause)
    denied = timing.negation in (Negation.NOT, Negation.NOT_YET)
    before_verb = ["no", "longer"] if timing.negation is Negation.NO_LONGER else []
    before_verb += _adverb(timing.frequency)
    finite = chain.finite.finite(person, chain.past)
    denial = ["not"] if denied else []
    if chain.auxiliary:
        if finite == "can" and denied and not inverted:
            finite, denial = "cannot", []
        order = [finite, *subject] if inverted else [*subject, finite]
        return [*order, *denial, *before_verb, *chain.rest]
    if denied or inverted:
        do = _DO.finite(person, chain.past)
        order = [do, *subject] if inverted else [*subject, do]
        return [*order, *denial, *before_verb, chain.finite.base, *chain.rest]
    return [*subject, *before_verb, finite, *chain.rest]


def _chain(clause: Clause) -> Chain:
    """The English verb group for the German tense, modal verb, adverb of time and `gern`."""
    verb, timing = clause.verb.english, clause.timing
    past = timing.tense is Tense.PRETERITE
    period = timing.time.period if timing.time is not None else Period.ANY
    if timing.modal is not None:
        phrase = _modal_phrase(timing.modal, timing)
        # A full verb such as `have to` needs do-support where `have` alone, the auxiliary, would not.
        return Chain(phrase, past, phrase.auxiliary, (*phrase.tail, verb.base, *verb.tail))
    if clause.manner is GLADLY:
        return Chain(_LIKE, past, False, (*_LIKE.tail, verb.base, *verb.tail))
    if timing.tense is Tense.PERFECT and period is not Period.PAST:
        return Chain(_HAVE, False, True, (verb.participle, *verb.tail))
    if timing.tense is Tense.FUTURE or period is Period.FUTURE:
        return Chain(_WILL, False, True, (verb.base, *verb.tail))
    if timing.tense is Tense.PRESENT and period is Period.NOW and not clause.verb.stative and verb.base != "be":
        return Chain(_BE, False, True, (verb.ing, *verb.tail))
    return Chain(verb, past or timing.tense is Tense.PERFECT, verb.base == "be", verb.tail)


def _modal_phrase(modal: Modal, timing: Timing) -> EnglishVerb:
    if timing.tense is Tense.PRETERITE or timing.negation is Negation.NO_LONGER:
        return modal.past or modal.present
    return modal.denied if timing.negation is Negation.NOT else modal.present


def _after_verb(clause: Clause, front: Role | None) -> list[str]:
    """All that follows the verb: objects, predicate, adverbs of manner, place and time, linked clauses."""
    words = _objects(clause, front)
    words += _predicate(clause.predicate)
    if clause.manner is not GLADLY:
        words += _adverb(clause.manner)
    if front is not Role.PLACE:
        words += _place(clause.place)
    if front is not Role.TIME:
        words += _adverb(clause.timing.time)
    if clause.timing.negation is Negation.NOT_YET:
        words.append("yet")
    if clause.complement is not None:
        words += _linked(clause.complement)
    if clause.adjunct is not None and front is not Role.ADJUNCT:
        words += _linked(clause.adjunct)
    return words


def _objects(clause: Clause, front: Role | None) -> list[str]:
    """The objects that have not moved to the front; a particle goes behind a pronoun, and before anything else."""
    if clause.verb.swapped:
        _, _, direct, role = _roles(clause)
    else:
        direct, role = clause.direct, Role.DIRECT
    moved = front is role and _asked_or_relative(clause)
    theme = [] if direct is None or moved else _theme(direct, clause)
    particle = [clause.verb.english.particle] if clause.verb.english.particle else []
    words = [*theme, *particle] if isinstance(direct, Pronoun) else [*particle, *theme]
    if clause.indirect is None:
        return words
    if front is Role.INDIRECT and _asked_or_relative(clause):
        return [*words, "to"] if direct is not None else words
    recipient = _nominal(clause.indirect, subject=False)
    return [*words, "to", *recipient] if moved or isinstance(direct, Pronoun) else [*recipient, *words]


def _theme(phrase: Nominal, clause: Clause) -> list[str]:
    words = _nominal(phrase, subject=False)
    indefinite = isinstance(phrase, NounPhrase) and phrase.determiner is Article.A
    if indefinite and clause.timing.negation is Negation.NOT and words[0] != "a":
        return ["any", *words]
    return words


def _nominal(phrase: Nominal, subject: bool) -> list[str]:
    """The words of any nominal, as a subject or as anything else."""
    match phrase:
        case NounPhrase():
            return _noun_phrase(phrase)
        case Pronoun() | RelativePronoun():
            return [phrase.person.subject if subject else phrase.person.object]
        case Name():
            return [phrase.text]
        case FixedPronoun():
            return [phrase.english[0 if subject else 1]]
        case Coordination():
            return [*_nominal(phrase.first, subject), "and", *_nominal(phrase.second, subject)]


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    noun = phrase.noun
    plural = phrase.plural or noun.english_pair
    words = _determiner(phrase, plural)
    if phrase.adjective is not None:
        words.append(phrase.adjective.english)
    words += (noun.english_plural if plural and noun.english_plural else noun.english).split()
    if phrase.relative is not None:
        words += _clause(phrase.relative, Form.STATEMENT)
    return words


def _determiner(phrase: NounPhrase, plural: bool) -> list[str]:
    match phrase.determiner:
        case Possessive(_, person):
            return [person.possessive]
        case Genitive(name):
            return [f"{name.text}'s"]
        case Whose():
            return ["whose"]
        case Article.A if phrase.noun.mass:
            return []
        case Article() as article:
            return [word] if (word := article.value[2 if plural else 1]) else []


def _linked(linked: Linked) -> list[str]:
    link = linked.link
    comma = [COMMA] if link.comma else []
    match link.form:
        case LinkForm.TO:
            conjunction = [] if link.english == "to" else link.english.removesuffix(" to").split()
            return [*conjunction, *_clause(linked.clause, Form.TO)]
        case LinkForm.ING:
            return [*link.english.split(), *_clause(linked.clause, Form.ING)]
        case _:
            return [*comma, *link.english.split(), *_clause(linked.clause, Form.STATEMENT)]


def _adverb(adverb: Adverb | None) -> list[str]:
    return [] if adverb is None else adverb.english.split()


def _place(where: Place | Adverb | None) -> list[str]:
    if isinstance(where, Place):
        return [where.preposition.english, *_nominal(where.phrase, subject=False)]
    return _adverb(where)


def _predicate(predicate: Predicate | None) -> list[str]:
    if predicate is None:
        return []
    if predicate.equal_to is not None:
        return ["as", predicate.adjective.english, "as", *_nominal(predicate.equal_to, subject=True)]
    return [*_adverb(predicate.degree), predicate.adjective.english]
