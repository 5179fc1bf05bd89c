"""Choosing what a clause is about before it is drawn: its verb or adjective, and the words already given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jointnmt.data.synthetic import lexicon, verbs
from jointnmt.data.synthetic.dice import Dice
from jointnmt.data.synthetic.entries import Adjective, Adverb, Verb
from jointnmt.data.synthetic.features import Case, Kind, Locality, Role
from jointnmt.data.synthetic.modifiers import ADJECTIVES, WHAT, WHERE, WHO
from jointnmt.data.synthetic.tree import Nominal, NounPhrase, Place

ANIMATE = Kind.PERSON | Kind.ANIMAL
_GROUPS: tuple[tuple[tuple[Verb, ...], int], ...] = (
    (verbs.INTRANSITIVE, 17),
    (verbs.LOCAL, 9),
    (verbs.TRANSITIVE, 32),
    (verbs.STATIVE, 9),
    (verbs.OBLIQUE, 10),
    (verbs.DITRANSITIVE, 7),
    ((verbs.BE,), 13),
    ((verbs.BECOME,), 3),
)
CLAUSAL, CLAUSAL_DECAY = 0.12, 0.75
"""How likely a verb has an object clause, and by what factor less for each clause around it."""


@dataclass(frozen=True)
class Plan:
    """What is settled of a clause before the rest of it is drawn."""

    verb: Verb
    adjective: Adjective | None = None
    subject: Nominal | None = None
    """A relative or interrogative subject, or that of an infinitive, which is understood."""
    kind: Kind = Kind.NOTHING
    """The kinds of that subject."""
    direct: Nominal | None = None
    place: Place | Adverb | None = None
    front: Role = Role.SUBJECT
    main: bool = False
    """Whether something else than the subject may come to stand in front."""
    simple: bool = False
    """Whether to leave out adverbial clauses and negation: in questions for a person, a place, a time."""
    infinitive: bool = False
    deniable: bool = False
    """Whether an infinitive may be negated."""
    marked: bool = False
    """Whether the nominative must show, because the accusative of the relative pronoun does not."""

    @property
    def subject_kinds(self) -> Kind:
        """The kinds of nouns that may be the subject."""
        return self.verb.subject if self.adjective is None else self.adjective.kind

    @property
    def subject_asked(self) -> Kind:
        """The kinds by which the German words settle the subject's reading."""
        if self.adjective is not None:
            return lexicon.adjective_kinds(self.adjective.german)
        return lexicon.asked_kinds(self.verb, Role.SUBJECT)


def any_plan(dice: Dice, depth: int) -> Plan:
    """Any verb; verbs with an object clause are the rarer the deeper the clause is."""
    if dice.chance(CLAUSAL * CLAUSAL_DECAY**depth):
        return Plan(dice.pick(verbs.CLAUSAL))
    return with_adjective(dice, dice.pick(dice.weigh(_GROUPS)))


def with_adjective(dice: Dice, verb: Verb) -> Plan:
    """The verb; if it is `sein` or `werden`, with what it says of the subject."""
    if verb is verbs.BE:
        return Plan(verb, dice.pick(ADJECTIVES))
    if verb is verbs.BECOME:
        return Plan(verb, dice.pick([adjective for adjective in ADJECTIVES if adjective.state]))
    return Plan(verb)


def plan_of_noun(dice: Dice, phrase: NounPhrase, role: Role, settling: bool, depth: int) -> Plan | None:
    """A verb in whose role the noun may stand; if `settling`, one that leaves this reading of the noun only."""
    noun, plural = phrase.noun, phrase.plural
    adjectives = lexicon.settling_adjectives(noun, plural) if settling else lexicon.adjectives_for(noun)
    if role is Role.SUBJECT and adjectives and dice.chance(0.25):
        return Plan(verbs.BE, dice.pick(adjectives))
    fitting = lexicon.verbs_for(noun, plural, role, settling)
    if not dice.chance(CLAUSAL_DECAY**depth):
        fitting = tuple(verb for verb in fitting if not verb.links)
    return Plan(dice.pick(fitting)) if fitting else None


def plan_of_infinitive(dice: Dice, subject: Nominal, kind: Kind, depth: int, deniable: bool) -> Plan:
    """A verb for an infinitive whose subject is understood to be the subject of the clause around it."""
    among = verbs.CLAUSAL if dice.chance(CLAUSAL * CLAUSAL_DECAY**depth) else verbs.ACTIONS
    return Plan(
        dice.pick(lexicon.verbs_of(kind, among)), subject=subject, kind=kind, infinitive=True, deniable=deniable
    )


def asking_plan(dice: Dice, plan: Plan) -> Plan:
    """The plan with the question that its verb allows: who, whom, what, where, when, why."""
    verb = plan.verb
    questions = ["why", "why"]
    if plan.subject_kinds & Kind.PERSON and not verb.swapped:
        questions += ["who", "who"]
    if verb.direct is not None and verb.direct.preposition is None and lexicon.readings(verb) == 1:
        questions += ["object"] * 3
    if verb.locality in (Locality.OPTIONAL, Locality.REQUIRED):
        questions += ["where"] * 3
    if not verb.stative and plan.adjective is None:
        questions.append("when")
    match dice.pick(questions):
        case "who":
            return replace(plan, subject=WHO, kind=Kind.PERSON, front=Role.SUBJECT, simple=True)
        case "object":
            assert verb.direct is not None
            only_person = verb.direct.case is Case.DATIVE or verb.direct.kind is Kind.PERSON
            person = only_person or (verb.direct.kind & Kind.PERSON and dice.chance(0.5))
            return replace(plan, direct=WHO if person else WHAT, front=Role.DIRECT, simple=True)
        case "where":
            return replace(plan, place=WHERE, front=Role.PLACE, simple=True)
        case "when":
            return replace(plan, front=Role.TIME, simple=True)
    return replace(plan, front=Role.REASON)
