"""Made by tools/client_stub.py from the async classes: do not edit."""

import concurrent.futures
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from mqueue.broker.bounds import PartitionOffsets
from mqueue.broker.consume import Subscription, Supply
from mqueue.broker.cursors import Cursor
from mqueue.broker.explain import Explanation, Trace
from mqueue.broker.given import Topics
from mqueue.broker.members import GroupMembers, Membership
from mqueue.broker.message import DeadMessage, Message
from mqueue.broker.numbers import TopicStats
from mqueue.broker.redrive import Deletion, Redrive
from mqueue.broker.replay import Position
from mqueue.broker.schedules import Schedule
from mqueue.broker.settle import Settlement
from mqueue.broker.sorting import DeadErrors
from mqueue.broker.transact import StagedPart, Transaction
from mqueue.client.address import PathLike
from mqueue.model.message import Draft, Receipt
from mqueue.model.times import Duration, Instant
from mqueue.wire.frame import Frame

class ClientLease:
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
    def ack(self, *, ids: Iterable[int] | None = None) -> Settlement:
        """Done."""
    def nack(
        self, delay: Duration | None = None, error: object = None, *, ids: Iterable[int] | None = None
    ) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
    def reject(self, error: object = None, *, ids: Iterable[int] | None = None) -> Settlement:
        """Hopeless: dead at once."""
    def release(self, *, ids: Iterable[int] | None = None) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
    def extend(self, visibility: Duration, *, ids: Iterable[int] | None = None) -> Settlement:
        """Hold them for so long, from now on."""

class ClientDlq:
    """The dead-letter queue of a topic."""
    def __len__(self) -> int: ...
    def messages(
        self, limit: int = 100, *, filter: str | Callable[[DeadMessage], bool] | None = None
    ) -> list[DeadMessage]:
        """The dead that nobody has dealt with: not acked by group `default` of the dead-letter queue, not redriven."""
    def redrive(
        self,
        *,
        filter: str | Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Redrive:
        """Make what is dead now ready again, each in the group that it died in. What dies again stays dead."""
    def delete(
        self,
        *,
        filter: str | Callable[[DeadMessage], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Be rid of what is dead now: it is listed no more, and cannot be redriven. The originals stay as they are."""
    def errors(self) -> list[DeadErrors]:
        """What the dead died of, the most frequent first. Errors that differ in numbers, ids or times are one."""

class ClientSchedules:
    """The schedules of a topic, or of all topics of a namespace: these can be listed."""
    def add(
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
    def all(self) -> list[Schedule]:
        """By topic, then by name."""
    def get(self, name: str) -> Schedule: ...
    def pause(self, name: str) -> Schedule:
        """Publish nothing until `resume`. What would have come meanwhile does not count as missed."""
    def resume(self, name: str) -> Schedule:
        """Go on with the next occurrence."""
    def change(
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
    def delete(self, name: str) -> None:
        """What was published already stays."""
    def run(self, name: str) -> Receipt:
        """Publish an occurrence now, besides those that come by themselves."""

class Producer:
    """`publish` waits for room, not for the server: what it gives is a future of the receipt."""
    def publish(
        self,
        payload: Any,
        *,
        topic: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
        fairness_key: str | None = None,
    ) -> concurrent.futures.Future[Receipt]:
        """Hand in a message. Waits while the buffer is full; await what it gives for the receipt, or the failure."""
    def __enter__(self) -> Producer: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def flush(self) -> None:
        """Send what was handed in so far, and wait until it is answered."""
    def close(self) -> None:
        """Take no more, send what is left, and wait until it is answered."""

class Client:
    """A server elsewhere. Safe to use from many threads."""
    def __init__(
        self,
        url: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        namespace: str = "default",
        name: str = "",
        timeout: Duration = "30s",
        ca: PathLike | None = None,
        cert: PathLike | tuple[PathLike, PathLike] | None = None,
        encoding: str = "json",
        retry: bool = True,
        telemetry: Any = False,
    ) -> None: ...
    def __repr__(self) -> str: ...
    def close(self) -> None:
        """Hand out nothing more, give back what is held. Closing what `namespace` gave does not close the client."""
    def __enter__(self) -> Client: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def namespace(self, name: str) -> Client:
        """The same connection, another tenant."""
    def publish(
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
    def publish_many(
        self, topic: str | None, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[Receipt]:
        """Publish many messages in one commit, all or none. Drafts may name topics of their own."""
    def publish_arrow(
        self, topic: str, table: pa.Table | pa.RecordBatch, *, durability: str | None = None
    ) -> Sequence[Receipt]:
        """Publish a table in one commit: column payload; key, headers, priority, deliver_at, expires_at if present."""
    def producer(
        self,
        topic: str | None = None,
        *,
        linger: Duration = "5ms",
        batch: int = 1000,
        batch_bytes: int = 1048576,
        in_flight: int = 4,
        buffer: int = 100000,
    ) -> Producer:
        """Publish one by one, sent in batches in the background. Close it: that sends what is left."""
    def receive(
        self,
        topic: Topics,
        limit: int = 1,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        mode: str = "at_least_once",
        member: Membership | None = None,
    ) -> list[Message]:
        """Up to `limit` messages, in order, under one lease; [] if none is there or comes within `wait`.

        `member`: what `join` answered; of an assigned group only members receive, each from its own partitions.
        """
    def receive_arrow(
        self,
        topic: str,
        limit: int = 10000,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        member: Membership | None = None,
    ) -> ClientLease:
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
    ) -> Iterator[Message]:
        """Messages without end; settle each (`with m:`). Leases are kept alive, what is left is given back.

        `assigned`: as a member of an assigned group, from partitions of its own. `member`: an id that keeps them over
        a restart.
        """
    def subscribe(
        self,
        topic: Topics,
        handler: Callable[[Message], Any],
        *,
        group: str = "default",
        concurrency: int = 1,
        visibility: Duration | None = None,
    ) -> Subscription:
        """Call `handler` for each message, in the background: returns: ack, raises: nack. `close()` drains."""
    def supply(self, topic: Topics, *, group: str = "default", visibility: Duration | None = None) -> Supply[Message]:
        """Where somebody takes messages who hands them on: `take(limit)`, or `take_async(limit)` in an event loop.

        Leases are kept alive until their messages are settled, or given back by `give_back`.
        """
    def join(self, topic: str, *, group: str = "default", member: str | None = None) -> Membership:
        """Become a member of a group, which is assigned from then on: each partition is for one member.

        `member`: an id of one's own. Who joins with it again within the session keeps its partitions.
        """
    def heartbeat(
        self, member: Membership, *, released: Collection[int] = (), wait: Duration | None = None
    ) -> Membership:
        """Be heard of, and see which partitions are one's own. `wait`: until that changes, at most so long.

        `released`: partitions that were revoked, of which all that is held is given back at once.
        """
    def leave(self, member: Membership) -> None:
        """Be a member no more: what it holds is given back, others get its partitions."""
    def members(self, topic: str, *, group: str = "default") -> GroupMembers:
        """Who is in a group, who has which partition, how much is to be done in each, and the last rebalances."""
    def ack(self, messages: Sequence[Message] | Message, *, publish: Sequence[Draft] = ()) -> Settlement:
        """Done, and what follows from it, in one commit."""
    def nack(
        self, messages: Sequence[Message] | Message, delay: Duration | None = None, error: object = None
    ) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
    def reject(self, messages: Sequence[Message] | Message, error: object = None) -> Settlement:
        """Hopeless: dead at once."""
    def release(self, messages: Sequence[Message] | Message) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
    def extend(self, messages: Sequence[Message] | Message, visibility: Duration) -> Settlement:
        """Hold them for so long, from now on."""
    def peek(self, topic: str, limit: int = 10, *, group: str = "default") -> list[Message]:
        """What comes next for a group, not leased."""
    def scan(
        self,
        topic: str,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        partition: int | None = None,
        include_deleted: bool = False,
    ) -> Iterator[Message]:
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
    ) -> Iterator[pa.RecordBatch]:
        """The same as record batches."""
    def scan_frames(self, topic: str, partition: int, start: int, stop: int) -> Iterator[Frame]:
        """A partition from offset `start` to before `stop` as whole frames, the columns as they lie in the log."""
    def offsets(self, topic: str, at: Instant | None = None) -> list[PartitionOffsets]:
        """Where each partition begins and ends, and which offset was the first at or after a time."""
    def events(self, topic: str, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """What happened to the messages from offset `start` to before `stop`: a row for each event of each message."""
    def trace(self, id: int | Receipt | Message) -> Trace:
        """The life of a message."""
    def explain(self, id: int | Receipt | Message, *, group: str = "default") -> Explanation:
        """Why a message is not being delivered to a group right now."""
    def stats(self, topic: str) -> TopicStats: ...
    def metrics(self) -> dict[str, int]:
        """The whole server, all namespaces, in plain numbers."""
    def damage(self) -> list[str]:
        """What of the data directory was found to be damaged, in sentences; empty if all is well."""
    def scheduled(self, topic: str, limit: int = 100, *, after: Message | str | None = None) -> list[Message]:
        """What is scheduled, soonest first; `after` the last one of the page before."""
    def cancel(self, id: int | Receipt | Message) -> None:
        """End a scheduled message; Conflict if it is not scheduled any more."""
    def reschedule(
        self, id: int | Receipt | Message, *, deliver_at: Instant | None = None, delay: Duration | None = None
    ) -> None:
        """Give a scheduled message another time; Conflict if it is not scheduled any more."""
    def schedules(self, topic: str | None = None) -> ClientSchedules:
        """What a topic is sent again and again, by the calendar; without one, that of all topics."""
    def topics(self) -> list[str]: ...
    def settings(self, topic: str) -> dict[str, Any]: ...
    def configure(self, topic: str, **settings: Any) -> dict[str, Any]:
        """Change the settings that are named; the topic is made if it is not there. Answers all of them."""
    def purge(self, topic: str, *, ready_for: str | None = None) -> int:
        """Cancel everything there is, scheduled or not, for every group; how many messages that were. `ready_for`: only
        what that group has before it, ready or waiting; what it has leased stays, and what is scheduled."""
    def delete_topic(self, topic: str) -> None: ...
    def groups(self, topic: str) -> list[str]: ...
    def create_group(self, topic: str, group: str, *, start: Position = "earliest", assigned: bool = False) -> None:
        """Make a group; Conflict if it is there. `assigned`: only members receive, each from its own partitions."""
    def delete_group(self, topic: str, group: str) -> None: ...
    def seek(self, topic: str, *, group: str = "default", to: Position) -> None:
        """Move a group: "earliest", "latest", an offset or a time. What it holds is lost to it, attempts start anew."""
    def dlq(self, topic: str) -> ClientDlq:
        """The dead-letter queue of a topic."""
    def set_cursor(
        self, topic: str, name: str, offsets: Mapping[int, int] | None = None, *, ttl: Duration = "7d"
    ) -> Cursor:
        """Let retention drop nothing from these offsets on, until `ttl` is over. No offsets: as it stands, or all."""
    def cursors(self, topic: str) -> list[Cursor]: ...
    def delete_cursor(self, topic: str, name: str) -> None: ...
    def stage(
        self,
        transaction: str,
        topic: str,
        messages: pa.Table | pa.RecordBatch | Iterable[Any],
        *,
        part: str = "",
        ttl: Duration = "24h",
    ) -> StagedPart:
        """Put messages aside until `commit` publishes them. The same part once more takes the place of the first."""
    def commit(self, transaction: str, parts: Iterable[str] | None = None) -> Transaction:
        """Publish what was staged, all or these parts only: once, however often it is called."""
    def abort(self, transaction: str) -> Transaction:
        """Drop what was staged; Conflict if it is committed."""
    def forget(self, transaction: str) -> None:
        """How a transaction ended need not be remembered any more."""
    def transaction(self, transaction: str) -> Transaction:
        """How a transaction stands, or how it ended."""
