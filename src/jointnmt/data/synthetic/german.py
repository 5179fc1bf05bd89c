"""German clauses: verb-second and verb-final order, the verb bracket, and what is put behind it.

A clause is a front (verb-second) or a conjunction (verb-final), the finite verb, the middle field, the right bracket
(separable prefix, participle, infinitive), and relative and subordinate clauses behind it.
"""

from dataclasses import replace
from enum import Enum, auto

from jointnmt.data.synthetic import declension
from jointnmt.data.synthetic.conjugation import GermanVerb
from jointnmt.data.synthetic.entries import Adverb, FixedPronoun, LinkForm
from jointnmt.data.synthetic.features import Case, Negation, Role, Tense
from jointnmt.data.synthetic.modifiers import Article
from jointnmt.data.synthetic.surface import COMMA, write
from jointnmt.data.synthetic.tree import (
    Clause,
    Linked,
    Nominal,
    NounPhrase,
    Place,
    Predicate,
    Pronoun,
    Sentence,
    Timing,
    agreement_of,
    asks_for_part,
)
from jointnmt.data.synthetic.verbs import BE, BECOME, HAVE

_NEGATIONS: dict[Negation, list[str]] = {
    Negation.NONE: [],
    Negation.NOT: ["nicht"],
    Negation.NO_LONGER: ["nicht", "mehr"],
    Negation.NOT_YET: ["noch", "nicht"],
}

Part = tuple[Role | None, list[str]]
"""Words of the middle field, with the role by which they may be put in front."""


class Order(Enum):
    """Where the finite verb stands; an infinitive with `zu` has none."""

    SECOND = auto()
    FIRST = auto()
    FINAL = auto()
    INFINITIVE = auto()


def sentence(tree: Sentence) -> str:
    """The German text of a sentence."""
    order = Order.FIRST if tree.question and not asks_for_part(tree.clause) else Order.SECOND
    words = _clause(tree.clause, order)
    if tree.second is not None:
        words += _linked(tree.second)
    return write(words, "?" if tree.question else ".")


def _clause(clause: Clause, order: Order) -> list[str]:
    parts = _parts(clause)
    front: list[str] = []
    if order in (Order.SECOND, Order.FINAL):
        fronted = next(part for part in parts if part[0] is clause.front)
        parts.remove(fronted)
        front = fronted[1]
    middle = [word for _, words in parts for word in words]
    finite, right = _verb(clause, order)
    behind = _behind(clause)
    if order in (Order.SECOND, Order.FIRST):
        return [*front, finite, *middle, *right, *behind]
    return [*front, *middle, *right, *([finite] if finite else []), *behind]


def _relative(clause: Clause) -> list[str]:
    return _clause(clause, Order.FINAL)


def _linked(linked: Linked) -> list[str]:
    """A linked clause with its conjunction; commas around all but a main clause after `und`."""
    link = linked.link
    match link.form:
        case LinkForm.SECOND:
            comma = [] if link.german == "und" else [COMMA]
            return [*comma, link.german, *_clause(linked.clause, Order.SECOND)]
        case LinkForm.FINAL:
            conjunction = [link.german] if link.german else []
            return [COMMA, *conjunction, *_clause(linked.clause, Order.FINAL), COMMA]
        case LinkForm.TO | LinkForm.ING:
            conjunction = [] if link.german == "zu" else [link.german]
            return [COMMA, *conjunction, *_clause(linked.clause, Order.INFINITIVE), COMMA]


def _parts(clause: Clause) -> list[Part]:
    """Everything but the verbs, in the order of the middle field.

    The subject and pronouns lead; definite objects come before adverbs and `nicht`, indefinite and prepositional ones
    after them.
    """
    timing = clause.timing
    direct = _direct(clause)
    pronoun, definite = _places_early(clause)
    late = not (pronoun or definite)
    parts: list[Part] = []
    if clause.front is Role.ADJUNCT and clause.adjunct is not None:
        parts.append((Role.ADJUNCT, _linked(clause.adjunct)[1:]))
    subject = (Role.SUBJECT, [] if clause.subject is None else _nominal(clause.subject, Case.NOMINATIVE))
    leads = not isinstance(clause.subject, FixedPronoun)  # Bald besucht er uns, but: bald besucht uns jemand.
    parts += [subject] if leads else []
    parts.append((Role.DIRECT, direct if pronoun else []))
    parts += [] if leads else [subject]
    indirect = (Role.INDIRECT, [] if clause.indirect is None else _nominal(clause.indirect, Case.DATIVE))
    early = isinstance(clause.indirect, Pronoun)
    parts += [indirect] if early else []
    parts.append((Role.TIME, _adverb(timing.time)))
    parts += [] if early else [indirect]
    parts.append((Role.DIRECT, direct if definite else []))
    parts.append((None, [] if _denied_by_article(clause) else _NEGATIONS[timing.negation]))
    parts.append((None, [*_adverb(timing.frequency), *_adverb(clause.manner)]))
    parts.append((Role.PLACE, _place(clause.place)))
    parts.append((Role.DIRECT, direct if late else []))
    parts.append((Role.REASON, _adverb(clause.reason)))
    parts.append((None, _predicate(clause.predicate)))
    return [part for part in parts if part[1]]


def _places_early(clause: Clause) -> tuple[bool, bool]:
    """Whether the direct object comes early, as a pronoun, or before the adverbs, as something definite."""
    argument = clause.verb.direct
    if clause.direct is None or argument is None or argument.preposition is not None:
        return False, False
    if isinstance(clause.direct, Pronoun):
        return True, False
    return False, not isinstance(clause.direct, NounPhrase) or clause.direct.definite


def _direct(clause: Clause) -> list[str]:
    """The direct object; its relative clause goes behind the verb (see `_behind`)."""
    argument, phrase = clause.verb.direct, clause.direct
    if phrase is None or argument is None:
        return []
    if isinstance(phrase, NounPhrase):
        phrase = replace(phrase, relative=phrase.relative if clause.front is Role.DIRECT else None)
        if _denied_by_article(clause):
            phrase = replace(phrase, determiner=Article.NO)
    if argument.preposition is not None:
        return declension.prepositional(argument.preposition, phrase, argument.case, _relative)
    return _nominal(phrase, argument.case)


def _denied_by_article(clause: Clause) -> bool:
    """Whether negation makes the article `kein` instead of adding `nicht`."""
    argument, phrase = clause.verb.direct, clause.direct
    return (
        clause.timing.negation is Negation.NOT
        and isinstance(phrase, NounPhrase)
        and phrase.determiner is Article.A
        and argument is not None
        and argument.case is Case.ACCUSATIVE
        and argument.preposition is None
    )


def _behind(clause: Clause) -> list[str]:
    """The relative clause of the direct object, the object clause, and the adverbial clause."""
    words: list[str] = []
    if isinstance(clause.direct, NounPhrase) and clause.direct.relative and clause.front is not Role.DIRECT:
        words += [COMMA, *_relative(clause.direct.relative), COMMA]
    if clause.complement is not None:
        words += _linked(clause.complement)
    if clause.adjunct is not None and clause.front is not Role.ADJUNCT:
        words += _linked(clause.adjunct)
    return words


def _verb(clause: Clause, order: Order) -> tuple[str, list[str]]:
    """The finite verb, if any, and the right bracket."""
    verb, timing = clause.verb.german, clause.timing
    if order is Order.INFINITIVE or clause.subject is None:
        return "", [verb.to_infinitive]
    agreement = agreement_of(clause.subject)
    slot = agreement.person - 1 + 3 * agreement.plural
    carrier, right = _bracket(verb, timing)
    forms = carrier.preterite if timing.tense is Tense.PRETERITE else carrier.present
    finite = forms[slot]
    if carrier is verb and verb.prefix:
        return (f"{verb.prefix}{finite}", []) if order is Order.FINAL else (finite, [verb.prefix])
    return finite, right


def _bracket(verb: GermanVerb, timing: Timing) -> tuple[GermanVerb, list[str]]:
    """The verb that is finite (itself, a modal verb, an auxiliary), and what that puts in the right bracket."""
    infinitive = f"{verb.prefix}{verb.infinitive}"
    if timing.modal is not None:
        return timing.modal.german, [infinitive]
    if timing.tense is Tense.FUTURE:
        return BECOME.german, [infinitive]
    if timing.tense is Tense.PERFECT:
        return (BE if verb.with_sein else HAVE).german, [verb.participle]
    return verb, []


def _nominal(phrase: Nominal, case: Case) -> list[str]:
    return declension.nominal(phrase, case, _relative)


def _adverb(adverb: Adverb | None) -> list[str]:
    return [] if adverb is None else adverb.german.split()


def _place(where: Place | Adverb | None) -> list[str]:
    return declension.place(where, _relative) if isinstance(where, Place) else _adverb(where)


def _predicate(predicate: Predicate | None) -> list[str]:
    if predicate is None:
        return []
    if predicate.equal_to is not None:
        return ["so", predicate.adjective.german, "wie", *_nominal(predicate.equal_to, Case.NOMINATIVE)]
    return [*_adverb(predicate.degree), predicate.adjective.german]
