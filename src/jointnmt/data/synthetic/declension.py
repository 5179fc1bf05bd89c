"""German nominals in a given case: articles, adjectives, nouns, pronouns."""

from collections.abc import Callable

from jointnmt.data.synthetic.entries import FixedPronoun, Name, Noun
from jointnmt.data.synthetic.features import Agreement, Case, Gender
from jointnmt.data.synthetic.modifiers import Article
from jointnmt.data.synthetic.surface import COMMA
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
    RelativePronoun,
    Whose,
)

RelativeWriter = Callable[[Clause], list[str]]
"""Writes the words of a relative clause, which only the writer of clauses can."""

# Endings by case (nominative, accusative, dative, genitive) and column (masculine, feminine, neuter, plural).
_DEFINITE = ("der die das die", "den die das die", "dem der dem den", "des der des der")
_FULL = ("er e es e", "en e es e", "em er em en", "es er es er")
_AFTER_EIN = ("- e - e", "en e - e", "em er em en", "es er es er")
_STRONG = ("er e es e", "en e es e", "em er em en", "en er en er")
_WEAK = ("e e e en", "en e e en", "en en en en", "en en en en")
_MIXED = ("er e es en", "en e es en", "en en en en", "en en en en")

_PERSONAL = {
    (1, False): "ich mich mir",
    (2, False): "du dich dir",
    (1, True): "wir uns uns",
    (2, True): "ihr euch euch",
    (3, True): "sie sie ihnen",
}
_THIRD_SINGULAR = {
    Gender.MASCULINE: "er ihn ihm",
    Gender.FEMININE: "sie sie ihr",
    Gender.NEUTER: "es es ihm",
}
_OWNERS = {(1, False): "mein", (2, False): "dein", (1, True): "unser", (2, True): "euer", (3, True): "ihr"}
_CONTRACTIONS = {("an", "dem"): "am", ("in", "dem"): "im", ("in", "das"): "ins", ("an", "das"): "ans"} | {
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}


def pronoun(agreement: Agreement, case: Case) -> str:
    """The personal pronoun: er, ihn, ihm."""
    singular = agreement.person == 3 and not agreement.plural
    forms = _THIRD_SINGULAR[agreement.gender] if singular else _PERSONAL[agreement.person, agreement.plural]
    return forms.split()[case]


def relative_pronoun(agreement: Agreement, case: Case) -> str:
    """The relative pronoun: der, dem, denen; dessen, deren."""
    if case is Case.GENITIVE:
        return "deren" if agreement.plural or agreement.gender is Gender.FEMININE else "dessen"
    return "denen" if case is Case.DATIVE and agreement.plural else _ending(_DEFINITE, case, agreement)


def nominal(phrase: Nominal, case: Case, relative: RelativeWriter) -> list[str]:
    """The words of any nominal in a case."""
    match phrase:
        case NounPhrase():
            return _noun_phrase(phrase, case, relative)
        case Pronoun():
            return [pronoun(phrase.agreement, case)]
        case RelativePronoun():
            return [relative_pronoun(phrase.agreement, case)]
        case Name():
            return [phrase.text]
        case FixedPronoun():
            return [phrase.german[case]]
        case Coordination():
            return [*nominal(phrase.first, case, relative), "und", *nominal(phrase.second, case, relative)]


def prepositional(preposition: str, phrase: Nominal, case: Case, relative: RelativeWriter) -> list[str]:
    """A preposition and its nominal; the article melts into the preposition unless a relative clause follows."""
    words = nominal(phrase, case, relative)
    plain = isinstance(phrase, NounPhrase) and phrase.determiner is Article.THE and phrase.relative is None
    contracted = _CONTRACTIONS.get((preposition, words[0])) if plain else None
    return [contracted, *words[1:]] if contracted else [preposition, *words]


def place(where: Place, relative: RelativeWriter) -> list[str]:
    """Where something happens or goes: im Garten, auf den Markt."""
    return prepositional(where.preposition.german, where.phrase, where.preposition.case, relative)


def noun_form(noun: Noun, case: Case, plural: bool) -> str:
    """The noun with the ending of its case: dem Jungen, des Hundes, den Hunden."""
    if plural:
        form = noun.german_plural
        assert form is not None, f"{noun.german} is not used in the plural"
        return form + ("n" if case is Case.DATIVE and not form.endswith(("n", "s")) else "")
    if noun.weak and case is not Case.NOMINATIVE:
        return noun.german + ("n" if noun.german.endswith(("e", "r")) and noun.german != "Bär" else "en")
    return noun.german


def _noun_phrase(phrase: NounPhrase, case: Case, relative: RelativeWriter) -> list[str]:
    article, endings = _determiner(phrase.determiner, phrase, case)
    words = [article] if article else []
    if phrase.adjective is not None:
        words.append(phrase.adjective.stem.removesuffix("e") + _ending(endings, case, phrase.agreement))
    words.append(noun_form(phrase.noun, case, phrase.plural))
    if phrase.relative is not None:
        words += [COMMA, *relative(phrase.relative), COMMA]
    return words


def _determiner(determiner: Determiner, phrase: NounPhrase, case: Case) -> tuple[str, tuple[str, ...]]:
    """The article, and the endings that adjectives have after it."""
    agreement = phrase.agreement
    match determiner:
        case Possessive(owner):
            stem = _possessive(owner)
            ending = _ending(_AFTER_EIN, case, agreement)
            return ("eur" if stem == "euer" and ending else stem) + ending, _MIXED
        case Genitive(name):
            return f"{name.text}s", _STRONG
        case Whose(head):
            return relative_pronoun(head, Case.GENITIVE), _STRONG
        case Article.THE:
            return _ending(_DEFINITE, case, agreement), _WEAK
        case Article.A | Article.NO:
            bare = determiner is Article.A and (phrase.plural or phrase.noun.mass)
            return ("", _STRONG) if bare else (determiner.value[0] + _ending(_AFTER_EIN, case, agreement), _MIXED)
        case Article.THIS | Article.EVERY | Article.ALL:
            return determiner.value[0] + _ending(_FULL, case, agreement), _WEAK
        case Article.MANY | Article.SOME:
            return determiner.value[0] + _ending(_FULL, case, agreement), _STRONG
        case Article.TWO | Article.THREE:
            return determiner.value[0], _STRONG


def _possessive(owner: Agreement) -> str:
    if owner.person == 3 and not owner.plural:
        return "ihr" if owner.gender is Gender.FEMININE else "sein"
    return _OWNERS[owner.person, owner.plural]


def _ending(table: tuple[str, ...], case: Case, agreement: Agreement) -> str:
    return table[case].split()[agreement.column].strip("-")
