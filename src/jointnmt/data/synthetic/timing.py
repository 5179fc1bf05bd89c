"""Drawing the tense, the adverbs of time and frequency, negation and modal verb of a clause."""

from jointnmt.data.synthetic.dice import Dice
from jointnmt.data.synthetic.entries import Adverb, Verb
from jointnmt.data.synthetic.features import Kind, Negation, Tense
from jointnmt.data.synthetic.modifiers import (
    ALREADY,
    FREQUENCIES,
    FUTURE_TIMES,
    HABITS,
    NEVER,
    PAST_TIMES,
    PRESENT_TIMES,
    STATE_TIMES,
)
from jointnmt.data.synthetic.tree import Timing
from jointnmt.data.synthetic.verbs import BE, MODALS

_NEGATIONS = ((Negation.NONE, 83), (Negation.NOT, 13), (Negation.NO_LONGER, 4))
_PRESENT_TENSES = ((Tense.PRESENT, 66), (Tense.PERFECT, 24), (Tense.FUTURE, 10))
_PRESENT_TIMES: tuple[tuple[tuple[Adverb, ...], int], ...] = (
    ((), 50),
    (PRESENT_TIMES, 20),
    (FUTURE_TIMES, 14),
    (HABITS, 16),
)


def plain(past: bool) -> Timing:
    """The present or the preterite and nothing else: the timing of a clause after `if` or `while`."""
    return Timing(Tense.PRETERITE if past else Tense.PRESENT)


def any_timing(dice: Dice, verb: Verb, past: bool) -> Timing:
    """A timing that suits the verb, in a sentence about the past or not."""
    negation = dice.weigh(_NEGATIONS)
    if verb.stative or verb is BE:
        return _state(dice, verb, past, negation)
    if verb.subject & (Kind.PERSON | Kind.ANIMAL) and not verb.links and dice.chance(0.14):
        modal = dice.pick([modal for modal in MODALS if not past or modal.past is not None])
        time = dice.pick(FUTURE_TIMES) if not past and dice.chance(0.2) else None
        return Timing(Tense.PRETERITE if past else Tense.PRESENT, time, None, negation, modal)
    if past:
        return _past(dice, negation)
    if verb.links:  # What one says, thinks or tries takes neither the progressive nor a date.
        return Timing(Tense.FUTURE if dice.chance(0.1) else Tense.PRESENT, negation=negation)
    tense = dice.weigh(_PRESENT_TENSES)
    if tense is Tense.PERFECT:
        return _perfect(dice, negation)
    if tense is Tense.FUTURE:
        return Timing(tense, dice.pick(FUTURE_TIMES) if dice.chance(0.3) else None, None, negation)
    times = dice.weigh(_PRESENT_TIMES)
    time = dice.pick(times) if times else None
    return Timing(tense, time, None if times else _frequency(dice, negation, 0.18), negation)


def _state(dice: Dice, verb: Verb, past: bool, negation: Negation) -> Timing:
    tense = Tense.PRETERITE if past else Tense.PRESENT
    time = dice.pick(PAST_TIMES if past else STATE_TIMES) if verb is BE and dice.chance(0.14) else None
    return Timing(tense, time, _frequency(dice, negation, 0.06) if time is None and verb is BE else None, negation)


def _past(dice: Dice, negation: Negation) -> Timing:
    """The preterite, or the perfect with an adverb, which English renders alike."""
    if dice.chance(0.45):
        return Timing(Tense.PERFECT, dice.pick(PAST_TIMES), None, _simple(negation))
    if dice.chance(0.3):
        return Timing(Tense.PRETERITE, dice.pick(PAST_TIMES), None, _simple(negation))
    return Timing(Tense.PRETERITE, None, _frequency(dice, negation, 0.1), negation)


def _perfect(dice: Dice, negation: Negation) -> Timing:
    """The perfect without an adverb of time, which English renders by its own perfect."""
    if negation is not Negation.NONE:
        return Timing(Tense.PERFECT, negation=Negation.NOT_YET if dice.chance(0.4) else Negation.NOT)
    frequency = dice.weigh(((None, 68), (ALREADY, 22), (NEVER, 10)))
    return Timing(Tense.PERFECT, frequency=frequency)


def _simple(negation: Negation) -> Negation:
    return Negation.NONE if negation is Negation.NONE else Negation.NOT


def _frequency(dice: Dice, negation: Negation, chance: float) -> Adverb | None:
    if negation is Negation.NO_LONGER or not dice.chance(chance):
        return None
    return dice.pick(FREQUENCIES[:2] if negation is Negation.NOT else (*FREQUENCIES, NEVER))
