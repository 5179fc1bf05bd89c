"""The nouns and names of the synthetic corpus.

A row is `article noun, plural = English, English plural`, with an optional list of kinds beyond the section's own in
brackets. A dash for the plural says that it is not used; the English plural is left out where the rule forms it.
A star marks weak nouns. A place adds `: where; whither`, each a German and an English preposition.
"""

import re

from jointnmt.data.synthetic.conjugation import add_s
from jointnmt.data.synthetic.entries import Name, Noun, Preposition
from jointnmt.data.synthetic.features import HE, IT, SHE, Case, Gender, Kind, Person

_GENDERS = {"der": Gender.MASCULINE, "die": Gender.FEMININE, "das": Gender.NEUTER}

_MEN = """
    der Mann, Männer = man, men [SPOUSE]
    der Junge*, Jungen = boy
    der Lehrer, Lehrer = teacher
    der Arzt, Ärzte = doctor
    der Koch, Köche = cook
    der Nachbar*, Nachbarn = neighbour
    der Student*, Studenten = student
    der König, Könige = king
    der Polizist*, Polizisten = policeman, policemen
    der Großvater, Großväter = grandfather
    der Bruder, Brüder = brother
    der Sohn, Söhne = son
    der Freund, Freunde = friend
    der Dieb, Diebe = thief, thieves
    der Zauberer, Zauberer = wizard
    der Pirat*, Piraten = pirate
    der Bauer*, Bauern = farmer
    der Riese*, Riesen = giant
    der Leiter, Leiter = manager
"""

_WOMEN = """
    die Frau, Frauen = woman, women [SPOUSE]
    das Mädchen, Mädchen = girl
    die Lehrerin, Lehrerinnen = teacher
    die Ärztin, Ärztinnen = doctor
    die Köchin, Köchinnen = cook
    die Sängerin, Sängerinnen = singer
    die Königin, Königinnen = queen
    die Großmutter, Großmütter = grandmother
    die Schwester, Schwestern = sister
    die Tochter, Töchter = daughter
    die Freundin, Freundinnen = friend
    die Hexe, Hexen = witch
    die Richterin, Richterinnen = judge
    die Mutter, Mütter = mother
"""

_CHILDREN = """
    das Kind, Kinder = child, children
    das Baby, Babys = baby
"""

_ANIMALS = """
    der Hund, Hunde = dog
    die Katze, Katzen = cat
    die Maus, Mäuse = mouse, mice
    der Vogel, Vögel = bird
    das Pferd, Pferde = horse
    die Kuh, Kühe = cow
    der Esel, Esel = donkey
    der Bär*, Bären = bear
    der Wolf, Wölfe = wolf, wolves
    der Hase*, Hasen = hare
    der Frosch, Frösche = frog
    der Igel, Igel = hedgehog
    der Elefant*, Elefanten = elephant
    der Affe*, Affen = monkey
    der Löwe*, Löwen = lion
    die Eule, Eulen = owl
    der Drache*, Drachen = dragon
    der Strauß, Strauße = ostrich
    der Hahn, Hähne = rooster
    die Schlange, Schlangen = snake
    der Kater, Kater = tomcat
    die Fliege, Fliegen = fly
"""

_FOOD = """
    der Apfel, Äpfel = apple [FRUIT SWEET]
    die Banane, Bananen = banana [FRUIT SWEET]
    die Birne, Birnen = pear [FRUIT SWEET]
    die Melone, Melonen = melon [FRUIT SWEET]
    das Brot, - = bread, -
    der Käse, - = cheese, -
    der Honig, - = honey, - [SWEET]
    der Kuchen, Kuchen = cake [SWEET]
    die Suppe, Suppen = soup [MEAL SPICY]
    das Ei, Eier = egg [MEAL]
    die Wurst, Würste = sausage [MEAL SPICY]
    der Salat, Salate = salad [MEAL SPICY]
    das Gericht, Gerichte = dish [MEAL SPICY]
"""

_DRINKS = """
    die Milch, - = milk, -
    das Wasser, - = water, -
    der Tee, - = tea, -
    der Kaffee, - = coffee, -
    der Wein, - = wine, -
"""

_CLOTHES = """
    der Hut, Hüte = hat [HEADWEAR]
    der Mantel, Mäntel = coat [GARMENT]
    das Kleid, Kleider = dress [GARMENT]
    die Mütze, Mützen = cap [HEADWEAR]
    der Schal, Schals = scarf, scarves
    der Schuh, Schuhe = shoe [GARMENT]
    die Hose, - = trousers, trousers [GARMENT]
    die Brille, - = glasses, glasses [HEADWEAR]
    die Fliege, Fliegen = bow tie
    die Melone, Melonen = bowler hat [HEADWEAR]
"""

_TEXTS = """
    das Buch, Bücher = book
    der Brief, Briefe = letter
    die Zeitung, Zeitungen = newspaper
    das Gedicht, Gedichte = poem
    das Märchen, Märchen = fairy tale [STORY]
    das Rezept, Rezepte = recipe
    das Tagebuch, Tagebücher = diary
"""

_DEVICES = """
    die Lampe, Lampen = lamp
    das Radio, Radios = radio
    der Computer, Computer = computer
    der Ofen, Öfen = oven
    die Kamera, Kameras = camera
    die Uhr, Uhren = clock
"""

_THINGS = """
    der Schlüssel, Schlüssel = key
    die Tasse, Tassen = cup
    das Messer, Messer = knife, knives [BLADE]
    die Schere, - = scissors, scissors [BLADE]
    der Regenschirm, Regenschirme = umbrella
    der Ring, Ringe = ring
    das Geschenk, Geschenke = present
    der Besen, Besen = broom
    der Schatz, Schätze = treasure
    die Krone, Kronen = crown
    der Ball, Bälle = ball
    die Leiter, Leitern = ladder
    der Koffer, Koffer = suitcase [OPENABLE CONTAINER]
    die Kiste, Kisten = box [OPENABLE CONTAINER]
    die Flasche, Flaschen = bottle [OPENABLE CONTAINER]
    das Paket, Pakete = parcel [OPENABLE CONTAINER]
"""

_OPENABLE = """
    die Tür, Türen = door
    das Fenster, Fenster = window
    das Tor, Tore = gate
"""

_FURNITURE = """
    der Tisch, Tische = table
    der Schrank, Schränke = cupboard [OPENABLE CONTAINER]
    der Stuhl, Stühle = chair [HOME] : auf on
    das Sofa, Sofas = sofa [HOME] : auf on
    die Bank, Bänke = bench : auf on
"""

_VEHICLES = """
    der Zug, Züge = train
    der Bus, Busse = bus
    das Auto, Autos = car
    das Schiff, Schiffe = ship
    das Flugzeug, Flugzeuge = plane
    das Taxi, Taxis = taxi, taxis
"""

_PLANTS = """
    die Blume, Blumen = flower
    die Rose, Rosen = rose
    der Strauß, Sträuße = bouquet
"""

_PLACES = """
    der Garten, Gärten = garden [HOME] : in in; in into
    die Küche, Küchen = kitchen [HOME] : in in; in into
    das Zimmer, Zimmer = room [HOME] : in in; in into
    der Wald, Wälder = forest : in in; in into
    das Dorf, Dörfer = village [FAR] : in in; in to
    die Stadt, Städte = town [FAR] : in in; in to
    der Markt, Märkte = market : auf at; auf to
    der Bahnhof, Bahnhöfe = station : an at; zu to
    der Strand, Strände = beach [FAR] : an on; an to
    die Insel, Inseln = island [FAR] : auf on; auf to
    die Straße, Straßen = street : auf in; auf into
    der Berg, Berge = mountain [FAR] : auf on; auf up
    das Dach, Dächer = roof [HOME] : auf on; auf onto
    der See, Seen = lake [FAR] : an at; an to
    die See, - = sea, seas [FAR] : an by; an to
"""

_BUILDINGS = """
    das Haus, Häuser = house [HOME] : in in; in into
    die Schule, Schulen = school : in at; in to
    das Theater, Theater = theatre : in at; in to
    das Museum, Museen = museum : in in; in to
    die Kirche, Kirchen = church : in in; in to
    der Turm, Türme = tower : in in; in into
    das Schloss, Schlösser = castle : in in; in into
    das Krankenhaus, Krankenhäuser = hospital : in in; in to
"""

_EVENTS = """
    der Film, Filme = film
    das Konzert, Konzerte = concert
    das Spiel, Spiele = game [MATCH]
    die Reise, Reisen = journey
    die Hochzeit, Hochzeiten = wedding : auf at; zu to
    das Fest, Feste = party : auf at; zu to
    der Ball, Bälle = dance : auf at; zu to
"""

_IDEAS = """
    die Geschichte, Geschichten = story [STORY]
    der Witz, Witze = joke [STORY]
    der Traum, Träume = dream [STORY]
    die Frage, Fragen = question [TASK]
    die Prüfung, Prüfungen = exam [TASK]
    das Rätsel, Rätsel = riddle [TASK RIDDLE]
    das Lied, Lieder = song [MUSIC SONG]
    die Musik, - = music, - [MUSIC]
    das Klavier, Klaviere = piano [INSTRUMENT]
    die Geige, Geigen = violin [INSTRUMENT]
"""

_OTHERS = """
    das Schloss, Schlösser = lock [HARDWARE]
    die Birne, Birnen = light bulb [HARDWARE]
    der Hahn, Hähne = tap [HARDWARE]
    die Mutter, Muttern = nut [HARDWARE]
    die Schlange, Schlangen = queue [QUEUE] : in in
    die Bank, Banken = bank [INSTITUTION PLACE] : in at; zu to
    das Gericht, Gerichte = court [INSTITUTION PLACE] : an at
    das Tor, Tore = goal [GOAL]
    der Kater, Kater = hangover [HANGOVER]
    die Karte, Karten = menu [MENU]
    die Karte, Karten = map [MAP]
    die Decke, Decken = blanket [BEDDING]
    die Decke, Decken = ceiling [CEILING]
"""

_EVOCATIVE = """
    der Zoo, Zoos = zoo [ANIMAL] : in at; in to
    der Bauernhof, Bauernhöfe = farm [ANIMAL] : auf on; auf to
    der Blumenladen, Blumenläden = flower shop [PLANT] : in in; in to
    das Restaurant, Restaurants = restaurant [FOOD MENU] : in in; in to
    der Supermarkt, Supermärkte = supermarket [FOOD QUEUE] : in in; in to
    die Werkstatt, Werkstätten = workshop [HARDWARE] : in in; in to
    die Wüste, Wüsten = desert [MAP] : in in; in into
"""
"""Places with the kinds that one expects there, in the brackets."""

_ROW = re.compile(
    r"(?P<article>\w+) (?P<german>\w+)(?P<weak>\*?), (?P<plural>[\w-]+) = (?P<english>[\w ]+?)"
    r"(?:, (?P<english_plural>[\w -]+?))?(?: \[(?P<kinds>[A-Z ]+)\])?"
    r"(?: : (?P<where>\w+ \w+)(?:; (?P<whither>\w+ \w+))?)?"
)


def _nouns(rows: str, kind: Kind, person: Person = IT, evocative: bool = False) -> list[Noun]:
    return [_noun(row.strip(), kind, person, evocative) for row in rows.strip().splitlines()]


def _noun(row: str, kind: Kind, person: Person, evocative: bool) -> Noun:
    parts = _ROW.fullmatch(row)
    assert parts is not None, f"not a row of the lexicon: {row}"
    named = Kind.NOTHING
    for name in (parts["kinds"] or "").split():
        named |= Kind[name]
    english_plural = parts["english_plural"] or add_s(parts["english"])
    return Noun(
        german=parts["german"],
        gender=_GENDERS[parts["article"]],
        german_plural=None if parts["plural"] == "-" else parts["plural"],
        weak=bool(parts["weak"]),
        english=parts["english"],
        english_plural=None if english_plural == "-" else english_plural,
        person=person,
        kind=kind if evocative else kind | named,
        where=_preposition(parts["where"], goal=False),
        whither=_preposition(parts["whither"], goal=True),
        evokes=named if evocative else Kind.NOTHING,
    )


def _preposition(pair: str | None, goal: bool) -> Preposition | None:
    if pair is None:
        return None
    german, english = pair.split()
    return Preposition(german, Case.ACCUSATIVE if goal and german != "zu" else Case.DATIVE, english)


NOUNS: tuple[Noun, ...] = (
    *_nouns(_MEN, Kind.PERSON, HE),
    *_nouns(_WOMEN, Kind.PERSON, SHE),
    *_nouns(_CHILDREN, Kind.PERSON),
    *_nouns(_ANIMALS, Kind.ANIMAL),
    *_nouns(_FOOD, Kind.FOOD),
    *_nouns(_DRINKS, Kind.DRINK),
    *_nouns(_CLOTHES, Kind.CLOTHES),
    *_nouns(_TEXTS, Kind.TEXT),
    *_nouns(_DEVICES, Kind.DEVICE),
    *_nouns(_THINGS, Kind.THING),
    *_nouns(_OPENABLE, Kind.OPENABLE),
    *_nouns(_FURNITURE, Kind.FURNITURE),
    *_nouns(_VEHICLES, Kind.VEHICLE),
    *_nouns(_PLANTS, Kind.PLANT),
    *_nouns(_PLACES, Kind.PLACE),
    *_nouns(_BUILDINGS, Kind.PLACE | Kind.BUILDING),
    *_nouns(_EVENTS, Kind.EVENT),
    *_nouns(_IDEAS, Kind.NOTHING),
    *_nouns(_OTHERS, Kind.NOTHING),
    *_nouns(_EVOCATIVE, Kind.PLACE, evocative=True),
)

NAMES: tuple[Name, ...] = (
    *(Name(text, Gender.FEMININE, SHE) for text in ("Anna", "Clara", "Emma", "Lena")),
    *(Name(text, Gender.MASCULINE, HE) for text in ("Paul", "Otto", "Leo", "Karl")),
)
