"""The life of a message, and why it is not being delivered, for people: coloured at a terminal, plain in a pipe.

Lines are made of pieces with a style each, so that both say the same. What comes from messages is shown with control
characters escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from mqueue.cli import shapes
from mqueue.cli.output import cell, on_terminal

if TYPE_CHECKING:
    from mqueue.broker.explain import Explanation, Trace

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of text, each with its style."""

_BIRTHPLACE = re.compile(r"partition (\d+), offset (\d+)")
_GOOD, _BAD, _WAITS = "green", "red", "yellow"
_STYLES = {
    "PUBLISHED": "bold",
    "DUPLICATE": _WAITS,
    "SCHEDULED": "cyan",
    "DELIVERED": "blue",
    "REDELIVERED": "magenta",
    "EXTENDED": "blue",
    "NACKED": _WAITS,
    "RELEASED": _WAITS,
    "TIMED_OUT": _WAITS,
    "ACKNOWLEDGED": _GOOD,
    "REDRIVEN": "magenta",
    "EXPIRED": _BAD,
    "CANCELLED": _BAD,
    "DEAD": "bold red",
    "RETAINED": "dim",
}
_CODES = {
    "ready": _GOOD,
    "settled": _GOOD,
    "leased": "blue",
    "scheduled": "cyan",
    "expired": _BAD,
    "cancelled": _BAD,
    "dead": _BAD,
    "diverted": _BAD,
}
"""Why a message is not delivered; all others wait for something."""


def show(lines: Iterable[Line]) -> None:
    """Colours are left out where nobody sees them, or wants to (NO_COLOR)."""
    if not on_terminal():
        for line in lines:
            print("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))


def of_trace(found: Trace, retained_until: datetime | None) -> list[Line]:
    lines: list[Line] = [_field("Message", str(found.id)), _field("Topic", found.topic)]
    if found.events and (place := _BIRTHPLACE.search(found.events[0].detail)):
        lines += [_field("Partition", place[1]), _field("Offset", place[2])]
    rows = [(event.time, event.kind, cell(event.detail, None)) for event in found.events]
    if retained_until is not None and rows:
        rows.append((rows[-1][0], "RETAINED", f"expires={shapes.time(retained_until)}"))
    lines += [[], [("Timeline:", "bold")]]
    for number, (at, kind, detail) in enumerate(rows, 1):
        branch = "└─" if number == len(rows) else "├─"
        when, what = (f"{branch} {shapes.time(at)}  ", "dim"), (f"{kind:<13} ", _STYLES.get(kind, ""))
        lines.append([when, what, (detail, "")])
    lines += [[], _field("Delivery Attempts", str(found.attempts))]
    if (latency := _latency(found)) is not None:
        lines.append(_field("Total Latency", f"{latency.total_seconds():.3f}s (publish to final ack)"))
    return lines


def of_explanation(found: Explanation) -> list[Line]:
    return [[(cell(found.sentence, None), _CODES.get(found.code, _WAITS))]]


def retained_until(found: Trace, settings: Mapping[str, Any]) -> datetime | None:
    """Until when retention keeps a message that is acked: not before that, by its hours; None: nothing is known of it.

    It may go earlier, where the topic keeps so many bytes, and later, while somebody is still owed it.
    """
    hours = settings["retention"].get("hours")
    if hours is None or settings["retention"].get("on_ack") or not any(e.kind == "ACKNOWLEDGED" for e in found.events):
        return None
    return found.events[0].time.astimezone(UTC) + timedelta(hours=hours)


def _field(name: str, value: str) -> Line:
    return [(f"{name}: ", "dim"), (value, "bold")]


def _latency(found: Trace) -> timedelta | None:
    acks = [event.time for event in found.events if event.kind == "ACKNOWLEDGED"]
    return acks[-1] - found.events[0].time if acks else None
