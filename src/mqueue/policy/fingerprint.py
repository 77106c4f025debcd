"""What many errors have in common: numbers, ids, addresses and times go, the words stay.

    normalise("order 17 of 10.0.0.3: timed out")  →  "order <n> of <ip>: timed out"

The patterns mean the same to Python and to Spark, which does this to whole columns. Knows no messages.
"""

from __future__ import annotations

import re
from hashlib import sha256

TEXT_MAX = 500
FINGERPRINT_LENGTH = 12

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?([.,][0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?",
        "<time>",
    ),
    (r"[a-zA-Z][a-zA-Z0-9+.-]*://[^ \t\r\n'\"<>)]+", "<url>"),
    (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+([.][A-Za-z0-9-]+)*", "<email>"),
    (r"[0-9]{1,3}([.][0-9]{1,3}){3}(:[0-9]+)?", "<ip>"),
    (r"\[?([0-9a-fA-F]{1,4}:){2,7}(:?[0-9a-fA-F]{1,4}|:)(:[0-9a-fA-F]{1,4})*\]?", "<ip>"),
    (r"0x[0-9a-fA-F]+", "<hex>"),
    (r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{12,}(?![0-9A-Za-z])", "<hex>"),
    (r"[0-9]+([.,][0-9]+)*", "<n>"),
    (r"[ \t\r\n]+", " "),
)
"""In this order: what is part of something longer comes after it."""

TRANSIENT = (
    r"time(d)?[ -]?out|deadline exceeded|timeout|"
    r"connection (was )?(refused|reset|aborted|closed)|could not connect|broken pipe|no route to host|"
    r"unavailable|temporar|try again|too many (requests|connections)|rate limit|throttl|"
    r"deadlock|lock wait|serialization failure|"
    r"(?<![0-9])(429|502|503|504)(?![0-9])"
)
"""Words of errors that often pass by themselves."""
TRANSIENT_REASONS = ("visibility_timeout",)
"""The consumer went away: that says nothing against the message."""


def normalise(error: str) -> str:
    """An error without what is only true of one message."""
    for pattern, stands_for in PATTERNS:
        error = re.sub(pattern, stands_for, error)
    return error.strip(" ")[:TEXT_MAX]


def fingerprint(reason: str, error: str) -> str:
    """The same for all errors that say the same."""
    return sha256(f"{reason}\n{normalise(error)}".encode()).hexdigest()[:FINGERPRINT_LENGTH]


def is_transient(reason: str, error: str) -> bool:
    """Whether it may well work next time."""
    return reason in TRANSIENT_REASONS or re.search(TRANSIENT, error.lower()) is not None
