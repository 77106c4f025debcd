"""What keeps a shard small: checkpoints of what is owned, floors that rise with them, days that are dropped.

A floor is written down only behind a checkpoint that knows of it: whoever takes over folds from there, and must find
what the journal speaks of. Each piece of work is one call and may be done by hand; it waits for the server.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from msgspec import Struct

from mqueue.cluster.holding import Holding
from mqueue.log.postgres import days, journal, retention, transactions
from mqueue.log.postgres.batch import Promise
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.log import PostgresLog
from mqueue.log.postgres.retention import Kept

POINT_ROWS = 1_000
"""After so many rows of the journal a checkpoint is worth its bytes: a take-over reads no more than twice as many."""
POINT_MS = 60_000
"""If there is anything new at all, after so long."""
STORY_DAYS = 90
"""A trace is kept as long as its message; what happened longer ago than this, no longer than checkpoints need it. Else
the journal of one message that is never done would grow for ever."""
_DAYS_AHEAD = 2
_TRANSACTION_MS = 40 * 24 * 3600 * 1000
"""So long a transaction that was begun in one place cannot be begun in another. Later it is found by what it staged."""


class Trim(Struct, frozen=True):
    """What the shard has to learn of one topic's floors."""

    topic: int
    floors: tuple[int, ...]
    kept: tuple[Kept, ...]
    gone: tuple[tuple[int, int], ...]


class Point(Struct, frozen=True):
    """A checkpoint of a virtual shard, and what may go once it is kept."""

    vshard: int
    epoch: int
    seq: int
    at: int
    body: bytes
    trims: tuple[Trim, ...]


def due(holding: Holding, now: int) -> bool:
    """Whether a checkpoint should be taken, and can be: nothing may be under way."""
    log = holding.log
    if log.batch or log.flying or log.seq == holding.point_seq:
        return False
    return log.seq - holding.point_seq >= POINT_ROWS or now - holding.point_at >= POINT_MS


def take(holding: Holding, now: int) -> Point:
    """A checkpoint of a virtual shard as it is. Reads what is kept below floors."""
    seq, body = holding.point()
    with holding.gate.inside:
        topics = sorted({topic for topic, _ in holding.log.trimmed})
        alive = holding.store.state.topics
        trims = tuple(_trim(holding.log, topic, len(alive[topic].partitions)) for topic in topics if topic in alive)
    return Point(holding.vshard, holding.epoch, seq, now, body, trims)


def keep(link: Link, owner: UUID, point: Point) -> None:
    """Write a checkpoint down, then the floors that it knows of. Raises Fenced, NoTopic."""
    journal.point(link, owner, point.vshard, point.epoch, point.seq, point.at, point.body)
    for trim in point.trims:
        retention.trim(link, owner, point.epoch, trim.topic, trim.floors, trim.kept, trim.gone)


def kept(holding: Holding, point: Point) -> None:
    """A checkpoint is written down."""
    holding.point_seq, holding.point_at = point.seq, point.at
    for trim in point.trims:
        holding.log.learned(trim.topic, trim.floors, [(piece.partition, piece.base) for piece in trim.kept])


def tidy(link: Link, now: int) -> list[date]:
    """Make the days to come, drop those that nobody needs; which went. Any node may do it, several at once too."""
    today = datetime.fromtimestamp(now / 1000, UTC).date()
    days.make_days(link, today, today + timedelta(days=_DAYS_AHEAD))
    gone = [day for day in days.days(link) if day < today and retention.retire(link, day)]
    for day in days.journal_days(link):
        if day < today:
            retention.retire_journal(link, day, old=day < today - timedelta(days=STORY_DAYS))
    retention.bury(link)
    transactions.forget_homes(link, now - _TRANSACTION_MS)
    return gone


def _trim(log: PostgresLog, topic: int, partitions: int) -> Trim:
    floors, pieces = [], []
    for partition in range(partitions):
        tape = log.tape(topic, partition)
        floors.append(tape.floor)
        pieces += [_piece(log, topic, partition, base) for base in tape.bases_below(tape.floor)]
    there = {(piece.partition, piece.base) for piece in pieces}
    return Trim(topic, tuple(floors), tuple(pieces), tuple(sorted(log.kept_places(topic) - there)))


def _piece(log: PostgresLog, topic: int, partition: int, base: int) -> Kept:
    frame = log.frame(topic, partition, base)
    assert frame is not None, "it is on the tape"
    id, at = frame.ids[0], frame.at[0]
    promise = Promise(frame.slice(0, frame.count), id, [], [])
    promise.seal()
    return Kept(partition, base, frame.count, id, at, frame.size, promise.head, promise.body)
