"""The states of a message, and the only moves between them.

Two machines. The *message* is scheduled, then visible, and may end expired or cancelled for everybody. Once it is
visible, each *group* moves it on its own. Nobody assigns a state: the heart keeps runs, and this table says which
moves those runs may make. The picture in the docs is drawn from it, and the laws check every move seen against it.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    SCHEDULED = "scheduled"
    VISIBLE = "visible"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    ACKED = "acked"
    DEAD = "dead"


class Kind(StrEnum):
    """What a trace shows. Each move below is one of these."""

    PUBLISHED = "PUBLISHED"
    DUPLICATE = "DUPLICATE"
    SCHEDULED = "SCHEDULED"
    REPLICATED = "REPLICATED"
    DELIVERED = "DELIVERED"
    REDELIVERED = "REDELIVERED"
    EXTENDED = "EXTENDED"
    NACKED = "NACKED"
    RELEASED = "RELEASED"
    TIMED_OUT = "TIMED_OUT"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"
    DEAD = "DEAD"
    REDRIVEN = "REDRIVEN"
    ARCHIVED = "ARCHIVED"
    RETAINED = "RETAINED"


MESSAGE_MOVES = frozenset(
    {
        (State.SCHEDULED, State.VISIBLE),
        (State.SCHEDULED, State.CANCELLED),
        (State.VISIBLE, State.EXPIRED),
        (State.VISIBLE, State.CANCELLED),
    }
)

DELIVERY_MOVES = frozenset(
    {
        (State.READY, State.LEASED),
        (State.READY, State.ACKED),  # at most once: acked as it is handed out
        (State.READY, State.DEAD),  # it follows a dead message of its key
        (State.LEASED, State.ACKED),
        (State.LEASED, State.READY),  # release, lease expiry
        (State.LEASED, State.WAITING),  # nack
        (State.LEASED, State.DEAD),
        (State.LEASED, State.EXPIRED),  # given back after the message had ended
        (State.LEASED, State.CANCELLED),
        (State.WAITING, State.READY),
        (State.READY, State.EXPIRED),
        (State.READY, State.CANCELLED),
        (State.WAITING, State.EXPIRED),
        (State.WAITING, State.CANCELLED),
        (State.ACKED, State.READY),  # seek
        (State.DEAD, State.READY),  # seek, redrive
    }
)
