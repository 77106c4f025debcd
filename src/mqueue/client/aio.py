"""`mqueue.AsyncClient`: the calls of `AsyncBroker`, on a server elsewhere. `sync` makes `mqueue.Client` from it.

async with mqueue.AsyncClient("http://127.0.0.1:8080") as q:
    await q.publish("orders", {"n": 1}, priority="high")
    async for m in q.consume("orders"):
        async with m:
            print(m.json())
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from mqueue.broker.attending import check_assigned
from mqueue.broker.bounds import PartitionOffsets
from mqueue.broker.consume import Supply, check_concurrency
from mqueue.broker.cursors import Cursor
from mqueue.broker.deliver import check_receive
from mqueue.broker.explain import Explanation, Trace
from mqueue.broker.given import Topics, id_of, list_of, parts_of
from mqueue.broker.loop import AsyncSubscription, consume_in_loop
from mqueue.broker.members import GroupMembers, Membership, seat_of
from mqueue.broker.message import AsyncMessage
from mqueue.broker.numbers import TopicStats
from mqueue.broker.replay import Position, place_of
from mqueue.broker.settle import Settlement
from mqueue.broker.transact import StagedPart, Transaction
from mqueue.client import events, frames, manage, members, publish, read, receive
from mqueue.client.address import DEFAULT_URL, Address, PathLike, address_of
from mqueue.client.attending import Attending, MemberSource
from mqueue.client.dlq import AsyncClientDlq
from mqueue.client.envelope import AsyncClientDeadMessage, AsyncClientMessage
from mqueue.client.holding import Holdings
from mqueue.client.home import Home, Run
from mqueue.client.line import Line
from mqueue.client.manage import topic_path
from mqueue.client.producer import AsyncProducer
from mqueue.client.schedules import AsyncClientSchedules
from mqueue.client.source import RemoteSource
from mqueue.client.tables import AsyncClientLease
from mqueue.client.window import Window, message_path, path_of
from mqueue.model.limits import MIB
from mqueue.model.message import Draft, Receipt
from mqueue.model.names import check_name
from mqueue.model.times import Duration, Instant
from mqueue.wire.frame import Frame
from mqueue.wire.json_manage import DamageOut, PurgeOut


class AsyncClient:
    """A server elsewhere, for event loops. Safe to use from many tasks of one loop.

    `url` may name several nodes of a cluster, as a list or with commas between them: one is used until it goes away.
    `retry` False: nothing is tried twice, whatever fails is told at once. `encoding` "arrow": batches travel as Arrow.
    `telemetry` True: calls are spans of the program's OpenTelemetry; or of a TracerProvider that is given.
    """

    # What is different in threads; `sync` puts its own in these places.
    _message_type: Callable[..., Any] = AsyncClientMessage
    _dead_type: Callable[..., Any] = AsyncClientDeadMessage
    _subscription_type: Callable[..., Any] = AsyncSubscription
    _consume: Callable[..., Any] = staticmethod(consume_in_loop)

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
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
    ) -> None:
        address = address_of(url, token, name, timeout, ca, cert, encoding, retry)
        self._begin(address, Line(address), namespace, telemetry)

    @classmethod
    def _over(cls, address: Address, line: Line) -> AsyncClient:
        """Over a line that somebody else has made."""
        client = object.__new__(cls)
        client._begin(address, line, "default")
        return client

    def _begin(self, address: Address, line: Line, namespace: str, telemetry: Any = False) -> None:
        spans = None
        if telemetry is not False:
            from mqueue.client.telemetry import spans_of

            spans = spans_of(telemetry)
        window = Window(line, address, check_name(namespace, "namespace"), spans)
        self._home = Home(window, Holdings(line), self._message_type, self._dead_type, self._blocking())
        self._root = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._window.address.url}, namespace {self._window.namespace}>"

    @property
    def _window(self) -> Window:
        return self._home.window

    def namespace(self, name: str) -> AsyncClient:
        """The same connection, another tenant."""
        view = object.__new__(type(self))
        view._home = self._home.view(check_name(name, "namespace"))
        view._root = False
        return view

    async def close(self) -> None:
        """Hand out nothing more, give back what is held. Closing what `namespace` gave does not close the client."""
        if self._root:
            await self._home.holdings.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Publish

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
        draft = Draft(payload, key, headers, priority, delay, deliver_at, ttl, idempotency_key, fairness_key)
        check_name(topic, "topic")
        return (await publish.publish_many(self._window, topic, [draft], durability))[0]

    async def publish_many(
        self, topic: str | None, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[Receipt]:
        """Publish many messages in one commit, all or none. Drafts may name topics of their own."""
        return await publish.publish_many(self._window, topic, messages, durability)

    async def publish_arrow(
        self, topic: str, table: pa.Table | pa.RecordBatch, *, durability: str | None = None
    ) -> Sequence[Receipt]:
        """Publish a table in one commit: column payload; key, headers, priority, deliver_at, expires_at if present."""
        return await publish.publish_table(self._window, topic, table, durability)

    def producer(
        self,
        topic: str | None = None,
        *,
        linger: Duration = "5ms",
        batch: int = 1000,
        batch_bytes: int = MIB,
        in_flight: int = 4,
        buffer: int = 100_000,
    ) -> AsyncProducer:
        """Publish one by one, sent in batches in the background. Close it: that sends what is left."""
        return AsyncProducer(self._home, topic, linger, batch, batch_bytes, in_flight, buffer)

    # Receive

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
        return await self._home.receive(topic, limit, group, wait, visibility, mode, member=member)

    async def receive_arrow(
        self,
        topic: str,
        limit: int = 10_000,
        *,
        group: str = "default",
        wait: Duration | None = None,
        visibility: Duration | None = None,
        member: Membership | None = None,
    ) -> AsyncClientLease:
        """Up to `limit` messages as a table under one lease, settled as a whole."""
        group, seat = seat_of(topic, group, member)
        told, wait_ms = receive.asked(limit, group, wait, visibility, seat=seat)
        name = check_name(topic, "topic")
        call = receive.receive_table(self._window, self._home.holdings, name, told, wait_ms)
        spans = self._window.spans
        table, lease = await (call if spans is None else spans.receiving(self._window.namespace, [name], group, call))
        return AsyncClientLease(self._home, lease, table, name)

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
        check_receive(prefetch, "at_least_once")
        check_assigned(topic, assigned, member)
        source = self._source(topic, group, visibility, Attending(member) if assigned else None)
        found: AsyncIterator[AsyncMessage] = self._consume(source, prefetch)
        return found

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
        check_concurrency(concurrency)
        made: AsyncSubscription = self._subscription_type(self._source(topic, group, visibility), handler, concurrency)
        return made

    def supply(
        self, topic: Topics, *, group: str = "default", visibility: Duration | None = None
    ) -> Supply[AsyncMessage]:
        """Where somebody takes messages who hands them on: `take(limit)`, or `take_async(limit)` in an event loop.

        Leases are kept alive until their messages are settled, or given back by `give_back`.
        """
        return self._source(topic, check_name(group, "group"), visibility)

    # Assigned groups

    async def join(self, topic: str, *, group: str = "default", member: str | None = None) -> Membership:
        """Become a member of a group, which is assigned from then on: each partition is for one member.

        `member`: an id of one's own. Who joins with it again within the session keeps its partitions.
        """
        return await members.join(self._window, topic, group, member)

    async def heartbeat(
        self, member: Membership, *, released: Collection[int] = (), wait: Duration | None = None
    ) -> Membership:
        """Be heard of, and see which partitions are one's own. `wait`: until that changes, at most so long.

        `released`: partitions that were revoked, of which all that is held is given back at once.
        """
        return await members.heartbeat(self._window, member, released, wait)

    async def leave(self, member: Membership) -> None:
        """Be a member no more: what it holds is given back, others get its partitions."""
        await members.leave(self._window, member)

    async def members(self, topic: str, *, group: str = "default") -> GroupMembers:
        """Who is in a group, who has which partition, how much is to be done in each, and the last rebalances."""
        return await members.members(self._window, topic, group)

    # Settle

    async def ack(
        self, messages: Sequence[AsyncMessage] | AsyncMessage, *, publish: Sequence[Draft] = ()
    ) -> Settlement:
        """Done, and what follows from it, in one commit."""
        return await self._home.settle_messages("ack", list_of(messages), publish=publish)

    async def nack(
        self, messages: Sequence[AsyncMessage] | AsyncMessage, delay: Duration | None = None, error: object = None
    ) -> Settlement:
        """Failed: they come back after a backoff, or after `delay`; dead after the last attempt."""
        return await self._home.settle_messages("nack", list_of(messages), delay, error)

    async def reject(self, messages: Sequence[AsyncMessage] | AsyncMessage, error: object = None) -> Settlement:
        """Hopeless: dead at once."""
        return await self._home.settle_messages("reject", list_of(messages), None, error)

    async def release(self, messages: Sequence[AsyncMessage] | AsyncMessage) -> Settlement:
        """Not now: ready again at once, the attempt is not counted."""
        return await self._home.settle_messages("release", list_of(messages))

    async def extend(self, messages: Sequence[AsyncMessage] | AsyncMessage, visibility: Duration) -> Settlement:
        """Hold them for so long, from now on."""
        return await self._home.settle_messages("extend", list_of(messages), visibility)

    # Look

    async def peek(self, topic: str, limit: int = 10, *, group: str = "default") -> list[AsyncMessage]:
        """What comes next for a group, not leased."""
        query = {"group": check_name(group, "group")}
        return await self._home.look(topic_path(topic, "peek"), limit, query)

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
        query = read.covered(start, stop, partition, include_deleted)
        return read.Pages(read.scan(self._home, topic, query))

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
        query = read.covered(start, stop, partition, include_deleted)
        return read.Pages(read.scan_tables(self._window, topic, query))

    def scan_frames(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Frame]:
        """A partition from offset `start` to before `stop` as whole frames, the columns as they lie in the log."""
        return read.Pages(frames.pages(frames.Ask(self._window, topic, partition, start, stop)))

    async def offsets(self, topic: str, at: Instant | None = None) -> list[PartitionOffsets]:
        """Where each partition begins and ends, and which offset was the first at or after a time."""
        return await read.offsets(self._window, topic, at)

    def events(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[pa.RecordBatch]:
        """What happened to the messages from offset `start` to before `stop`: a row for each event of each message."""
        return read.Pages(events.events(self._window, topic, partition, start, stop))

    async def trace(self, id: int | Receipt | AsyncMessage) -> Trace:
        """The life of a message."""
        return await read.trace(self._window, id_of(id))

    async def explain(self, id: int | Receipt | AsyncMessage, *, group: str = "default") -> Explanation:
        """Why a message is not being delivered to a group right now."""
        return await read.explain(self._window, id_of(id), group)

    async def stats(self, topic: str) -> TopicStats:
        return await self._window.ask(TopicStats, "GET", topic_path(topic, "stats"))

    async def metrics(self) -> dict[str, int]:
        """The whole server, all namespaces, in plain numbers."""
        return await self._window.ask(dict[str, int], "GET", path_of("stats"), everywhere=True)

    async def damage(self) -> list[str]:
        """What of the data directory was found to be damaged, in sentences; empty if all is well."""
        return (await self._window.ask(DamageOut, "GET", path_of("damage"), everywhere=True)).reports

    # Schedule

    async def scheduled(
        self, topic: str, limit: int = 100, *, after: AsyncMessage | str | None = None
    ) -> list[AsyncMessage]:
        """What is scheduled, soonest first; `after` the last one of the page before."""
        place = place_of(after)
        query = {} if place is None else {"after": ".".join(map(str, place))}
        return await self._home.look(topic_path(topic, "scheduled"), limit, query)

    async def cancel(self, id: int | Receipt | AsyncMessage) -> None:
        """End a scheduled message; Conflict if it is not scheduled any more."""
        await self._window.tell("DELETE", message_path(id_of(id)))

    async def reschedule(
        self, id: int | Receipt | AsyncMessage, *, deliver_at: Instant | None = None, delay: Duration | None = None
    ) -> None:
        """Give a scheduled message another time; Conflict if it is not scheduled any more."""
        await manage.reschedule(self._window, id_of(id), deliver_at, delay)

    def schedules(self, topic: str | None = None) -> AsyncClientSchedules:
        """What a topic is sent again and again, by the calendar; without one, that of all topics."""
        return AsyncClientSchedules(self._window, topic)

    # Manage

    async def topics(self) -> list[str]:
        return await manage.topics(self._window)

    async def settings(self, topic: str) -> dict[str, Any]:
        return await manage.settings(self._window, topic)

    async def configure(self, topic: str, **settings: Any) -> dict[str, Any]:
        """Change the settings that are named; the topic is made if it is not there. Answers all of them."""
        return await manage.configure(self._window, topic, settings)

    async def purge(self, topic: str, *, ready_for: str | None = None) -> int:
        """Cancel everything there is, scheduled or not, for every group; how many messages that were. `ready_for`: only
        what that group has before it, ready or waiting; what it has leased stays, and what is scheduled."""
        query = None if ready_for is None else {"ready_for": ready_for}
        return (await self._window.ask(PurgeOut, "POST", topic_path(topic, "purge"), query=query)).purged

    async def delete_topic(self, topic: str) -> None:
        await self._window.tell("DELETE", topic_path(topic))

    async def groups(self, topic: str) -> list[str]:
        return await manage.groups(self._window, topic)

    async def create_group(
        self, topic: str, group: str, *, start: Position = "earliest", assigned: bool = False
    ) -> None:
        """Make a group; Conflict if it is there. `assigned`: only members receive, each from its own partitions."""
        await manage.create_group(self._window, topic, group, start, assigned)

    async def delete_group(self, topic: str, group: str) -> None:
        await manage.delete_group(self._window, topic, group)

    async def seek(self, topic: str, *, group: str = "default", to: Position) -> None:
        """Move a group: "earliest", "latest", an offset or a time. What it holds is lost to it, attempts start anew."""
        await manage.seek(self._window, topic, group, to)

    def dlq(self, topic: str) -> AsyncClientDlq:
        """The dead-letter queue of a topic."""
        return AsyncClientDlq(self._home, topic)

    # Pipelines

    async def set_cursor(
        self, topic: str, name: str, offsets: Mapping[int, int] | None = None, *, ttl: Duration = "7d"
    ) -> Cursor:
        """Let retention drop nothing from these offsets on, until `ttl` is over. No offsets: as it stands, or all."""
        return await manage.set_cursor(self._window, topic, name, offsets, ttl)

    async def cursors(self, topic: str) -> list[Cursor]:
        return await manage.cursors(self._window, topic)

    async def delete_cursor(self, topic: str, name: str) -> None:
        await manage.delete_cursor(self._window, topic, name)

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
        return await manage.stage(self._window, transaction, topic, messages, part, ttl)

    async def commit(self, transaction: str, parts: Iterable[str] | None = None) -> Transaction:
        """Publish what was staged, all or these parts only: once, however often it is called."""
        return await manage.commit(self._window, transaction, parts_of(parts))

    async def abort(self, transaction: str) -> Transaction:
        """Drop what was staged; Conflict if it is committed."""
        return await manage.abort(self._window, transaction)

    async def forget(self, transaction: str) -> None:
        """How a transaction ended need not be remembered any more."""
        await manage.forget(self._window, transaction)

    async def transaction(self, transaction: str) -> Transaction:
        """How a transaction stands, or how it ended."""
        return await manage.look_up(self._window, transaction)

    # Inside

    def _blocking(self) -> Run | None:
        """How threads wait for a call; None: it is awaited."""
        return None

    def _source(
        self, topic: Topics, group: str, visibility: Duration | None, attending: Attending | None = None
    ) -> Supply[Any]:
        if attending is not None:
            return MemberSource(self._home, str(topic), group, visibility, attending)
        return RemoteSource(self._home, topic, group, visibility)
