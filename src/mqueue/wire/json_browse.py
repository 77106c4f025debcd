"""The JSON of those who leaf through a topic: messages with their state, and with the beginning of their payload."""

from __future__ import annotations

from msgspec import Struct

from mqueue.wire.json import MessageOut


class BrowsedOut(MessageOut, omit_defaults=True, gc=False):
    """`state`: ready, leased, waiting, scheduled, settled, expired, cancelled, or before_start: not for the group.

    `until`: the deadline of its lease, or when it is due; `by`: who holds it.
    """

    state: str = ""
    until: str | None = None
    by: str | None = None


class BrowseOut(Struct):
    """`next`: hand it in as `cursor` for the next page; None: this was all."""

    messages: list[BrowsedOut]
    next: str | None = None


class PriorityOut(Struct):
    priority: int
    ready: int
    waiting: int
    leased: int


class PrioritiesOut(Struct):
    priorities: list[PriorityOut]
