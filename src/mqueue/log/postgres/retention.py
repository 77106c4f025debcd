"""What goes: floors that rise, what is kept below them, and days that are dropped as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import LiteralString
from uuid import UUID

from msgspec import Struct

from mqueue.log.postgres.arrays import Blobs, Longs
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Busy


class Kept(Struct, frozen=True, gc=False):
    """A piece of a frame that is needed below its floor: neighbours, packed as a frame of their own."""

    partition: int
    base: int
    count: int
    base_id: int
    at: int
    size: int
    head: bytes
    body: bytes


def trim(
    link: Link,
    owner: UUID,
    epoch: int,
    topic: int,
    floors: Sequence[int],
    kept: Sequence[Kept] = (),
    gone: Sequence[tuple[int, int]] = (),
) -> None:
    """Raise the floors of a topic, one for each partition, and keep these pieces below them.

    `gone`: (partition, base) of pieces that are not kept any more. A piece with a base that is there takes its place.
    Raises Fenced, NoTopic.
    """
    link.call(
        "select mqueue.trim(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)",
        (
            owner,
            epoch,
            topic,
            Longs(floors),
            Longs(place[0] for place in gone),
            Longs(place[1] for place in gone),
            Longs(piece.partition for piece in kept),
            Longs(piece.base for piece in kept),
            Longs(piece.count for piece in kept),
            Longs(piece.base_id for piece in kept),
            Longs(piece.at for piece in kept),
            Longs(piece.size for piece in kept),
            Blobs(piece.head for piece in kept),
            Blobs(piece.body for piece in kept),
        ),
    )


def retire(link: Link, day: date) -> bool:
    """Drop the frames of a day, unless something in it is above its floor and not kept elsewhere. Whether they went.

    Also False if somebody reads or writes there for so long that others would have to wait: try again later.
    """
    return _retired(link, "select mqueue.retire(%b::date)", day)


def retire_journal(link: Link, day: date, old: bool = False) -> bool:
    """Drop the journal of a day, unless some of it is newer than the checkpoints, or tells of messages that are there.
    Whether it went. `old`: whatever it tells of."""
    return _retired(link, "select mqueue.retire_journal(%b::date, %b)", day, old)


def bury(link: Link, limit: int = 10_000) -> bool:
    """Remove what is left of deleted topics but their frames; when these are gone, the last of it.

    Of each topic so many keys and pieces at most. Whether there is more to do.
    """
    return bool(link.call("select mqueue.bury(%b)", (limit,))[0][0])


def _retired(link: Link, sql: LiteralString, *params: date | bool) -> bool:
    try:
        rows = link.call(sql, params)
    except Busy:
        return False
    return bool(rows[0][0])
