"""The adjectives, adverbs, articles and fixed pronouns of the synthetic corpus."""

from enum import Enum

from jointnmt.data.synthetic.entries import Adjective, Adverb, FixedPronoun
from jointnmt.data.synthetic.features import Kind, Period

_ANIMATE = Kind.PERSON | Kind.ANIMAL
_ARTEFACT = Kind.THING | Kind.CLOTHES | Kind.DEVICE | Kind.VEHICLE | Kind.FURNITURE | Kind.BUILDING
_COLOURED = Kind.CLOTHES | Kind.VEHICLE | Kind.FURNITURE | Kind.THING
_TOLD = Kind.TEXT | Kind.STORY | Kind.EVENT


def _adjective(german: str, english: str, kind: Kind, gradable: bool = True) -> Adjective:
    return Adjective(german, english, kind, german, state=False, gradable=gradable, telling=True)


def _vague(german: str, english: str, kind: Kind, stem: str | None = None) -> Adjective:
    return Adjective(german, english, kind, stem or german, state=False, gradable=True, telling=False)


def _state(german: str, english: str, kind: Kind = _ANIMATE) -> Adjective:
    return Adjective(german, english, kind, german, state=True, gradable=True, telling=True)


ADJECTIVES = (
    _state("müde", "tired"),
    _state("krank", "ill"),
    _state("hungrig", "hungry"),
    _state("traurig", "sad"),
    _state("nass", "wet", _ANIMATE | Kind.CLOTHES | Kind.BEDDING | Kind.FURNITURE),
    _state("schmutzig", "dirty", _ANIMATE | Kind.CLOTHES | Kind.BEDDING | Kind.VEHICLE | Kind.CEILING | Kind.FURNITURE),
    _state("kalt", "cold", Kind.FOOD | Kind.DRINK | Kind.DEVICE),
    _state("reich", "rich", Kind.PERSON | Kind.INSTITUTION),
    _adjective("glücklich", "happy", _ANIMATE),
    _adjective("klug", "clever", _ANIMATE),
    _adjective("faul", "lazy", _ANIMATE),
    _adjective("mutig", "brave", _ANIMATE),
    _adjective("freundlich", "friendly", Kind.PERSON),
    _adjective("berühmt", "famous", Kind.PERSON | Kind.BUILDING),
    _adjective("jung", "young", _ANIMATE),
    _vague("alt", "old", _ANIMATE | _ARTEFACT | Kind.TEXT | Kind.OPENABLE | Kind.BEDDING),
    _vague("neu", "new", _ARTEFACT | Kind.TEXT | Kind.MUSIC),
    _vague("groß", "big", _ANIMATE | _ARTEFACT | Kind.PLANT | Kind.OPENABLE | Kind.FRUIT),
    _vague("klein", "small", _ANIMATE | _ARTEFACT | Kind.PLANT | Kind.OPENABLE | Kind.FRUIT),
    _adjective("wild", "wild", Kind.ANIMAL),
    _adjective("zahm", "tame", Kind.ANIMAL),
    _adjective("gefährlich", "dangerous", Kind.ANIMAL | Kind.DEVICE | Kind.BLADE),
    _vague("rot", "red", _COLOURED | Kind.PLANT),
    _vague("blau", "blue", _COLOURED),
    _vague("grün", "green", _COLOURED),
    _vague("schwarz", "black", _COLOURED | Kind.ANIMAL),
    _vague("weiß", "white", _COLOURED | Kind.ANIMAL),
    _vague("schön", "beautiful", Kind.PERSON | _ARTEFACT | Kind.PLANT | Kind.MUSIC),
    _vague("hässlich", "ugly", _ANIMATE | Kind.CLOTHES | Kind.BUILDING | Kind.FURNITURE),
    _vague("teuer", "expensive", _ARTEFACT | Kind.FOOD | Kind.DRINK, stem="teur"),
    _vague("billig", "cheap", _ARTEFACT | Kind.FOOD | Kind.DRINK),
    _adjective("kaputt", "broken", Kind.DEVICE | Kind.VEHICLE | Kind.HARDWARE, gradable=False),
    _adjective("rostig", "rusty", Kind.HARDWARE | Kind.VEHICLE | Kind.BLADE),
    _adjective("leer", "empty", Kind.CONTAINER | Kind.BUILDING),
    _adjective("offen", "open", Kind.OPENABLE, gradable=False),
    _adjective("elegant", "elegant", Kind.CLOTHES | Kind.VEHICLE),
    _adjective("hölzern", "wooden", Kind.FURNITURE, gradable=False),
    _adjective("weich", "soft", Kind.BEDDING | Kind.FRUIT),
    _adjective("niedrig", "low", Kind.CEILING),
    _adjective("verwelkt", "withered", Kind.PLANT, gradable=False),
    _adjective("reif", "ripe", Kind.FRUIT),
    _adjective("süß", "sweet", Kind.SWEET),
    _adjective("frisch", "fresh", Kind.FOOD | Kind.DRINK),
    _adjective("spannend", "exciting", _TOLD),
    _adjective("langweilig", "boring", _TOLD | Kind.PERSON),
    _adjective("lustig", "funny", _TOLD | Kind.PERSON),
    _adjective("wichtig", "important", Kind.TASK | Kind.TEXT | Kind.INSTITUTION),
    _adjective("schlimm", "terrible", Kind.HANGOVER),
    _adjective("laut", "loud", Kind.MUSIC | Kind.DEVICE),
    _adjective("schwer", "heavy", Kind.THING | Kind.FURNITURE),
    _adjective("schwer", "difficult", Kind.TASK),
    _adjective("leicht", "light", Kind.THING | Kind.FURNITURE),
    _adjective("leicht", "easy", Kind.TASK),
    _adjective("scharf", "sharp", Kind.BLADE),
    _adjective("scharf", "spicy", Kind.SPICY),
)

PAST_TIMES = (
    Adverb("gestern", "yesterday", Period.PAST),
    Adverb("letzte Woche", "last week", Period.PAST),
    Adverb("vor drei Tagen", "three days ago", Period.PAST),
    Adverb("heute Morgen", "this morning", Period.PAST),
)
STATE_TIMES = (
    Adverb("jetzt", "now", Period.NOW),
    Adverb("heute", "today", Period.NOW),
)
PRESENT_TIMES = (*STATE_TIMES, Adverb("gerade", "right now", Period.NOW))
FUTURE_TIMES = (
    Adverb("morgen", "tomorrow", Period.FUTURE),
    Adverb("bald", "soon", Period.FUTURE),
    Adverb("nächste Woche", "next week", Period.FUTURE),
    Adverb("heute Abend", "tonight", Period.FUTURE),
)
HABITS = (
    Adverb("jeden Tag", "every day"),
    Adverb("am Abend", "in the evening"),
    Adverb("im Sommer", "in summer"),
)
FREQUENCIES = (
    Adverb("immer", "always"),
    Adverb("oft", "often"),
    Adverb("selten", "rarely"),
    Adverb("manchmal", "sometimes"),
)
NEVER = Adverb("nie", "never")
ALREADY = Adverb("schon", "already")
MANNERS = (
    Adverb("schnell", "quickly"),
    Adverb("langsam", "slowly"),
    Adverb("leise", "quietly"),
    Adverb("fröhlich", "cheerfully"),
    Adverb("vorsichtig", "carefully"),
    Adverb("heimlich", "secretly"),
    Adverb("allein", "alone"),
)
GLADLY = Adverb("gern", "like to")
"""A German adverb that English renders by a verb: sie tanzt gern, she likes to dance."""
DEGREES = (Adverb("sehr", "very"), Adverb("zu", "too"))
WHERE, WHEN_ASKED, WHY = Adverb("wo", "where"), Adverb("wann", "when", Period.PAST), Adverb("warum", "why")

WHO = FixedPronoun(("wer", "wen", "wem"), ("who", "whom"), interrogative=True)
WHAT = FixedPronoun(("was", "was", "was"), ("what", "what"), interrogative=True)
SOMEBODY = FixedPronoun(("jemand", "jemanden", "jemandem"), ("somebody", "somebody"), interrogative=False)
NOBODY = FixedPronoun(("niemand", "niemanden", "niemandem"), ("nobody", "nobody"), False, negative=True)


class Article(Enum):
    """What stands before a noun, apart from possessives: German stem, English singular and plural."""

    THE = ("d", "the", "the")
    A = ("ein", "a", "")
    NO = ("kein", "no", "no")
    THIS = ("dies", "this", "these")
    EVERY = ("jed", "every", "")
    ALL = ("all", "", "all")
    MANY = ("viel", "", "many")
    SOME = ("einig", "", "some")
    TWO = ("zwei", "", "two")
    THREE = ("drei", "", "three")
