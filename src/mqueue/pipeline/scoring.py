"""What a lead is worth: a list of rules, each with its points and its reason, so that every score can be explained.

A rule is a condition of Spark's SQL over the columns of a lead that was joined with its company. Knows no topics.
"""

from __future__ import annotations

from msgspec import Struct

SCORE_MAX = 100
URGENT, USUAL = 65, 35
"""From this score on, a lead is urgent or usual; what is below can wait."""
PRIORITIES = {"urgent": 25, "usual": 50, "later": 75}
"""`high`, `normal` and `low`, as lanes are numbered."""


class Rule(Struct, frozen=True):
    """`points` are given to a lead for which `condition` holds."""

    reason: str
    condition: str
    points: int


RULES = (
    Rule("company known", "industry is not null", 15),
    Rule("large company", "size >= 1000", 20),
    Rule("mid-sized company", "size >= 100 and size < 1000", 10),
    Rule("buys often in this industry", "industry in ('software', 'finance', 'health')", 10),
    Rule("large budget", "budget >= 50000", 25),
    Rule("some budget", "budget >= 2000 and budget < 50000", 10),
    Rule("was referred", "source = 'referral'", 15),
    Rule("came to us", "source in ('webinar', 'fair')", 10),
    Rule("asks for a demo or a quote", "lower(message) rlike 'demo|quote'", 10),
    Rule("can be called", "phone is not null", 5),
)
