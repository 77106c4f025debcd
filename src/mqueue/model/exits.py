"""How a run ends: the number a process leaves with, and what of an error may be shown on a terminal.

The command line and the jobs of the pipeline end alike. Prints nothing.
"""

from __future__ import annotations

from mqueue.model.errors import (
    DiskFull,
    Error,
    Forbidden,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Refused,
    Unauthorized,
    Unavailable,
)

OK = 0
FAILED = 1
USAGE = 2
NOTHING = 3
REFUSED = 4
NOT_NOW = 5
INTERRUPTED = 130

_CODES: tuple[tuple[tuple[type[Error], ...], int], ...] = (
    ((NotFound,), NOTHING),
    ((Refused, Unauthorized, Forbidden), REFUSED),
    ((Unavailable, QuotaExceeded, QueueFull, DiskFull), NOT_NOW),
)


def code_of(error: Error) -> int:
    if error.code == "bad_config":
        return USAGE
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)


def complaint(sentence: str) -> str:
    """A line for stderr, without what could move a terminal's cursor: a part of it may come from a server."""
    shown = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in sentence)
    return f"mqueue: {shown}"
