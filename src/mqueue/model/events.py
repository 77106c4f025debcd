"""What happened, as values. The journal is a sequence of these, state is what folding them gives, a trace shows them.

A *span* is a piece of one partition: `(partition, start, stop, mask)`. Bit i of the mask stands for offset start + i;
the spans of one event are in the order in which they were handed out. Spans of leases also say which attempt it is,
spans that speak of the order (void, redrive) also carry the order key, because the log is not read to fold them.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from mqueue.model.settings import Settings

Span: TypeAlias = tuple[int, int, int, int]
"""partition, start, stop, mask"""
LeasedSpan: TypeAlias = tuple[int, int, int, int, int, int, int]
"""partition, start, stop, mask, attempt, priority, at"""
KeyedSpan: TypeAlias = tuple[int, int, int, int, int, int]
"""partition, start, stop, mask, priority, at"""
Placed: TypeAlias = tuple[int, str, int, int, bool]
"""id, topic, partition, offset of a message, and whether it was there before"""


class Event(Struct, frozen=True, gc=False, tag=True, array_like=True):
    at: int
    topic: int


class TopicMade(Event, frozen=True, gc=False, tag=1, array_like=True):
    namespace: str
    name: str
    settings: Settings


class TopicSet(Event, frozen=True, gc=False, tag=2, array_like=True):
    settings: Settings


class TopicDropped(Event, frozen=True, gc=False, tag=3, array_like=True):
    pass


class GroupMade(Event, frozen=True, gc=False, tag=4, array_like=True):
    group: str
    starts: tuple[int, ...]


class GroupDropped(Event, frozen=True, gc=False, tag=5, array_like=True):
    group: str


class Sought(Event, frozen=True, gc=False, tag=6, array_like=True):
    """A group was moved: what it held is forgotten, older tokens are dead, all from `starts` on is owed again."""

    group: str
    starts: tuple[int, ...]


class Leased(Event, frozen=True, gc=False, tag=7, array_like=True):
    group: str
    token: bytes
    deadline: int
    consumer: str
    spans: tuple[LeasedSpan, ...]


class Settled(Event, frozen=True, gc=False, tag=8, array_like=True):
    """`verb`: ack, nack (back at `due`), release, expire (the lease ran out), dead (`error` after `reason`).

    Or reject, of what had ended for everybody while it was leased: else a rejected message is dead.
    """

    group: str
    token: bytes
    verb: str
    spans: tuple[Span, ...]
    due: int = 0
    reason: str = ""
    error: str = ""


class Extended(Event, frozen=True, gc=False, tag=9, array_like=True):
    group: str
    token: bytes
    deadline: int
    spans: tuple[Span, ...]


class Voided(Event, frozen=True, gc=False, tag=10, array_like=True):
    """Ended for every group, also for later ones. `cause`: expired, cancelled."""

    cause: str
    spans: tuple[KeyedSpan, ...]


class Purged(Event, frozen=True, gc=False, tag=11, array_like=True):
    """Everything below `floors` was cancelled, scheduled or visible."""

    floors: tuple[int, ...]


class Rescheduled(Event, frozen=True, gc=False, tag=12, array_like=True):
    partition: int
    offset: int
    priority: int
    was: int
    due: int


class Redriven(Event, frozen=True, gc=False, tag=13, array_like=True):
    group: str
    spans: tuple[KeyedSpan, ...]


class Duplicated(Event, frozen=True, gc=False, tag=14, array_like=True):
    """A publish was answered with a message that was already there. Changes nothing; the trace shows it."""

    partition: int
    offset: int


class Trimmed(Event, frozen=True, gc=False, tag=15, array_like=True):
    """Retention dropped everything below `floors` but what is kept.

    `kept`: what stays between the old floors and these; `gone`: what earlier trims kept and goes now. In order.
    """

    floors: tuple[int, ...]
    kept: tuple[Span, ...] = ()
    gone: tuple[Span, ...] = ()


class Heard(Event, frozen=True, gc=False, tag=16, array_like=True):
    """A group asked for messages and there were none. Now and then, so that a restart does not forget the group."""

    group: str


class Followed(Event, frozen=True, gc=False, tag=17, array_like=True):
    """A settle call published something. Should it be repeated, these are its receipts; `call` tells it from others."""

    call: bytes
    receipts: tuple[Placed, ...]


class Pinned(Event, frozen=True, gc=False, tag=18, array_like=True):
    """A cursor of a user was set, moved or kept alive: until it expires nothing from its offsets on is dropped.

    Partitions that came later than the cursor have no offset here; of those it needs everything.
    """

    name: str
    offsets: tuple[int, ...]
    made_at: int
    expires_at: int


class Unpinned(Event, frozen=True, gc=False, tag=19, array_like=True):
    name: str


class Staged(Event, frozen=True, gc=False, tag=20, array_like=True):
    """A part of a transaction is there: the offsets from `start` to before `stop` of the topic that it is staged in.

    It takes the place of an earlier part of that name. `size`: all bytes staged so far, replaced ones too.
    """

    part: str
    target: str
    start: int
    stop: int
    priorities: tuple[int, ...]
    size: int
    expires_at: int


class Moved(Event, frozen=True, gc=False, tag=21, array_like=True):
    """A commit has begun and has published what was staged below this offset; the rest follows."""

    upto: int


class Concluded(Event, frozen=True, gc=False, tag=22, array_like=True):
    """How a transaction ended: `state` is committed or aborted. Told to the ledger of its namespace."""

    transaction: str
    state: str
    parts: int
    messages: int
    targets: tuple[str, ...]


class Forgotten(Event, frozen=True, gc=False, tag=24, array_like=True):
    """How a transaction ended need not be known any more. Told to the ledger of its namespace."""

    transaction: str


class Chosen(Event, frozen=True, gc=False, tag=23, array_like=True):
    """A commit publishes these parts of a transaction only; the others that were staged are none of it any more.

    It happens together with the first step of the commit, so nobody ever sees one without the other.
    """

    parts: tuple[str, ...]


class Planned(Event, frozen=True, gc=False, tag=50, array_like=True):
    """A schedule was made or changed: what is published again and again, and when next (0: it is paused, or over).

    `cron` in the time zone `tz`, or every `every_ms` since it was made. `misfire`: what becomes of occurrences that
    were missed. `count`, `last_at`, `last_id`: how many occurrences were published, which was the last, as what.
    """

    name: str
    cron: str
    tz: str
    every_ms: int
    misfire: str
    payload: bytes
    key: bytes | None
    priority: int
    headers: tuple[tuple[str, bytes], ...]
    ttl_ms: int | None
    made_at: int
    next_at: int
    paused: bool = False
    count: int = 0
    last_at: int = 0
    last_id: int = 0


class Fired(Event, frozen=True, gc=False, tag=51, array_like=True):
    """Occurrences of a schedule were published, or passed over, with the same commit; `next_at` comes next.

    `count`: how many were published; `last_at` and `last_id`: of the last of them.
    """

    name: str
    count: int
    last_at: int
    last_id: int
    next_at: int


class Unplanned(Event, frozen=True, gc=False, tag=52, array_like=True):
    """A schedule was deleted."""

    name: str


class GroupAssigned(Event, frozen=True, gc=False, tag=40, array_like=True):
    """From now on each partition of the topic is for one member of the group only. It stays so."""

    group: str


class MemberJoined(Event, frozen=True, gc=False, tag=41, array_like=True):
    """A member joined, or joined again and takes the place of the one that had its id: that has another generation."""

    group: str
    member: str
    generation: int
    consumer: str = ""


class MemberLeft(Event, frozen=True, gc=False, tag=42, array_like=True):
    """A member is none any more: it left, or was not heard of. Nobody has its partitions."""

    group: str
    member: str
    reason: str


class Rebalanced(Event, frozen=True, gc=False, tag=43, array_like=True):
    """It was decided anew which member is to have which partition; empty: nobody, as there are none.

    Partitions that somebody else has, or had, get no further deliveries until they are handed on.
    """

    group: str
    reason: str
    targets: tuple[str, ...]


class HandedOn(Event, frozen=True, gc=False, tag=44, array_like=True):
    """Nothing is leased of these partitions any more: whoever is to have them has them."""

    group: str
    partitions: tuple[int, ...]


class Diverted(Event, frozen=True, gc=False, tag=30, array_like=True):
    """Messages of ordering keys follow one that died: from now on those of `keys`, and dead are those of `spans`.

    Keys are hashes.
    """

    group: str
    keys: tuple[int, ...]
    spans: tuple[KeyedSpan, ...] = ()


class Rejoined(Event, frozen=True, gc=False, tag=31, array_like=True):
    """Something of these ordering keys was redriven: their messages are delivered again."""

    group: str
    keys: tuple[int, ...]
