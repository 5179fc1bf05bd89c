"""Drawing sentences: clauses with their objects and places, and the clauses inside and beside them."""

from __future__ import annotations

from dataclasses import replace

from jointnmt.data.synthetic import lexicon, links, timing, verbs
from jointnmt.data.synthetic.dice import Dice
from jointnmt.data.synthetic.entries import Adverb, FixedPronoun, Link
from jointnmt.data.synthetic.features import Case, Gender, Kind, Locality, Negation, Role, Tense
from jointnmt.data.synthetic.modifiers import DEGREES, GLADLY, MANNERS, WHEN_ASKED, WHY, Article
from jointnmt.data.synthetic.phrases import DEFINITE_ARTICLES, PLAIN_ARTICLES, Articles, Phrases, Scope, Wish
from jointnmt.data.synthetic.plans import ANIMATE, Plan, any_plan, asking_plan, plan_of_infinitive, plan_of_noun
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

ADVERBIAL, ADVERBIAL_DECAY = 0.13, 0.6
"""How likely a clause has an adverbial clause, and by what factor less for each clause around it."""

_PRESENT_LINKS = (links.BECAUSE, links.ALTHOUGH, links.IF, links.BEFORE, links.WHILE, links.UNTIL)
_PAST_LINKS = (links.BECAUSE, links.ALTHOUGH, links.WHEN, links.BEFORE, links.WHILE, links.UNTIL)
_TIMED_LINKS = (links.BECAUSE, links.ALTHOUGH)
_EVENT_LINKS = (links.BEFORE, links.UNTIL)
_INFINITIVE_LINKS = (links.IN_ORDER_TO, links.WITHOUT)


class Sampler:
    """Draws the trees of sentences."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._phrases = Phrases(dice, self._relative_clause)

    def sentence(self) -> Sentence:
        """The tree of one sentence."""
        self._phrases.mentions.clear()
        scope = Scope(past=self._dice.chance(0.35))
        kind = self._dice.weigh((("statement", 75), ("compound", 5), ("polar", 8), ("question", 12)))
        if kind == "question":
            plan = asking_plan(self._dice, any_plan(self._dice, depth=1))
            return Sentence(self._clause(plan, replace(scope, depth=1)), question=True)
        if kind == "polar":
            return Sentence(self._clause(any_plan(self._dice, depth=1), replace(scope, depth=1)), question=True)
        first = self._clause(replace(any_plan(self._dice, scope.depth), main=True), scope)
        if kind == "statement":
            return Sentence(first)
        inner = self._inner(scope, past=_is_past(first.timing))
        second = self._clause(replace(any_plan(self._dice, inner.depth), main=True), inner)
        return Sentence(first, second=Linked(self._dice.pick(links.MAIN_LINKS[: 2 if first.adjunct else 3]), second))

    def _inner(self, scope: Scope, past: bool, timed: bool = True) -> Scope:
        """The scope of a clause inside or after the clauses drawn so far."""
        return Scope(scope.depth + 1, past, timed, self._phrases.known)

    def _clause(self, plan: Plan, scope: Scope) -> Clause:
        """A clause; its parts are drawn in the order in which German names them, so that pronouns look back only."""
        time = self._timing(plan, scope)
        front, adjunct = self._opening(plan, time, scope)
        if adjunct is not None:
            scope = replace(scope, known=self._phrases.known)
        place = self._place(plan, None) if front is Role.PLACE else None
        subject, kind = self._subject(plan, time, scope)
        place = place or self._place(plan, subject)
        manner = self._manner(plan, time, kind)
        indirect = self._indirect(plan, time, scope, subject)
        light = place is None and manner is None and (time.time is None or front is Role.TIME)
        direct = self._direct(plan, time, scope, subject, place if isinstance(place, Place) else None, light)
        predicate = self._predicate(plan, scope)
        complement = self._complement(plan, scope, subject, kind, time)
        if adjunct is None and complement is None:
            adjunct = self._adjunct(plan, scope, subject, kind, time)
        clause = Clause(
            verb=plan.verb,
            subject=None if plan.infinitive else subject,
            direct=direct,
            indirect=indirect,
            predicate=predicate,
            place=place,
            manner=manner,
            timing=time,
            complement=complement,
            adjunct=adjunct,
            front=front,
            reason=WHY if plan.front is Role.REASON else None,
        )
        return self._with_object_in_front(clause) if plan.main and front is Role.SUBJECT else clause

    def _timing(self, plan: Plan, scope: Scope) -> Timing:
        if plan.infinitive:
            denied = plan.deniable and self._dice.chance(0.12)
            return Timing(negation=Negation.NOT if denied else Negation.NONE)
        drawn = timing.any_timing(self._dice, plan.verb, scope.past) if scope.timed else timing.plain(scope.past)
        if plan.simple:
            drawn = replace(drawn, negation=Negation.NONE)
        return replace(drawn, time=WHEN_ASKED, frequency=None) if plan.front is Role.TIME else drawn

    def _opening(self, plan: Plan, time: Timing, scope: Scope) -> tuple[Role, Linked | None]:
        """What stands in front, and the adverbial clause, if it is that."""
        if not plan.main:
            return plan.front, None
        if scope.depth == 0 and self._dice.chance(0.06):
            link = self._dice.pick(self._links(plan, time)[:5])
            inner = self._inner(scope, _is_past(time), timed=link in _TIMED_LINKS)
            return Role.ADJUNCT, Linked(link, self._clause(self._linked_plan(link, inner), inner))
        if time.time is not None and self._dice.chance(0.5):
            return Role.TIME, None
        if plan.verb.locality in (Locality.OPTIONAL, Locality.REQUIRED) and self._dice.chance(0.1):
            return Role.PLACE, None
        return Role.SUBJECT, None

    def _subject(self, plan: Plan, time: Timing, scope: Scope) -> tuple[Nominal, Kind]:
        if plan.subject is not None:
            return plan.subject, plan.kind
        articles: Articles | None = None
        if time.negation is not Negation.NONE or plan.verb.swapped:
            articles = DEFINITE_ARTICLES
        elif time.modal is not None:
            articles = PLAIN_ARTICLES
        rude = time.tense is not Tense.PRETERITE or time.modal is not None or plan.verb in (verbs.BE, verbs.HAVE)
        wish = Wish(
            plan.subject_kinds,
            plan.subject_asked,
            articles=articles,
            relative=True,
            marked=plan.marked,
            polite=not rude,
        )
        return self._phrases.subject(wish, scope)

    def _place(self, plan: Plan, owner: Nominal | None) -> Place | Adverb | None:
        if plan.place is not None:
            return plan.place
        verb = plan.verb
        optional = verb.locality is Locality.OPTIONAL
        if verb.locality is Locality.NONE or (optional and owner is not None and not self._dice.chance(0.2)):
            return None
        return self._phrases.place(verb.places, verb.locality is Locality.GOAL, owner)

    def _manner(self, plan: Plan, time: Timing, kind: Kind) -> Adverb | None:
        verb = plan.verb
        acts = kind & ANIMATE and not verb.stative and not verb.links and plan.adjective is None
        if not acts or verb.german.infinitive in verbs.WITHOUT_MANNER:
            return None
        habitual = time.tense in (Tense.PRESENT, Tense.PRETERITE) and (time.time, time.frequency) == (None, None)
        affirmed = time.negation is Negation.NONE or plan.verb.direct is None
        if habitual and affirmed and time.modal is None and not plan.infinitive and self._dice.chance(0.09):
            return GLADLY
        return self._dice.pick(MANNERS) if time.frequency is None and self._dice.chance(0.1) else None

    def _indirect(self, plan: Plan, time: Timing, scope: Scope, subject: Nominal) -> Nominal | None:
        if not plan.verb.recipient:
            return None
        articles = PLAIN_ARTICLES if time.negation is Negation.NONE else DEFINITE_ARTICLES
        asked = lexicon.asked_kinds(plan.verb, Role.INDIRECT)
        return self._object(plan, scope, Wish(plan.verb.recipient, asked, articles=articles), Case.DATIVE, subject)

    def _direct(
        self, plan: Plan, time: Timing, scope: Scope, subject: Nominal, place: Place | None, light: bool
    ) -> Nominal | None:
        """The object of the verb's frame; only behind an otherwise light clause may it have a relative clause."""
        argument = plan.verb.direct
        if plan.direct is not None or argument is None:
            return plan.direct
        scene = place.phrase.noun.evokes if place is not None and isinstance(place.phrase, NounPhrase) else Kind.NOTHING
        expected = argument.kind & scene
        kinds = expected if expected and self._dice.chance(0.7) else argument.kind
        by_article = argument.case is Case.ACCUSATIVE and argument.preposition is None
        articles: Articles | None = None
        if time.negation is not Negation.NONE:
            articles = PLAIN_ARTICLES if by_article and time.negation is Negation.NOT else DEFINITE_ARTICLES
        wish = Wish(kinds, lexicon.asked_kinds(plan.verb, Role.DIRECT), scene, subject, articles, relative=light)
        if plan.verb.swapped:
            wish = replace(wish, owner=None)
        return self._object(plan, scope, wish, argument.case, subject)

    def _object(self, plan: Plan, scope: Scope, wish: Wish, case: Case, subject: Nominal) -> Nominal:
        if plan.infinitive:
            return self._phrases.noun_phrase(wish, scope)
        return self._phrases.object(wish, scope, case, subject)

    def _predicate(self, plan: Plan, scope: Scope) -> Predicate | None:
        adjective = plan.adjective
        if adjective is None:
            return None
        if not adjective.gradable or plan.verb is verbs.BECOME:
            return Predicate(adjective)
        if self._dice.chance(0.08):
            asked = lexicon.adjective_kinds(adjective.german)
            wish = Wish(adjective.kind, asked, articles=DEFINITE_ARTICLES)
            return Predicate(adjective, equal_to=self._phrases.noun_phrase(wish, scope))
        return Predicate(adjective, self._dice.pick(DEGREES) if self._dice.chance(0.22) else None)

    def _complement(self, plan: Plan, scope: Scope, subject: Nominal, kind: Kind, time: Timing) -> Linked | None:
        if not plan.verb.links:
            return None
        link = self._dice.pick(plan.verb.links)
        if link in (links.TO, links.ING):
            return Linked(link, self._infinitive(scope, subject, kind, deniable=link is links.TO))
        past = _is_past(time)
        inner = self._inner(scope, past, timed=not past)
        plan = any_plan(self._dice, inner.depth)
        if link is links.INDIRECT_QUESTION:
            plan = asking_plan(self._dice, plan)
        return Linked(link, self._clause(plan, inner))

    def _adjunct(self, plan: Plan, scope: Scope, subject: Nominal, kind: Kind, time: Timing) -> Linked | None:
        if plan.simple or not self._dice.chance(ADVERBIAL * ADVERBIAL_DECAY**scope.depth):
            return None
        acts = kind & ANIMATE and not plan.verb.stative and plan.adjective is None and not plan.infinitive
        if acts and time.negation is Negation.NONE and self._dice.chance(0.25):
            return Linked(self._dice.pick(_INFINITIVE_LINKS), self._infinitive(scope, subject, kind, deniable=False))
        link = self._dice.pick(self._links(plan, time))
        inner = self._inner(scope, _is_past(time), timed=link in _TIMED_LINKS)
        return Linked(link, self._clause(self._linked_plan(link, inner), inner))

    def _linked_plan(self, link: Link, scope: Scope) -> Plan:
        """Any verb; after `before` and `until`, one that something happens by."""
        plan = any_plan(self._dice, scope.depth)
        while link in _EVENT_LINKS and (plan.verb.stative or plan.verb is verbs.BE):
            plan = any_plan(self._dice, scope.depth)
        return plan

    def _links(self, plan: Plan, time: Timing) -> tuple[Link, ...]:
        """The conjunctions that go with the clause: `until` with no state, `if` with no English perfect."""
        perfect = time.tense is Tense.PERFECT and time.time is None
        if perfect or plan.verb.stative or plan.adjective is not None:
            return _TIMED_LINKS
        return _PAST_LINKS if _is_past(time) else _PRESENT_LINKS

    def _infinitive(self, scope: Scope, subject: Nominal, kind: Kind, deniable: bool) -> Clause:
        inner = replace(self._inner(scope, past=False), third_person=False)
        return self._clause(plan_of_infinitive(self._dice, subject, kind, inner.depth, deniable), inner)

    def _relative_clause(self, phrase: NounPhrase, scope: Scope, settling: bool) -> Clause | None:
        """A relative clause in which the noun is the subject, the object, a place, or an owner."""
        noun = phrase.noun
        head = RelativePronoun(phrase.agreement, phrase.person, human=bool(noun.kind & Kind.PERSON))
        past = scope.past or self._dice.chance(0.3)
        inner = replace(self._inner(scope, past), third_person=False)
        draw = self._dice.weigh((("subject", 58), ("object", 27), ("place", 8), ("owner", 7)))
        if not settling and draw == "place" and noun.where is not None and noun.kind & Kind.PLACE:
            verb = self._dice.pick((*verbs.LOCAL[:4], *verbs.INTRANSITIVE[:6]))
            return self._clause(Plan(verb, place=Place(noun.where, head), front=Role.PLACE), inner)
        if not settling and draw == "owner" and noun.kind & ANIMATE:
            return self._owner_clause(phrase, inner)
        if draw == "object" and (plan := plan_of_noun(self._dice, phrase, Role.DIRECT, settling, inner.depth)):
            assert plan.verb.direct is not None
            shows = plan.verb.direct.preposition or plan.verb.direct.case is Case.DATIVE or _shows_accusative(phrase)
            return self._clause(replace(plan, direct=head, front=Role.DIRECT, marked=not shows), inner)
        own = plan_of_noun(self._dice, phrase, Role.SUBJECT, settling, inner.depth)
        return None if own is None else self._clause(replace(own, subject=head, kind=noun.kind), inner)

    def _owner_clause(self, phrase: NounPhrase, scope: Scope) -> Clause:
        """A relative clause about something that belongs to the noun: dessen Hund bellt."""
        plan = any_plan(self._dice, scope.depth + 1)
        while not (kinds := plan.subject_kinds & (ANIMATE | Kind.THING | Kind.CLOTHES)):
            plan = any_plan(self._dice, scope.depth + 1)
        wish = Wish(kinds, plan.subject_asked, articles=DEFINITE_ARTICLES)
        owned = self._phrases.noun_phrase(wish, scope)
        while not lexicon.can_be_owned(owned.noun):
            owned = self._phrases.noun_phrase(wish, scope)
        subject = replace(owned, determiner=Whose(phrase.agreement))
        return self._clause(replace(plan, subject=subject, kind=owned.noun.kind), scope)

    def _with_object_in_front(self, clause: Clause) -> Clause:
        """The clause, perhaps with its object before the verb, if its case or the subject's can be seen."""
        direct, subject, argument = clause.direct, clause.subject, clause.verb.direct
        if not isinstance(direct, NounPhrase) or argument is None or argument.preposition is not None:
            return clause
        plain = direct.relative is None and not (isinstance(subject, NounPhrase) and subject.relative)
        if not plain or direct.determiner not in (Article.THE, Article.THIS) or isinstance(subject, FixedPronoun):
            return clause
        shown = argument.case is Case.DATIVE or _shows_accusative(direct) or _shows_nominative(subject)
        fronted = shown and self._dice.chance(0.5 if clause.verb.swapped else 0.14)
        return replace(clause, front=Role.DIRECT) if fronted else clause


def _is_past(time: Timing) -> bool:
    return time.tense in (Tense.PRETERITE, Tense.PERFECT)


def _shows_accusative(phrase: NounPhrase) -> bool:
    return phrase.noun.gender is Gender.MASCULINE and not phrase.plural


def _shows_nominative(subject: Nominal | None) -> bool:
    if isinstance(subject, Pronoun):
        return subject.agreement.person != 3
    named = isinstance(subject, NounPhrase) and isinstance(subject.determiner, Genitive)  # Annas Hund: any case
    return isinstance(subject, NounPhrase) and _shows_accusative(subject) and not named
