"""A store over a log that several write: offsets come with the commit, and what others appended comes by itself.

Topics are in a catalog that all nodes share; whoever owns a topic's virtual shard learns of it there. Receipts are
promised, and get their offsets when the commit has given them. Idempotency keys are claimed in the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
import numpy as np

from mqueue.heart.dedup import Claim, digest
from mqueue.heart.heart import Heart
from mqueue.heart.partition import Partition
from mqueue.heart.topic import Topic
from mqueue.log.postgres.appends import ANY_VERSION
from mqueue.log.postgres.batch import Arrival, Promise
from mqueue.log.postgres.catalog import TopicRow
from mqueue.log.postgres.log import PostgresLog
from mqueue.model import events as ev
from mqueue.model.errors import QueueFull, Refused, Unavailable
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.message import Receipt
from mqueue.model.names import LEDGER
from mqueue.model.priority import NORMAL
from mqueue.model.settings import Settings
from mqueue.policy.routing import partition_of, virtual_shard
from mqueue.store.ahead import Ahead
from mqueue.store.place import Known, place, receipts, recognise
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Extras, Numbers, Rows

EARLY_DELAY_MS = 1_000
"""Who is answered before his messages are in the shard may have them delivered this much later, no more."""
_COUNT_MS = 10_000
"""How often the keys of a topic are counted, if it is not near its limit."""
_SETTINGS = msgspec.msgpack.Decoder(Settings)


class Catalog(Protocol):
    """What all nodes see of a shard, read at once: whoever asks waits for the shard."""

    def find(self, namespace: str, name: str) -> TopicRow | None: ...

    def make(self, namespace: str, name: str, settings: Settings, now: int) -> TopicRow:
        """The topic of that name: a new one, unless somebody was faster."""

    def count(self, namespace: str) -> int:
        """How many topics a namespace has."""

    def claims(self, topic: int, keys: list[bytes]) -> dict[bytes, Claim]:
        """What is known of idempotency keys, by their digests."""

    def forget(self, topic: int, over: Mapping[bytes, Claim]) -> None:
        """Claims are over: the keys may be used again. Newer claims on them stay."""

    def claims_count(self, topic: int, most: int) -> int:
        """How many keys are claimed, counted up to so many."""

    def sweep(self, topic: int, before: int) -> None:
        """Forget the claims that were made before a time."""

    def all_claims(self, topic: int) -> Iterator[tuple[bytes, Claim]]: ...

    def appended(self, topic: int, partitions: int) -> list[Arrival]:
        """Everything that was ever appended to a topic and is still there."""


class ShardStore(Store):
    __slots__ = ("abroad", "ahead", "catalog", "counted", "homes", "owner", "repeated", "repeats", "shelf", "versions")

    def __init__(
        self,
        log: PostgresLog,
        catalog: Catalog,
        *,
        owner: bool,
        ids: IdSource,
        tokens: Tokens,
        jitter: Callable[[], float],
        defaults: Settings,
        limits: Limits,
        homes: dict[int, int],
        heart: Heart | None = None,
    ) -> None:
        super().__init__(log, ids=ids, tokens=tokens, jitter=jitter, defaults=defaults, limits=limits, heart=heart)
        self.shelf = log
        self.ahead = Ahead(self.state, log)
        self.catalog = catalog
        self.owner = owner
        """Whether it delivers. Others only publish, and know of topics no more than that they are there."""
        self.homes = homes
        """The virtual shards of topics, for whoever wants to know."""
        self.abroad: Callable[[str, str], Store] = _nowhere
        """Where topics are known that somebody else delivers."""
        self.repeated: Callable[[int, int, int], None] = _unheard
        """Told of messages that were published again, of topics that somebody else delivers."""
        self.versions: dict[int, int] = {}
        """Of topics that somebody else delivers, which of their settings are known here."""
        self.repeats: Callable[[int], None] = _anybody
        """Told of topics that something is published to again, before anything is handed in. May raise."""
        self.counted: dict[int, tuple[int, int]] = {}
        """Of topics, how many idempotency keys are claimed, and when they were counted."""

    def advance(self, now: int) -> None:
        self.ahead.load(now)
        super().advance(now)

    # Topics

    def find_topic(self, namespace: str, name: str) -> Topic | None:
        topic = self.state.names.get((namespace, name))
        if topic is None and self._is_foreign(namespace, name):
            return self.abroad(namespace, name).find_topic(namespace, name)
        if topic is None:
            row = self.catalog.find(namespace, name)
            topic = None if row is None else self.learn(self._lasting(row))
        return topic

    def _lasting(self, row: TopicRow) -> TopicRow:
        """A topic that is there, and not only until its end is durable: to know it again would be to keep it alive."""
        if self.shelf.drops(row.id):
            raise Unavailable(f"topic {row.name!r:.80} is being deleted; try again", code="topic_gone")
        return row

    def _is_foreign(self, namespace: str, name: str) -> bool:
        """Whether somebody else delivers a topic. Messages can be published there with the same commit."""
        return self.owner and not name.startswith(LEDGER) and virtual_shard(namespace, name) != self.shelf.vshard

    def add_topic(self, namespace: str, name: str, settings: Settings, now: int) -> Topic:
        if self._is_foreign(namespace, name):
            return self.abroad(namespace, name).add_topic(namespace, name, settings, now)
        return self.learn(self.catalog.make(namespace, name, settings, now))

    def make_topic(self, namespace: str, name: str, settings: Settings, now: int, *, admitted: bool = False) -> Topic:
        self._check_dlq(namespace, settings)
        return super().make_topic(namespace, name, settings, now, admitted=admitted)

    def configure(self, topic: Topic, settings: Settings, now: int) -> None:
        self._check_dlq(topic.namespace, settings)
        super().configure(topic, settings, now)

    def _check_dlq(self, namespace: str, settings: Settings) -> None:
        """Who dies is buried with the same commit: so the dead-letter queue has to be on the same server."""
        name = settings.dlq_topic
        if settings.dlq and name is not None and self._is_foreign(namespace, name):
            self.abroad(namespace, name)

    def check_topics(self, namespace: str, more: int) -> None:
        if more and self.catalog.count(namespace) + more > self.limits.topics_max:
            raise QueueFull(
                f"namespace {namespace!r} cannot have {more} more topics: {self.limits.topics_max} are allowed",
                code="topics_full",
            )

    def judge(self, topic: Topic) -> None:
        if topic.settings.max_depth is not None and self._is_foreign(topic.namespace, topic.name):
            raise Refused(
                f"topic {topic.name!r:.80} has max_depth {topic.settings.max_depth}, which is checked where it is"
                " delivered; what is to be published there with something else has to be delivered from there, too",
                code="elsewhere",
            )

    def check_room(self, topic: Topic, count: int) -> None:
        self.judge(topic)
        super().check_room(topic, count)

    def promised(self, topic: Topic) -> int:
        batches = (self.shelf.batch, *self.shelf.flying)
        promises = (promise for batch in batches for promise in batch.promises)
        return sum(promise.frame.count for promise in promises if promise.frame.topic == topic.id)

    def learn(self, row: TopicRow) -> Topic:
        """Somebody made a topic. Who delivers it takes in what was published there meanwhile."""
        if row.id not in self.state.topics:
            self.homes[row.id] = row.vshard
            settings = _SETTINGS.decode(row.first_settings if self.owner else row.settings)
            if not self.owner:
                self.versions[row.id] = row.version
            self.state.apply(ev.TopicMade(row.made_at, row.id, row.namespace, row.name, settings))
            if self.owner:
                for _ in self.take_in(self.catalog.appended(row.id, settings.partitions)):
                    pass
        return self.state.topics[row.id]

    # Publish

    def publish_one(self, topic: Topic, payload: bytes, extras: Extras | None, now: int) -> Receipt:
        return self._promise_one(topic, payload, extras, now)[1]

    def check_one(self, topic: Topic, extras: Extras | None, now: int) -> None:
        self._check_early(topic, extras.get("deliver_at", 0) if extras else 0, now)
        super().check_one(topic, extras, now)

    def check(self, topic: Topic, rows: Rows, now: int) -> None:
        self._check_early(topic, rows.deliver_at, now, keys=rows.idempotency_key is not None)
        super().check(topic, rows, now)

    def _check_early(self, topic: Topic, due: Numbers, now: int, *, keys: bool = False) -> None:
        """Refuse what nobody can be answered about before it is in the shard."""
        if not self.shelf.early:
            return
        latest = due if isinstance(due, int) else int(np.max(np.asarray(due)))
        if keys:
            why = "messages with an idempotency key: only the shard knows whether it was used"
        elif latest - now > EARLY_DELAY_MS:
            why = f"messages that are due in {latest - now} ms; {EARLY_DELAY_MS} ms is the most"
        elif topic.settings.max_depth is not None:
            why = f"topic {topic.name!r}, which has a max_depth: only its owner knows its depth"
        elif topic.settings.ordered:
            why = f"topic {topic.name!r}, which is ordered: the messages of a key may reach the shard in another order"
        else:
            return
        raise Refused(f"durability 'wal' is not for {why}", code="not_for_wal")

    def publish(self, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
        self._check_early(topic, rows.deliver_at, now, keys=rows.idempotency_key is not None)
        if rows.idempotency_key is None:
            return self._write(topic, rows, now)
        known = self.recognise(topic, rows, now)
        fresh = self._write(topic, rows if len(known.fresh) == len(rows) else rows.take(known.fresh), now)
        found = dict(zip(known.fresh, fresh, strict=True))
        again = {**known.claims, **{row: self._claim_of(topic, rows, first) for row, first in known.repeats.items()}}
        for row, claim in again.items():
            found[row] = self._repeated(topic, digest((rows.idempotency_key[row] or "").encode()), claim, now)
        self.commit(now)
        return [found[row] for row in range(len(rows))]

    def recognise(self, topic: Topic, rows: Rows, now: int) -> Known:
        keys = [digest(key.encode()) for key in rows.idempotency_key or () if key is not None]
        stored = self.catalog.claims(topic.id, keys)

        def find(key: bytes) -> Claim | None:
            pending = self.shelf.claimed(topic.id, key)
            if pending is not None:
                return pending[2]
            claim = stored.get(key)
            if claim is not None and self._is_over(topic, claim, now):
                self.catalog.forget(topic.id, {key: claim})
                return None
            return claim

        known = recognise(rows, find)
        if known.claims:
            self.repeats(topic.id)
        self._make_room_for_keys(topic, len(keys) - len(known.claims) - len(known.repeats), now)
        return known

    def _make_room_for_keys(self, topic: Topic, more: int, now: int) -> None:
        """Refuse if a topic would have too many keys. They are counted now and then: what other nodes claim in the
        meantime may be too much by that."""
        if not more:
            return
        most = topic.settings.dedup_keys_max
        count, counted_at = self.counted.get(topic.id, (most, now))
        if count + more > most or now - counted_at > _COUNT_MS:
            count = self._count_keys(topic, now)
        if count + more > most and topic.settings.dedup == "until_acked" and self.owner:
            claims = self.catalog.all_claims(topic.id)
            done = {key: claim for key, claim in claims if self.heart.done(topic, claim, now)}
            self.catalog.forget(topic.id, done)
            count = self._count_keys(topic, now)
        if count + more > most:
            raise QueueFull(
                f"{count} idempotency keys are kept; {more} more exceed dedup_keys_max {most}", code="dedup_full"
            )
        self.counted[topic.id] = count + more, self.counted[topic.id][1]

    def _count_keys(self, topic: Topic, now: int) -> int:
        settings = topic.settings
        if settings.dedup == "window":
            self.catalog.sweep(topic.id, now - settings.dedup_window_ms + 1)
        count = self.catalog.claims_count(topic.id, settings.dedup_keys_max + 1) + self.shelf.claiming(topic.id)
        self.counted[topic.id] = count, now
        return count

    def receipt(self, placed: ev.Placed) -> Receipt:
        id, topic, partition, offset, duplicate = placed
        if offset < 0:  # it was written down before the commit gave it one
            offset = self.shelf.offset_of(id)
        return Receipt(id, topic, partition, offset, duplicate, self.log.durability)

    def append(self, topic: Topic, frames: list[Frame], now: int) -> None:
        if topic.staging is not None:
            self._stage(topic, frames, now)
            return
        for frame in frames:
            self._check_early(topic, frame.deliver_at, now)
            self._see(topic, frame.priority)
        self._promise(frames, now)

    def _promise(self, frames: list[Frame], now: int) -> list[Promise]:
        ids = [self.ids.take(frame.count, now) for frame in frames]  # may refuse: before anything is handed in
        promises = [self.shelf.promise(frame, id, now) for frame, id in zip(frames, ids, strict=True)]
        for promise in promises:
            self._date(promise)
        return promises

    def _date(self, promise: Promise) -> None:
        """It is not to be stored if the topic has other settings by then."""
        promise.version = self.versions.get(promise.frame.topic, ANY_VERSION)

    def _stage(self, topic: Topic, frames: list[Frame], now: int) -> None:
        """Nobody else appends to what is staged: so its offsets are known, and the commit gives the same."""
        for promise in self._promise(frames, now):
            frame = promise.frame
            frame.base = promise.expected = topic.partitions[0].next
            self.state.append(topic, 0, frame.stretches(0), now)

    def append_rows(self, topic: Topic, rows: Rows, now: int) -> list[Receipt]:
        if len(rows) == 1:
            return [self._append_one(topic, rows, now)]
        placed = place(topic, rows, self.next_partition(topic), now)
        promises = self._promise([piece.frame for piece in placed], now)
        self._see(topic, rows.priority)
        found = receipts(topic, placed, len(rows), self.log.durability)
        for piece, promise in zip(placed, promises, strict=True):
            numbers = range(piece.first, piece.first + piece.frame.count) if piece.order is None else piece.order
            promise.receipts += [(row, found[number]) for row, number in enumerate(numbers)]
            self.shelf.claim(promise, range(piece.frame.count))
        return found

    def _append_one(self, topic: Topic, rows: Rows, now: int) -> Receipt:
        promise, receipt = self._promise_one(topic, rows.payload[0], rows.extras(0), now)
        if rows.idempotency_key is not None:
            row = promise.frame.count - 1
            self.shelf.claim(promise, range(row, row + 1))
        return receipt

    def _promise_one(self, topic: Topic, payload: bytes, extras: Extras | None, now: int) -> tuple[Promise, Receipt]:
        """Those without a key that go with one commit go to one partition: they are one batch."""
        key = extras.get("key") if extras else None
        partitions = len(topic.partitions)
        number = self._turn_of(topic) if key is None else partition_of(key, partitions)
        id = self.ids.take(1, now)
        promise = self.shelf.single(topic.id, number, payload, extras, id, now)
        if promise.frame.count == 1:
            self._date(promise)
        receipt = Receipt(id, topic.name, number, -1, False, self.log.durability)
        promise.receipts.append((promise.frame.count - 1, receipt))
        self._see(topic, extras.get("priority", NORMAL) if extras else NORMAL)
        return promise, receipt

    def _see(self, topic: Topic, priority: Numbers) -> None:
        """Who only publishes knows of lanes no more than what he has published himself."""
        if not self.owner:
            levels = (priority,) if isinstance(priority, int) else np.unique(np.asarray(priority)).tolist()
            for level in levels:
                topic.partitions[0].lane(level)

    def _turn_of(self, topic: Topic) -> int:
        turns = self.shelf.batch.turns
        if topic.id not in turns:
            turns[topic.id] = self.next_partition(topic)
        return turns[topic.id]

    def _claim_of(self, topic: Topic, rows: Rows, row: int) -> Claim:
        """The claim of a row that was handed in just now."""
        assert rows.idempotency_key is not None
        pending = self.shelf.claimed(topic.id, digest((rows.idempotency_key[row] or "").encode()))
        assert pending is not None, "it was handed in"
        return pending[2]

    def _repeated(self, topic: Topic, key: bytes, claim: Claim, now: int) -> Receipt:
        """The receipt of who published a message again. That he did is for its trace, if this is where it is kept."""
        receipt = Receipt(claim.id, topic.name, claim.partition, claim.offset, True, self.log.durability)
        pending = self.shelf.claimed(topic.id, key)
        if pending is not None:
            promise, row, _ = pending
            self.shelf.again(promise, row, receipt)
        elif self.owner and topic.settings.trace:
            self.heart.happen(ev.Duplicated(now, topic.id, claim.partition, claim.offset))
        elif topic.settings.trace:
            self.repeated(topic.id, claim.partition, claim.offset)
        return receipt

    def _is_over(self, topic: Topic, claim: Claim, now: int) -> bool:
        settings = topic.settings
        if settings.dedup == "window":
            return claim.made_at <= now - settings.dedup_window_ms
        return settings.dedup == "until_acked" and self.owner and self.heart.done(topic, claim, now)

    # Arrivals

    def take_in(self, arrivals: Iterable[Arrival]) -> Iterator[Topic]:
        """Frames that have their places: the topics that got something. What does not follow is left for later.

        Nothing goes before what was in the order already: a frame that comes too late for its time counts from now.
        """
        for arrival in arrivals:
            topic = self.state.topics.get(arrival.topic)
            if topic is None or arrival.partition >= len(topic.partitions):
                continue
            if arrival.base != self.shelf.next(arrival.topic, arrival.partition):
                continue
            partition = topic.partitions[arrival.partition]
            moment = 0 if topic.outlet is None else topic.outlet.moment
            at = max(arrival.at, _newest(partition), moment)
            self.ahead.load(at)
            stretches = self.shelf.arrive(arrival, at)
            if arrival.base >= partition.next:
                self.state.append(topic, arrival.partition, stretches, at)
                self.ahead.watch(topic)
                yield topic


def _nowhere(namespace: str, name: str) -> Store:
    raise AssertionError("whoever owns a store tells it where others are")


def _anybody(topic: int) -> None:
    """It is published again where it is published."""


def _unheard(topic: int, partition: int, offset: int) -> None:
    """Nobody keeps the trace of it here."""


def _newest(partition: Partition) -> int:
    """The latest time in the order of a partition."""
    return max((lane.at[-1] for lane in partition.lanes.values() if lane.at), default=0)
