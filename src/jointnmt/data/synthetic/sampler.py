"""Drawing sentences: verbs, tenses, negation, objects, places, and the clauses inside and beside each clause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from jointnmt.data.synthetic import lexicon
from jointnmt.data.synthetic import links as L
from jointnmt.data.synthetic import modifiers as M
from jointnmt.data.synthetic import verbs as V
