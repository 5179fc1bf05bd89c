"""What joins clauses in the synthetic corpus: conjunctions of object, adverbial and main clauses, and infinitives."""

from jointnmt.data.synthetic.entries import Link, LinkForm

THAT = Link("dass", "that")
WHETHER = Link("ob", "whether")
INDIRECT_QUESTION = Link("", "")
"""The interrogative at the head of an indirect question joins it by itself."""
TO = Link("zu", "to", LinkForm.TO)
ING = Link("zu", "", LinkForm.ING)
"""A German infinitive that English renders by -ing: hört auf zu lachen, stops laughing."""

BECAUSE = Link("weil", "because")
ALTHOUGH = Link("obwohl", "although")
IF = Link("wenn", "if")
WHEN = Link("als", "when")
BEFORE = Link("bevor", "before")
WHILE = Link("während", "while")
UNTIL = Link("bis", "until")
IN_ORDER_TO = Link("um", "in order to", LinkForm.TO)
WITHOUT = Link("ohne", "without", LinkForm.ING)

AND = Link("und", "and", LinkForm.SECOND)
BUT = Link("aber", "but", LinkForm.SECOND, comma=True)
FOR = Link("denn", "because", LinkForm.SECOND)

ADVERBIAL_LINKS = (BECAUSE, ALTHOUGH, IF, WHEN, BEFORE, WHILE, UNTIL, IN_ORDER_TO, WITHOUT)
MAIN_LINKS = (AND, BUT, FOR)
