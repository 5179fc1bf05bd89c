"""The verbs of the synthetic corpus with their frames, and the modal verbs.

A bar in a German infinitive marks a separable prefix; a plus in an English verb marks a particle that a pronoun goes
before (see `conjugation`).
"""

from jointnmt.data.synthetic.conjugation import english_verb, german_verb
from jointnmt.data.synthetic.entries import Argument, Link, Modal, Verb
from jointnmt.data.synthetic.features import Case, Kind, Locality
from jointnmt.data.synthetic.links import INDIRECT_QUESTION, ING, THAT, TO, WHETHER

_PERSON, _ANIMAL, _THING, _FOOD, _TEXT = Kind.PERSON, Kind.ANIMAL, Kind.THING, Kind.FOOD, Kind.TEXT
_ANIMATE = _PERSON | _ANIMAL
_GOODS = (
    _THING | _FOOD | _TEXT | Kind.DRINK | Kind.CLOTHES | Kind.DEVICE | Kind.VEHICLE | Kind.PLANT | Kind.FURNITURE
    | Kind.HARDWARE | Kind.BEDDING | Kind.INSTRUMENT | Kind.MAP
)  # fmt: skip
_VISIBLE = (
    _ANIMATE | _THING | Kind.CLOTHES | _TEXT | Kind.VEHICLE | Kind.PLANT | Kind.BUILDING | Kind.FURNITURE | Kind.MENU
    | Kind.HARDWARE | Kind.MAP | Kind.FRUIT | Kind.BEDDING | Kind.QUEUE | Kind.OPENABLE | Kind.INSTITUTION | Kind.MEAL
)  # fmt: skip


def _verb(
    german: str,
    english: str,
    subject: Kind,
    direct: Argument | None = None,
    recipient: Kind = Kind.NOTHING,
    links: tuple[Link, ...] = (),
    locality: Locality = Locality.OPTIONAL,
    places: Kind = Kind.PLACE,
) -> Verb:
    return Verb(german_verb(german), english_verb(english), subject, direct, recipient, links, locality, places)


def _stative(german: str, english: str, subject: Kind, direct: Argument, swapped: bool = False) -> Verb:
    return Verb(
        german_verb(german), english_verb(english), subject, direct,
        locality=Locality.NONE, stative=True, swapped=swapped,
    )  # fmt: skip


def _acc(kind: Kind, preposition: str | None = None) -> Argument:
    return Argument(kind, Case.ACCUSATIVE, preposition)


def _dat(kind: Kind, preposition: str | None = None) -> Argument:
    return Argument(kind, Case.DATIVE, preposition)


INTRANSITIVE = (
    _verb("schlafen", "sleep", _ANIMATE, places=Kind.PLACE | Kind.FURNITURE),
    _verb("lachen", "laugh", _PERSON),
    _verb("weinen", "cry", _PERSON),
    _verb("singen", "sing", _PERSON, places=Kind.PLACE | Kind.EVENT),
    _verb("tanzen", "dance", _PERSON, places=Kind.PLACE | Kind.EVENT),
    _verb("arbeiten", "work", _PERSON),
    _verb("schwimmen", "swim", _ANIMATE),
    _verb("warten", "wait", _ANIMATE, places=Kind.PLACE | Kind.FURNITURE | Kind.QUEUE),
    _verb("träumen", "dream", _ANIMATE),
    _verb("lügen", "tell lies", _PERSON),
    _verb("lächeln", "smile", _PERSON),
    _verb("schnarchen", "snore", _ANIMATE, places=Kind.PLACE | Kind.FURNITURE),
    _verb("spielen", "play", _ANIMATE),
    _verb("auf|stehen", "get up", _PERSON, locality=Locality.NONE),
    _verb("ein|schlafen", "fall asleep", _ANIMATE),
    _verb("auf|wachen", "wake up", _ANIMATE),
    _verb("fern|sehen", "watch television", _PERSON),
    _verb("ein|kaufen", "go shopping", _PERSON),
    _verb("um|ziehen", "move house", _PERSON, locality=Locality.NONE),
    _verb("weg|rennen", "run away", _ANIMATE, locality=Locality.NONE),
    _verb("zurück|kommen", "come back", _ANIMATE, locality=Locality.NONE),
    _verb("an|kommen", "arrive", _PERSON | Kind.VEHICLE),
    _verb("ab|fahren", "leave", Kind.VEHICLE, locality=Locality.NONE),
    _verb("an|fangen", "begin", Kind.EVENT, locality=Locality.NONE),
    _verb("auf|hören", "end", Kind.EVENT, locality=Locality.NONE),
    _verb("statt|finden", "take place", Kind.EVENT),
    _verb("verschwinden", "disappear", _ANIMATE | _THING | Kind.PLANT | Kind.CLOTHES),
    _verb("um|fallen", "fall over", _THING | Kind.FURNITURE),
    _verb("brennen", "burn", Kind.BUILDING, locality=Locality.NONE),
    _verb("funktionieren", "work", Kind.DEVICE, locality=Locality.NONE),
)

LOCAL = (
    _verb("wohnen", "live", _PERSON, locality=Locality.REQUIRED),
    _verb("sitzen", "sit", _ANIMATE, locality=Locality.REQUIRED, places=Kind.PLACE | Kind.FURNITURE),
    _verb("stehen", "stand", _ANIMATE, locality=Locality.REQUIRED, places=Kind.PLACE | Kind.QUEUE),
    _verb("liegen", "lie", _ANIMATE | _THING, locality=Locality.REQUIRED, places=Kind.PLACE | Kind.FURNITURE),
    _verb("gehen", "go", _PERSON, locality=Locality.GOAL, places=Kind.PLACE | Kind.EVENT),
    _verb("rennen", "run", _ANIMATE, locality=Locality.GOAL, places=Kind.PLACE | Kind.EVENT),
    _verb("reisen", "travel", _PERSON, locality=Locality.GOAL, places=Kind.FAR),
)

TRANSITIVE = (
    _verb("essen", "eat", _PERSON, _acc(_FOOD)),
    _verb("fressen", "eat", _ANIMAL, _acc(_FOOD)),
    _verb("trinken", "drink", _ANIMATE, _acc(Kind.DRINK)),
    _verb("kochen", "cook", _PERSON, _acc(Kind.MEAL)),
    _verb("kaufen", "buy", _PERSON, _acc(_GOODS | _ANIMAL)),
    _verb("verkaufen", "sell", _PERSON, _acc(_GOODS | _ANIMAL)),
    _verb("suchen", "look for", _ANIMATE, _acc(_VISIBLE)),
    _verb("finden", "find", _ANIMATE, _acc(_VISIBLE)),
    _verb("sehen", "see", _ANIMATE, _acc(_VISIBLE)),
    _verb("verlieren", "lose", _PERSON, _acc(_THING | Kind.CLOTHES)),
    _verb("lesen", "read", _PERSON, _acc(_TEXT | Kind.MENU | Kind.MAP)),
    _verb("schreiben", "write", _PERSON, _acc(_TEXT)),
    _verb("übersetzen", "translate", _PERSON, _acc(_TEXT)),
    _verb("tragen", "wear", _PERSON, _acc(Kind.CLOTHES)),
    _verb("tragen", "carry", _PERSON, _acc(_THING | Kind.FURNITURE)),
    _verb("waschen", "wash", _PERSON, _acc(Kind.CLOTHES | Kind.BEDDING | Kind.FRUIT)),
    _verb("reparieren", "repair", _PERSON, _acc(Kind.DEVICE | Kind.VEHICLE | Kind.HARDWARE)),
    _verb("streichen", "paint", _PERSON, _acc(Kind.CEILING | Kind.FURNITURE | Kind.BUILDING)),
    _verb("auf|machen", "open", _PERSON, _acc(Kind.OPENABLE)),
    _verb("zu|machen", "close", _PERSON, _acc(Kind.OPENABLE)),
    _verb("an|machen", "turn +on", _PERSON, _acc(Kind.DEVICE)),
    _verb("aus|machen", "turn +off", _PERSON, _acc(Kind.DEVICE)),
    _verb("an|ziehen", "put +on", _PERSON, _acc(Kind.GARMENT)),
    _verb("auf|setzen", "put +on", _PERSON, _acc(Kind.HEADWEAR)),
    _verb("an|rufen", "call", _PERSON, _acc(_PERSON)),
    _verb("ein|laden", "invite", _PERSON, _acc(_PERSON)),
    _verb("ab|holen", "pick +up", _PERSON, _acc(_PERSON | Kind.VEHICLE)),
    _verb("mit|bringen", "bring +along", _PERSON, _acc(_PERSON | _ANIMAL | _FOOD | Kind.DRINK)),
    _verb("weg|werfen", "throw +away", _PERSON, _acc(_THING | _TEXT | _FOOD | Kind.PLANT | Kind.HARDWARE)),
    _verb("auf|räumen", "tidy +up", _PERSON, _acc(Kind.BUILDING)),
    _verb("besuchen", "visit", _PERSON, _acc(_PERSON | Kind.BUILDING)),
    _verb("küssen", "kiss", _PERSON, _acc(_ANIMATE)),
    _verb("fangen", "catch", _ANIMATE, _acc(_ANIMAL)),
    _verb("jagen", "chase", _ANIMATE, _acc(_ANIMATE)),
    _verb("beißen", "bite", _ANIMAL, _acc(_ANIMATE)),
    _verb("füttern", "feed", _PERSON, _acc(_ANIMAL)),
    _verb("stehlen", "steal", _ANIMATE, _acc(_THING | _FOOD | Kind.CLOTHES)),
    _verb("hören", "hear", _ANIMATE, _acc(Kind.MUSIC | _ANIMATE)),
    _verb("spielen", "play", _PERSON, _acc(Kind.INSTRUMENT)),
    _verb("singen", "sing", _PERSON, _acc(Kind.SONG)),
    _verb("bauen", "build", _PERSON, _acc(Kind.BUILDING | Kind.VEHICLE | Kind.FURNITURE)),
    _verb("pflücken", "pick", _PERSON, _acc(Kind.PLANT | Kind.FRUIT)),
    _verb("gewinnen", "win", _PERSON, _acc(Kind.MATCH)),
    _verb("schießen", "score", _PERSON, _acc(Kind.GOAL)),
    _verb("lösen", "solve", _PERSON, _acc(Kind.RIDDLE)),
)

STATIVE = (
    _stative("haben", "have", _PERSON, _acc(_GOODS | _ANIMAL | Kind.HANGOVER | Kind.TASK)),
    _stative("kennen", "know", _PERSON, _acc(_PERSON | _TEXT | Kind.STORY | Kind.MUSIC | Kind.BUILDING)),
    _stative("lieben", "love", _ANIMATE, _acc(_ANIMATE | _FOOD)),
    _stative("brauchen", "need", _PERSON, _acc(_GOODS | _ANIMATE)),
    _stative("verstehen", "understand", _PERSON, _acc(_PERSON | _TEXT | Kind.STORY | Kind.TASK)),
    _stative("vertrauen", "trust", _ANIMATE, _dat(_ANIMATE)),
    _stative("gehören", "belong to", _GOODS | _ANIMAL | Kind.BUILDING, _dat(_PERSON)),
    _stative(
        "gefallen", "like", _GOODS | Kind.EVENT | Kind.MUSIC | Kind.BUILDING | _ANIMATE, _dat(_PERSON), swapped=True
    ),
    _stative("fehlen", "miss", _ANIMATE, _dat(_PERSON), swapped=True),
)

OBLIQUE = (
    _verb("helfen", "help", _ANIMATE, _dat(_ANIMATE)),
    _verb("folgen", "follow", _ANIMATE, _dat(_ANIMATE)),
    _verb("begegnen", "run into", _ANIMATE, _dat(_ANIMATE)),
    _verb("zu|hören", "listen to", _ANIMATE, _dat(_PERSON)),
    _verb("warten", "wait for", _ANIMATE, _acc(_ANIMATE | Kind.VEHICLE, "auf")),
    _verb("denken", "think of", _PERSON, _acc(_VISIBLE | Kind.EVENT | Kind.TASK, "an")),
    _verb("träumen", "dream of", _ANIMATE, _dat(_VISIBLE | _FOOD, "von")),
    _verb("sprechen", "talk to", _PERSON, _dat(_PERSON, "mit")),
    _verb("tanzen", "dance with", _PERSON, _dat(_ANIMATE, "mit")),
    _verb("lachen", "laugh at", _PERSON, _acc(Kind.STORY | _ANIMATE, "über")),
    _verb("fliehen", "flee from", _ANIMATE, _dat(_ANIMATE, "vor")),
)

DITRANSITIVE = (
    _verb("geben", "give", _PERSON, _acc(_THING | _FOOD | _TEXT), _ANIMATE),
    _verb("schenken", "give", _PERSON, _acc(_THING | Kind.PLANT | Kind.CLOTHES), _PERSON),
    _verb("zeigen", "show", _PERSON, _acc(_THING | _TEXT | _ANIMAL | Kind.MAP), _PERSON),
    _verb("schicken", "send", _PERSON, _acc(_TEXT | _FOOD), _PERSON),
    _verb("leihen", "lend", _PERSON, _acc(_THING | Kind.VEHICLE | Kind.CLOTHES), _PERSON),
    _verb("erzählen", "tell", _PERSON, _acc(Kind.STORY), _PERSON),
    _verb("bringen", "bring", _PERSON, _acc(_FOOD | Kind.DRINK | _TEXT | Kind.MENU), _PERSON),
)

CLAUSAL = (
    _verb("sagen", "say", _PERSON, links=(THAT,), locality=Locality.NONE),
    _verb("glauben", "believe", _PERSON, links=(THAT,), locality=Locality.NONE),
    _verb("hoffen", "hope", _PERSON, links=(THAT, TO), locality=Locality.NONE),
    _verb("denken", "think", _PERSON, links=(THAT,), locality=Locality.NONE),
    _verb("hören", "hear", _PERSON, links=(THAT,), locality=Locality.NONE),
    _verb("merken", "notice", _ANIMATE, links=(THAT,), locality=Locality.NONE),
    _verb("wissen", "know", _PERSON, links=(THAT, WHETHER, INDIRECT_QUESTION), locality=Locality.NONE),
    _verb("fragen", "ask", _PERSON, links=(WHETHER, INDIRECT_QUESTION), locality=Locality.NONE),
    _verb("versprechen", "promise", _PERSON, recipient=_PERSON, links=(THAT, TO), locality=Locality.NONE),
    _verb("erzählen", "tell", _PERSON, recipient=_PERSON, links=(THAT,), locality=Locality.NONE),
    _verb("versuchen", "try", _ANIMATE, links=(TO,), locality=Locality.NONE),
    _verb("vergessen", "forget", _PERSON, links=(THAT, TO), locality=Locality.NONE),
    _verb("beschließen", "decide", _PERSON, links=(TO,), locality=Locality.NONE),
    _verb("an|fangen", "start", _ANIMATE, links=(TO,), locality=Locality.NONE),
    _verb("auf|hören", "stop", _ANIMATE, links=(ING,), locality=Locality.NONE),
)

BE = _verb("sein", "be", Kind.NOTHING, locality=Locality.NONE)
BECOME = _verb("werden", "get", Kind.NOTHING, locality=Locality.NONE)
HAVE = next(verb for verb in STATIVE if verb.german.infinitive == "haben")

WITHOUT_MANNER = ("sehen", "finden", "verlieren", "hören", "begegnen", "gewinnen", "schießen")
"""Verbs that say nothing of how the subject goes about it."""

ACTIONS = (*INTRANSITIVE, *LOCAL, *TRANSITIVE, *OBLIQUE, *DITRANSITIVE)
VERBS = (*INTRANSITIVE, *LOCAL, *TRANSITIVE, *STATIVE, *OBLIQUE, *DITRANSITIVE, *CLAUSAL, BE, BECOME)

MODALS = (
    Modal(german_verb("können"), english_verb("can"), english_verb("can"), english_verb("can")),
    Modal(german_verb("müssen"), english_verb("must"), english_verb("have to"), english_verb("have to")),
    Modal(german_verb("wollen"), english_verb("want to"), english_verb("want to"), english_verb("want to")),
    Modal(german_verb("dürfen"), english_verb("be allowed to"), english_verb("must"), english_verb("be allowed to")),
    Modal(german_verb("sollen"), english_verb("should"), english_verb("should"), None),
    Modal(german_verb("möchten"), english_verb("would like to"), english_verb("would like to"), None),
)
"""`dürfen` and `müssen` trade places under negation: nicht müssen is not to have to, nicht dürfen is must not."""
