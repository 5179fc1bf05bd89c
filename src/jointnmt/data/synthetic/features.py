"""The grammatical and semantic features of the synthetic corpus: gender, case, agreement, tense, kinds of things."""

from enum import Enum, IntEnum, IntFlag, auto
from typing import NamedTuple


class Gender(IntEnum):
    """German grammatical gender."""

    MASCULINE = 0
    FEMININE = 1
    NEUTER = 2


class Case(IntEnum):
    """German case."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Agreement(NamedTuple):
    """What German verbs, articles, adjectives and pronouns agree with."""

    gender: Gender
    plural: bool = False
    person: int = 3

    @property
    def column(self) -> int:
        """The column of a table of endings: masculine, feminine, neuter, plural."""
        return 3 if self.plural else int(self.gender)


class Person(NamedTuple):
    """An English personal pronoun; also how a noun is taken up again, and what an English verb agrees with."""

    subject: str
    object: str
    possessive: str
    number: int
    """First, second or third person."""
    plural: bool


I = Person("I", "me", "my", 1, False)  # noqa: E741 - the pronoun's name
YOU = Person("you", "you", "your", 2, True)
HE = Person("he", "him", "his", 3, False)
SHE = Person("she", "her", "her", 3, False)
IT = Person("it", "it", "its", 3, False)
WE = Person("we", "us", "our", 1, True)
THEY = Person("they", "them", "their", 3, True)


class Tense(Enum):
    """German tense; the English one depends on the time adverb too (see `english.Chain`)."""

    PRESENT = auto()
    PRETERITE = auto()
    PERFECT = auto()
    FUTURE = auto()


class Period(Enum):
    """The time that a German adverb speaks of: it decides how English renders a German tense."""

    PAST = auto()
    NOW = auto()
    FUTURE = auto()
    ANY = auto()


class Negation(Enum):
    """Sentence negation: not at all, `nicht` (or `kein`), `nicht mehr`, `noch nicht`."""

    NONE = auto()
    NOT = auto()
    NO_LONGER = auto()
    NOT_YET = auto()


class Role(Enum):
    """A place in a clause, and so what may stand in front of the German verb."""

    SUBJECT = auto()
    DIRECT = auto()
    INDIRECT = auto()
    TIME = auto()
    PLACE = auto()
    REASON = auto()
    ADJUNCT = auto()


class Locality(Enum):
    """Whether a verb takes a place: none, one where something happens, one that it needs, or a goal."""

    NONE = auto()
    OPTIONAL = auto()
    REQUIRED = auto()
    GOAL = auto()


class Kind(IntFlag):
    """What sort of thing a noun names: verbs, adjectives and places choose their nouns by it.

    Two readings of one German word have no kind in common, so that a word that asks for the kind of one of them
    settles which it is.
    """

    __hash__ = int.__hash__  # The lexicon's caches ask for it often, and that of `enum` is slow.

    NOTHING = 0
    PERSON = auto()
    SPOUSE = auto()
    ANIMAL = auto()
    FOOD = auto()
    FRUIT = auto()
    SWEET = auto()
    MEAL = auto()
    SPICY = auto()
    DRINK = auto()
    CLOTHES = auto()
    GARMENT = auto()
    HEADWEAR = auto()
    TEXT = auto()
    DEVICE = auto()
    OPENABLE = auto()
    CONTAINER = auto()
    THING = auto()
    BLADE = auto()
    VEHICLE = auto()
    PLANT = auto()
    PLACE = auto()
    BUILDING = auto()
    FURNITURE = auto()
    FAR = auto()
    HOME = auto()
    EVENT = auto()
    MATCH = auto()
    STORY = auto()
    TASK = auto()
    RIDDLE = auto()
    MUSIC = auto()
    SONG = auto()
    INSTRUMENT = auto()
    HARDWARE = auto()
    INSTITUTION = auto()
    QUEUE = auto()
    GOAL = auto()
    HANGOVER = auto()
    MENU = auto()
    MAP = auto()
    BEDDING = auto()
    CEILING = auto()
