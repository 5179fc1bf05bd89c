"""How German and English verbs are conjugated: rules for the regular ones, principal parts for the others."""

from dataclasses import dataclass
from functools import cache

from jointnmt.data.synthetic.features import Person

INSEPARABLE = ("be", "emp", "ent", "er", "ge", "miss", "über", "ver", "zer")
"""Prefixes that stay with the verb, and whose participles have no ge-."""

SIX_FORMS = {
    "sein": "bin bist ist sind seid sind",
    "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden",
    "wissen": "weiß weißt weiß wissen wisst wissen",
    "können": "kann kannst kann können könnt können",
    "müssen": "muss musst muss müssen müsst müssen",
    "wollen": "will willst will wollen wollt wollen",
    "dürfen": "darf darfst darf dürfen dürft dürfen",
    "sollen": "soll sollst soll sollen sollt sollen",
    "möchten": "möchte möchtest möchte möchten möchtet möchten",
}
"""The present of verbs that follow no rule: I, you, he, we, you (plural), they."""

STRONG = """
    sein ist war gewesen | haben hat hatte gehabt | werden wird wurde geworden | wissen weiß wusste gewusst
    können kann konnte gekonnt | müssen muss musste gemusst | wollen will wollte gewollt | dürfen darf durfte gedurft
    sollen soll sollte gesollt | möchten möchte wollte gemocht | beißen beißt biss gebissen
    beschließen beschließt beschloss beschlossen | brennen brennt brannte gebrannt | bringen bringt brachte gebracht
    denken denkt dachte gedacht | essen isst aß gegessen | fahren fährt fuhr gefahren | fallen fällt fiel gefallen
    fangen fängt fing gefangen | finden findet fand gefunden | fliehen flieht floh geflohen
    fressen frisst fraß gefressen | geben gibt gab gegeben | gefallen gefällt gefiel gefallen
    gehen geht ging gegangen | gewinnen gewinnt gewann gewonnen | helfen hilft half geholfen
    kennen kennt kannte gekannt | kommen kommt kam gekommen | laden lädt lud geladen | leihen leiht lieh geliehen
    lesen liest las gelesen | liegen liegt lag gelegen | lügen lügt log gelogen
    rennen rennt rannte gerannt | rufen ruft rief gerufen | schlafen schläft schlief geschlafen
    schießen schießt schoss geschossen | schreiben schreibt schrieb geschrieben
    schwimmen schwimmt schwamm geschwommen | sehen sieht sah gesehen | singen singt sang gesungen
    sitzen sitzt saß gesessen | sprechen spricht sprach gesprochen | stehen steht stand gestanden
    stehlen stiehlt stahl gestohlen | streichen streicht strich gestrichen | tragen trägt trug getragen
    trinken trinkt trank getrunken | vergessen vergisst vergaß vergessen
    verlieren verliert verlor verloren | versprechen verspricht versprach versprochen
    verstehen versteht verstand verstanden | verschwinden verschwindet verschwand verschwunden
    waschen wäscht wusch gewaschen | werfen wirft warf geworfen | ziehen zieht zog gezogen
"""
"""Infinitive, third person present, third person preterite, participle."""

WITH_SEIN = """
    sein werden fliehen gehen rennen schwimmen verschwinden reisen folgen begegnen ab|fahren an|kommen auf|stehen
    auf|wachen ein|schlafen um|fallen um|ziehen zurück|kommen weg|rennen
"""
"""Verbs of motion and change, whose perfect is formed with `sein`."""

IRREGULAR = """
    be was been | begin began begun beginning | bite bit bitten | bring brought brought | build built built
    burn burnt burnt | buy bought bought | catch caught caught | come came come | do did done | drink drank drunk
    eat ate eaten | fall fell fallen | feed fed fed | find found found | flee fled fled
    forget forgot forgotten forgetting | get got got getting | give gave given | go went gone | have had had
    hear heard heard | know knew known | leave left left | lend lent lent | lie lay lain lying
    lose lost lost | put put put putting | read read read | run ran run running | say said said
    see saw seen | sell sold sold | send sent sent | show showed shown | sing sang sung | sit sat sat sitting
    sleep slept slept | stand stood stood | steal stole stolen | swim swam swum swimming | take took taken
    tell told told | travel travelled travelled travelling | think thought thought | throw threw thrown
    understand understood understood | wake woke woken | wear wore worn | win won won winning | write wrote written
    stop stopped stopped stopping | can could - | will would - | would would - | must must - | should should -
"""
"""Base, past, participle, and the -ing form if the rule would have it wrong."""

PARTICIPLE_MISSING = "-"
_VOWELS = "aeiou"


@dataclass(frozen=True, slots=True)
class GermanVerb:
    """The forms of a German verb, six a tense (I, you, he, we, you all, they), without the separable prefix."""

    infinitive: str
    prefix: str
    """The separable prefix, or nothing."""
    present: tuple[str, ...]
    preterite: tuple[str, ...]
    participle: str
    """With the separable prefix."""
    with_sein: bool
    """Whether the perfect is formed with `sein`."""

    @property
    def to_infinitive(self) -> str:
        """The infinitive with `zu`, which goes between a separable prefix and the verb."""
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


@dataclass(frozen=True, slots=True)
class EnglishVerb:
    """The forms of an English verb and the words that go with it."""

    base: str
    third: str
    past: str
    participle: str
    ing: str
    tail: tuple[str, ...]
    """Words right behind it: wait *for*, fall *asleep*."""
    particle: str | None
    """A word behind a pronoun and before any other object: throw it *away*, throw *away* the ball."""

    @property
    def auxiliary(self) -> bool:
        """Whether it takes `not` and changes places with the subject itself, without `do`."""
        return self.base == "be" or self.participle == PARTICIPLE_MISSING

    def finite(self, person: Person, past: bool) -> str:
        """The form that agrees with the subject."""
        if self.base == "be":
            if person.plural:
                return "were" if past else "are"
            return "was" if past else "am" if person.number == 1 else "is"
        if past:
            return self.past
        return self.third if person.number == 3 and not person.plural else self.base


def german_verb(entry: str) -> GermanVerb:
    """The German verb of an infinitive such as `schlafen` or, with a separable prefix, `an|rufen`."""
    prefix, _, infinitive = entry.rpartition("|")
    third, past, participle = _strong_verbs().get(infinitive) or _weak_parts(infinitive, bool(prefix))
    return GermanVerb(
        infinitive=infinitive,
        prefix=prefix,
        present=_present(infinitive, third),
        preterite=_preterite(past),
        participle=prefix + participle,
        with_sein=entry in WITH_SEIN.split(),
    )


def english_verb(entry: str) -> EnglishVerb:
    """The English verb of an entry such as `wait for`, `fall asleep` or, with a particle that moves, `throw +away`."""
    base, *rest = entry.split()
    regular = (_add_ed(base), _add_ed(base), _add_ing(base))
    parts = _irregular_verbs().get(base, regular)
    past, participle, *ing = parts
    modal = participle == PARTICIPLE_MISSING
    return EnglishVerb(
        base=base,
        third=base if modal else "has" if base == "have" else add_s(base),
        past=past,
        participle=participle,
        ing=ing[0] if ing else _add_ing(base),
        tail=tuple(word for word in rest if not word.startswith("+")),
        particle=next((word[1:] for word in rest if word.startswith("+")), None),
    )


def add_s(word: str) -> str:
    """The English plural of a noun, or third person of a verb, by rule."""
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def _add_ed(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if base.endswith("y") and base[-2] not in _VOWELS else base + "ed"


def _add_ing(base: str) -> str:
    return base[:-1] + "ing" if base.endswith("e") and not base.endswith(("ee", "be")) else base + "ing"


@cache
def _strong_verbs() -> dict[str, tuple[str, str, str]]:
    rows = (line.split() for line in STRONG.replace("\n", "|").split("|"))
    return {infinitive: (third, past, participle) for infinitive, third, past, participle in filter(None, rows)}


@cache
def _irregular_verbs() -> dict[str, tuple[str, ...]]:
    rows = (line.split() for line in IRREGULAR.replace("\n", "|").split("|"))
    return {base: tuple(parts) for base, *parts in filter(None, rows)}


def _stem(infinitive: str) -> str:
    return infinitive[:-1] if infinitive.endswith(("eln", "ern")) else infinitive[:-2]


def _needs_e(stem: str) -> bool:
    """Whether -e- must part the stem from -t or -st: er arbeitet, er öffnet, but er lernt."""
    return stem.endswith(("t", "d", "ffn", "chn", "gn"))


def _weak_parts(infinitive: str, separable: bool) -> tuple[str, str, str]:
    stem = _stem(infinitive)
    ending = "et" if _needs_e(stem) else "t"
    plain = infinitive.endswith("ieren") or (infinitive.startswith(INSEPARABLE) and not separable)
    participle = stem + ending if plain else f"ge{stem}{ending}"
    return stem + ending, f"{stem}{ending}e", participle


def _present(infinitive: str, third: str) -> tuple[str, ...]:
    if infinitive in SIX_FORMS:
        return tuple(SIX_FORMS[infinitive].split())
    stem = _stem(infinitive)
    first = f"{stem[:-2]}le" if infinitive.endswith("eln") else f"{stem}e"
    if third.endswith("dt"):
        second = f"{third[:-1]}st"  # er lädt, du lädst
    elif third[:-1].endswith(("s", "ß", "z", "x")):
        second = third  # er isst, du isst
    else:
        second = f"{third[:-1]}st"
    return first, second, third, infinitive, stem + ("et" if _needs_e(stem) else "t"), infinitive


def _preterite(third: str) -> tuple[str, ...]:
    if third.endswith("e"):
        return third, f"{third}st", third, f"{third}n", f"{third}t", f"{third}n"
    e = "e" if third.endswith(("t", "d", "s", "ß")) else ""
    return (
        third,
        f"{third}{e}st",
        third,
        f"{third}en",
        f"{third}{'e' if e and third[-1] in 'td' else ''}t",
        f"{third}en",
    )
