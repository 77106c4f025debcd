"""Made by tools/async_stub.py from the sync classes: do not edit."""

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from mqueue.broker.bounds import PartitionOffsets
from mqueue.broker.consume import Supply
from mqueue.broker.cursors import Cursor
from mqueue.broker.explain import Explanation, Trace
from mqueue.broker.given import Topics
from mqueue.broker.loop import AsyncSubscription
from mqueue.broker.members import GroupMembers, Membership
from mqueue.broker.message import AsyncDeadMessage, AsyncMessage
from mqueue.broker.numbers import TopicStats
from mqueue.broker.redrive import Deletion, Redrive
from mqueue.broker.replay import Position
from mqueue.broker.schedules import Schedule
from mqueue.broker.settle import Settlement
from mqueue.broker.sorting import DeadErrors
from mqueue.broker.transact import StagedPart, Transaction
from mqueue.log.segments.storage import Storage
from mqueue.model.clock import Clock
from mqueue.model.limits import Limits
from mqueue.model.message import Draft, Receipt
from mqueue.model.times import Duration, Instant
from mqueue.wire.frame import Frame

class AsyncArrowLease:
    """A lease whose messages are a table. Settles as a whole, or what is left of it; or the messages with some ids."""
    @property
    def table(self) -> pa.Table:
        """The messages, in delivery order."""
    @property
    def token(self) -> str:
        """What proves the right to settle, also elsewhere; empty if nothing was handed out."""
    @property
    def remaining_ms(self) -> int:
        """For how long it is held."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    async def ack(self, *, ids: Iterable[int] | None = None) -> Settlement: ...
    async def nack(
        self, delay: Duration | None = None, error: object = None, *, ids: Iterable[int] | None = None
    ) -> Settlement: ...
    async def reject(self, error: object = None, *, ids: Iterable[int] | None = None) -> Settlement: ...
    async def release(self, *, ids: Iterable[int] | None = None) -> Settlement: ...
    async def extend(self, visibility: Duration, *, ids: Iterable[int] | None = None) -> Settlement: ...

class AsyncDlq:
    """The dead-letter queue of a topic."""
    async def messages(
        self, limit: int = 100, *, filter: str | Callable[[AsyncDeadMessage], bool] | None = None
    ) -> list[AsyncDeadMessage]:
        """The dead that nobody has dealt with: not acked by group `default` of the dead-letter queue, not redriven."""
    async def redrive(
        self,
        *,
        filter: str | Callable[[AsyncDeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Redrive:
        """Make what is dead now ready again, each in the group that it died in. What dies again stays dead.

        `rate`: so many messages per second. What is interrupted goes on when it is called again.
        """
    async def delete(
        self,
        *,
        filter: str | Callable[[AsyncDeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Be rid of what is dead now: it is listed no more, and cannot be redriven. The originals stay as they are."""
    async def errors(self) -> list[DeadErrors]:
        """What the dead died of, the most frequent first. Errors that differ in numbers, ids or times are one."""

class AsyncSchedules:
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""
    async def add(
        self,
        payload: Any,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        name: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        ttl: Duration | None = None,
        misfire: str = "once",
    ) -> Schedule:
        """Publish `payload` whenever `cron` says, or `every` so often. Conflict if another of that name is there.

        `misfire`: of what was missed the last one is published ("once"), none ("skip"), or each ("all", the last 100).
        """
    async def all(self) -> list[Schedule]:
        """By topic, then by name."""
    async def get(self, name: str) -> Schedule: ...
    async def pause(self, name: str) -> Schedule:
        """Publish nothing until `resume`. What would have come meanwhile does not count as missed."""
    async def resume(self, name: str) -> Schedule:
        """Go on with the next occurrence."""
    async def change(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        misfire: str | None = None,
        paused: bool | None = None,
    ) -> Schedule:
        """Give a schedule other times, or another rule for what was missed, pause or resume it; the rest stays."""
    async def delete(self, name: str) -> None:
        """What was published already stays."""
    async def run(self, name: str) -> Receipt:
        """Publish an occurrence now, besides those that come by themselves."""

class AsyncBroker:
    """A broker inside this process, for event loops. Safe to use from many tasks and many loops."""
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        clock: Clock | None = None,
        quotas: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        storage: Storage | None = None,
        **settings: Any,
    ) -> None: ...
    async def __aenter__(self) -> AsyncBroker: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def supply(
        self, topic: Topics, *, group: str = "default", visibility: Duration | None = None
    ) -> Supply[AsyncMessage]:
        """Where somebody takes messages who hands them on: `take(limit)`, or `take_async(limit)` in an event loop.

        Leases are kept alive until their messages are settled, or given back by `give_back`.
        """
    async def set_cursor(
        self, topic: str, name: str, offsets: Mapping[int, int] | None = None, *, ttl: Duration = "7d"
    ) -> Cursor:
        """Let retention drop nothing from these offsets on, until `ttl` is over. No offsets: as it stands, or all."""
    async def cursors(self, topic: str) -> list[Cursor]: ...
    async def delete_cursor(self, topic: str, name: str) -> None: ...
    async def stage(
        self,
        transaction: str,
        topic: str,
        messages: pa.Table | pa.RecordBatch | Iterable[Any],
        *,
        part: str = "",
        ttl: Duration = "24h",
    ) -> StagedPart:
        """Put messages aside until `commit` publishes them. The same part once more takes the place of the first."""
    async def commit(self, transaction: str, parts: Iterable[str] | None = None) -> Transaction:
        """Publish what was staged, all or these parts only: once, however often it is called."""
    async def abort(self, transaction: str) -> Transaction:
        """Drop what was staged; Conflict if it is committed."""
    async def forget(self, transaction: str) -> None:
        """How a transaction ended need not be remembered any more."""
    async def transaction(self, transaction: str) -> Transaction:
        """How it stands with a transaction."""
    async def join(self, topic: str, *, group: str = "default", member: str | None = None) -> Membership:
        """Become a member of a group, which is assigned from then on: each partition is for one member.

        `member`: an id of one's own. Who joins with it again within the session keeps its partitions.
        """
    async def heartbeat(
        self, member: Membership, *, released: Collection[int] = (), wait: Duration | None = None
    ) -> Membership:
        """Be heard of, and see which partitions are one's own. `wait`: until that changes, at most so long.

        `released`: partitions that were revoked, of which all that is held is given back at once.
        """
    async def leave(self, member: Membership) -> None:
        """Be a member no more: what it holds is given back, others get its partitions."""
    async def members(self, topic: str, *, group: str = "default") -> GroupMembers:
        """Who is in a group, who has which partition, how much is to be done in each, and the last rebalances."""
    def namespace(self, name: str) -> AsyncBroker:
        """The same broker, another tenant."""
    async def close(self) -> None:
        """Hand out nothing more, give back what is held. Closing what `namespace` gave does not close the broker."""
    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
        fairness_key: str | None = None,
        durability: str | None = None,
    ) -> Receipt:
        """Publish one message. Bytes go as they are, text as UTF-8, anything else as JSON."""
    async def publish_many(
        self, topic: str | None, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[Receipt]:
        """Publish many messages in one commit, all or none. Drafts may name topics of their own."""
    async def publish_arrow(
        self, topic: str, table: pa.Table | pa.RecordBatch, *, durability: str | None = None
    ) -> Sequence[Receipt]:
        """Publish a table in one commit: column payload; key, headers, priority, deliver_at, expires_at if present."""
    async def receive(
        self,
        topic: Topics,
        limit: int = 1,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        mode: str = "at_least_once",
        member: Membership | None = None,
    ) -> list[AsyncMessage]:
        """Up to `limit` messages, in order, under one lease; [] if none is there or comes within `wait`.

        `member`: what `join` answered; of an assigned group only members receive, each from its own partitions.
        """
    async def receive_arrow(
        self,
        topic: str,
        limit: int = 10000,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        member: Membership | None = None,
    ) -> AsyncArrowLease:
        """Up to `limit` messages as a table under one lease, settled as a whole."""
    def consume(
        self,
        topic: Topics,
        *,
        group: str = "default",
        prefetch: int = 100,
        visibility: Duration | None = None,
        assigned: bool = False,
        member: str | None = None,
    ) -> AsyncIterator[AsyncMessage]:
        """Messages without end; settle each (`with m:`). Leases are kept alive, what is left is given back.

        `assigned`: as a member of an assigned group, from partitions of its own. `member`: an id that keeps them over
        a restart.
        """
    def subscribe(
        self,
        topic: Topics,
        handler: Callable[[AsyncMessage], Any],
        *,
        group: str = "default",
        concurrency: int = 1,
        visibility: Duration | None = None,
    ) -> AsyncSubscription:
        """Call `handler` for each message, in the background: returns: ack, raises: nack. `close()` drains."""
    async def ack(
        self, messages: Sequence[AsyncMessage] | AsyncMessage, *, publish: Sequence[Draft] = ()
    ) -> Settlement:
        """Done, and what follows from it, in one commit."""
    async def nack(
        self, messages: Sequence[AsyncMessage] | AsyncMessage, delay: Duration | None = None, error: object = None
    ) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
    async def reject(self, messages: Sequence[AsyncMessage] | AsyncMessage, error: object = None) -> Settlement:
        """Hopeless: dead at once."""
    async def release(self, messages: Sequence[AsyncMessage] | AsyncMessage) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
    async def extend(self, messages: Sequence[AsyncMessage] | AsyncMessage, visibility: Duration) -> Settlement:
        """Hold them for so long, from now on."""
    async def peek(self, topic: str, limit: int = 10, *, group: str = "default") -> list[AsyncMessage]:
        """What comes next for a group, not leased."""
    def scan(
        self,
        topic: str,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        partition: int | None = None,
        include_deleted: bool = False,
    ) -> AsyncIterator[AsyncMessage]:
        """The log as it lies, touching no group. An int is an offset, anything else a time.

        `include_deleted`: also what retention has dropped, as far as a lake has it.
        """
    def scan_arrow(
        self,
        topic: str,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        partition: int | None = None,
        include_deleted: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """The same as record batches."""
    def scan_frames(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Frame]:
        """A partition from offset `start` to before `stop` as whole frames, the columns as they lie in the log."""
    async def offsets(self, topic: str, at: Instant | None = None) -> list[PartitionOffsets]:
        """Where each partition begins and ends, and which offset was the first at or after a time."""
    def events(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[pa.RecordBatch]:
        """What happened to the messages from offset `start` to before `stop`: a row for each event of each message."""
    async def trace(self, id: int | Receipt | AsyncMessage) -> Trace:
        """The life of a message."""
    async def explain(self, id: int | Receipt | AsyncMessage, *, group: str = "default") -> Explanation:
        """Why a message is not being delivered to a group right now."""
    async def stats(self, topic: str) -> TopicStats: ...
    async def metrics(self) -> dict[str, int]:
        """The whole broker, all namespaces, in plain numbers."""
    async def damage(self) -> list[str]:
        """What of the data directory was found to be damaged, in sentences; empty if all is well."""
    async def scheduled(
        self, topic: str, limit: int = 100, *, after: AsyncMessage | str | None = None
    ) -> list[AsyncMessage]:
        """What is scheduled, soonest first; `after` the last one of the page before."""
    async def cancel(self, id: int | Receipt | AsyncMessage) -> None:
        """End a scheduled message; Conflict if it is not scheduled any more."""
    async def reschedule(
        self, id: int | Receipt | AsyncMessage, *, deliver_at: Instant | None = None, delay: Duration | None = None
    ) -> None:
        """Give a scheduled message another time; Conflict if it is not scheduled any more."""
    def schedules(self, topic: str | None = None) -> AsyncSchedules:
        """What a topic is sent again and again, by the calendar; without one, that of all topics."""
    async def topics(self) -> list[str]: ...
    async def settings(self, topic: str) -> dict[str, Any]: ...
    async def configure(self, topic: str, **settings: Any) -> dict[str, Any]:
        """Change the settings that are named; the topic is made if it is not there. Answers all of them."""
    async def purge(self, topic: str, *, ready_for: str | None = None) -> int:
        """Cancel everything there is, scheduled or not, for every group; how many messages that were. `ready_for`: only
        what that group has before it, ready or waiting; what it has leased stays, and what is scheduled."""
    async def delete_topic(self, topic: str) -> None: ...
    async def groups(self, topic: str) -> list[str]: ...
    async def create_group(
        self, topic: str, group: str, *, start: Position = "earliest", assigned: bool = False
    ) -> None:
        """Make a group; Conflict if it is there. `assigned`: only members receive, each from its own partitions."""
    async def delete_group(self, topic: str, group: str) -> None: ...
    async def seek(self, topic: str, *, group: str = "default", to: Position) -> None:
        """Move a group: "earliest", "latest", an offset or a time. What it holds is lost to it, attempts start anew."""
    def dlq(self, topic: str) -> AsyncDlq:
        """The dead-letter queue of a topic."""
