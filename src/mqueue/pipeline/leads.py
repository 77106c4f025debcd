"""Leads and companies as a sales department has them, made up: the same seed makes the same data. Knows no Spark.

Most leads are clean, some are untidy (spaces, capitals, another spelling of the company), and some cannot be used: what
is wrong with those is told beside them, so that whoever cleans them can be checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, json

FIELDS = ("lead_id", "name", "email", "company", "phone", "country", "source", "budget", "message", "created_at")
"""What a lead may say of itself; anything else is a mistake of whoever sent it."""

FREE_MAIL = ("gmail.com", "outlook.com", "yahoo.com", "gmx.de", "proton.me")
"""Where anybody has an address: they tell nothing about a company."""

INDUSTRIES = ("software", "finance", "health", "retail", "logistics", "energy", "media", "education", "manufacturing")
COUNTRIES = ("US", "DE", "FR", "GB", "NL", "SE", "CH", "CA", "JP", "BR")
SOURCES = ("webinar", "referral", "search", "fair", "newsletter", "cold call")

_SUFFIXES = ("Inc.", "GmbH", "Ltd", "AG", "LLC", "S.A.", "BV")
_FIRST = ("North", "Blue", "Bright", "Iron", "Silver", "Green", "Open", "Rapid", "True", "Urban", "Alpine", "Delta")
_SECOND = ("wind", "stone", "field", "bridge", "light", "river", "point", "works", "grid", "loop", "harbor", "peak")
_THIRD = ("Systems", "Partners", "Labs", "Trading", "Health", "Foods", "Logistics", "Media", "Energy", "Analytics")
_NAMES = ("Ada", "Bram", "Chloé", "Dmitri", "Elif", "Femi", "Grace", "Hiro", "Inês", "Jonas", "Kavya", "Lars", "Mei")
_FAMILIES = ("Okafor", "Meyer", "Silva", "Tanaka", "Dubois", "Larsson", "Novák", "Khan", "Rossi", "Smith", "Müller")
_WISHES = ("a demo", "a quote for 50 seats", "to talk about prices", "a trial", "help with a migration", "nothing yet")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Company(Struct, frozen=True):
    """A row of the reference data. `size`: how many people work there."""

    company_id: int
    name: str
    domain: str
    industry: str
    size: int
    country: str


class Lead(Struct, frozen=True):
    """A message as it would be published, and what is wrong with it; empty: nothing."""

    key: bytes
    payload: bytes
    fault: str


def companies(seed: int, count: int) -> list[Company]:
    """Companies with names and domains of their own."""
    chance = random.Random(f"companies/{seed}")  # noqa: S311 (made-up data needs no secrecy)
    made = []
    for number in range(count):
        first, second, third = chance.choice(_FIRST), chance.choice(_SECOND), chance.choice(_THIRD)
        name = f"{first}{second} {third} {number}"
        domain = f"{first}{second}-{third}-{number}.example".lower()
        size = int(min(200_000, 3 * 1.0005 ** chance.randrange(20_000)))
        country = chance.choice(COUNTRIES)
        made.append(Company(number, name, domain, chance.choice(INDUSTRIES), size, country))
    return made


def leads(seed: int, count: int, known: list[Company]) -> Iterator[Lead]:
    """Leads of these companies, of others, and of nobody."""
    chance = random.Random(f"leads/{seed}")  # noqa: S311
    for number in range(count):
        fields = _clean(chance, number, known)
        fault = chance.choices(("", *_FAULTS), (92, 2, 2, 2, 2))[0]
        if not fault and chance.random() < 0.2:
            _untidy(chance, fields)
        payload = _FAULTS[fault](chance, fields) if fault else json.encode(fields)
        yield Lead(f"lead-{number:08}".encode(), payload, fault)


def _clean(chance: random.Random, number: int, known: list[Company]) -> dict[str, Any]:
    company = chance.choice(known)
    name, family = chance.choice(_NAMES), chance.choice(_FAMILIES)
    stranger = chance.random() < 0.1
    free = stranger or chance.random() < 0.2
    mailbox = f"{name}.{family}{number}".encode("ascii", "ignore").decode().lower()
    return {
        "lead_id": f"lead-{number:08}",
        "name": f"{name} {family}",
        "email": f"{mailbox}@{chance.choice(FREE_MAIL) if free else company.domain}",
        "company": f"Unheard of {number}" if stranger else f"{company.name} {chance.choice(_SUFFIXES)}",
        "phone": f"+{chance.randrange(1, 99)} {chance.randrange(10**8, 10**9)}",
        "country": company.country,
        "source": chance.choice(SOURCES),
        "budget": chance.choice((0, 500, 2_000, 10_000, 50_000, 250_000)),
        "message": f"I would like {chance.choice(_WISHES)}",
        "created_at": (_EPOCH + timedelta(seconds=number)).isoformat(),
    }


def _untidy(chance: random.Random, fields: dict[str, Any]) -> None:
    """As people type: it can all be put in order."""
    fields["name"] = f"  {fields['name'].upper()} "
    fields["email"] = f" {fields['email'].upper()}"
    fields["company"] = fields["company"].lower().replace(" ", "  ")
    if chance.random() < 0.5:
        fields["country"] = fields["country"].lower()
    if chance.random() < 0.5:
        del fields["phone"]


def _cut_off(chance: random.Random, fields: dict[str, Any]) -> bytes:
    whole = json.encode(fields)
    return whole[: chance.randrange(1, len(whole) - 1)]


def _no_address(chance: random.Random, fields: dict[str, Any]) -> bytes:
    fields["email"] = chance.choice(("n/a", "nobody@", "@example.com", "a b@example.com", "nobody@localhost"))
    return json.encode(fields)


def _nameless(chance: random.Random, fields: dict[str, Any]) -> bytes:
    fields["name"] = chance.choice(("", "   "))
    return json.encode(fields)


def _chatty(chance: random.Random, fields: dict[str, Any]) -> bytes:
    fields[chance.choice(("utm_campaign", "shoe_size", "fax"))] = "1"
    return json.encode(fields)


_FAULTS = {"invalid_json": _cut_off, "bad_email": _no_address, "no_name": _nameless, "unknown_fields": _chatty}
