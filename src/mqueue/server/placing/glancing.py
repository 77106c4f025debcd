"""All topics of a cluster at a glance, and how its nodes are: each node is asked for its own, and it is put together.

A node is asked for no more rows than end up in the window, so that ten thousand topics do not travel. One that does not
answer in time is named.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TypeVar

import msgspec
from msgspec.structs import astuple, replace

from mqueue.broker.broker import Broker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.tallies import Tally, tallies
from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Node
from mqueue.log.postgres import witness
from mqueue.model.errors import Error, Unavailable
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.http.v1 import cluster, overview
from mqueue.server.overview.local import LocalOverview
from mqueue.server.overview.rows import interest
from mqueue.server.overview.sampler import TOPICS_AT_ONCE, Count
from mqueue.server.overview.vitals import LocalVitals
from mqueue.server.overview.window import SPACES_SHOWN_MAX, Asked
from mqueue.server.placing.asking import Asking
from mqueue.server.placing.peers import Peers, is_asked_by_peer
from mqueue.server.placing.waking import waken
from mqueue.wire.json_cluster import ClusterOut, NodeOut, RedisOut, ShardOut, StandbyOut
from mqueue.wire.json_overview import NamespaceSumsOut, OverviewOut, PointOut, RowOut, SumsOut

S = TypeVar("S", bound=SumsOut)

_PATIENCE_SECONDS = 3.0
_WAKE_SECONDS = 10.0
"""So often who looks has topics counted that nobody has read yet."""
_CARRIED_MS = 30_000
"""So long what a node said last holds, in a chart."""
_OVERVIEW = msgspec.json.Decoder(OverviewOut)
_CLUSTER = msgspec.json.Decoder(ClusterOut)
_ADDED = [name for name in SumsOut.__struct_fields__ if name != "oldest_at"]


def counts_of(node: Node) -> Count:
    """The topics that this node delivers, at all servers: counted in the loops of the estates, some at a time."""

    async def count() -> AsyncIterator[tuple[Sequence[Tally], float]]:
        for estate in node.estates:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    found = await estate.run(_counted(estate))
                yield found

    return count


async def _counted(estate: Estate) -> tuple[Sequence[Tally], float]:
    found: list[Tally] = []
    took = 0.0
    for vshard in sorted(estate.holdings):
        holding = estate.holdings.get(vshard)
        if holding is not None:
            with suppress(Unavailable):  # it went to another node meanwhile
                begun = perf_counter()
                broker: Broker = LoopBroker._over(holding.engine, "default", "")
                found += [tally for some in tallies(broker, TOPICS_AT_ONCE) for tally in some]
                took += perf_counter() - begun
            await asyncio.sleep(0)
    return found, took


class ClusterOverview:
    """`own`: of what this node delivers."""

    def __init__(self, own: LocalOverview, node: Node, peers: Peers) -> None:
        self._own = own
        self._node = node
        self._peers = peers
        self._woken_at = -_WAKE_SECONDS

    async def look(self, call: Call, asked: Asked) -> OverviewOut:
        whole = replace(asked, skip=0, limit=asked.skip + asked.limit)
        if is_asked_by_peer(call):
            return await self._of_ours(call, whole)
        own, answers = await asyncio.gather(
            self._of_ours(call, whole), self._peers.ask(*_asked(call, overview.ROUTES[0]), _PATIENCE_SECONDS)
        )
        told = [_OVERVIEW.decode(answer.body) for answer in answers.values() if answer is not None]
        return joined([own, *told], asked, _silent(answers))

    async def following(self, number: int) -> int | None:
        return await self._own.following(number)

    async def _of_ours(self, call: Call, asked: Asked) -> OverviewOut:
        await self._wake()
        away = [estate.name for estate in self._node.estates if not estate.takes]
        return replace(await self._own.look(call, asked), away=away)

    async def _wake(self) -> None:
        if (now := time.monotonic()) - self._woken_at >= _WAKE_SECONDS:
            self._woken_at = now
            with suppress(Unavailable):
                await asyncio.gather(*(estate.run(waken(estate)) for estate in self._node.estates if estate.takes))


class ClusterVitals:
    def __init__(self, own: LocalVitals, node: Node, peers: Peers, asking: Asking) -> None:
        self._own = own
        self._node = node
        self._peers = peers
        self._asking = asking

    async def look(self, call: Call) -> ClusterOut:
        if is_asked_by_peer(call):
            return ClusterOut([await self._of_ours()])
        own, answers = await asyncio.gather(
            self._of_ours(), self._peers.ask(*_asked(call, cluster.ROUTES[0]), _PATIENCE_SECONDS)
        )
        told = [_CLUSTER.decode(answer.body) for answer in answers.values() if answer is not None]
        missing = [NodeOut(address, missing=True) for address in _silent(answers)]
        atlas = self._node.atlas
        nodes = [own, *(node for one in told for node in one.nodes), *missing]
        return ClusterOut(nodes, len(atlas.map.moves), len(atlas.troubles()))

    async def _of_ours(self) -> NodeOut:
        node, line = self._node, self._node.outpost.line
        shards = await asyncio.gather(*(self._shard(estate) for estate in node.estates))
        outbox = node.outpost.outbox
        return replace(
            self._own.node(),
            address=node.address,
            storage="cluster",
            trouble="" if any(estate.takes for estate in node.estates) else "none of the servers can be reached",
            shards=shards,
            redis=RedisOut(line.is_away, outbox.sent, outbox.dropped) if line.configured else None,
        )

    async def _shard(self, estate: Estate) -> ShardOut:
        meters = estate.meters
        standbys: list[StandbyOut] = []
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS / 2):
                found = await self._asking.one(estate, lambda estate: witness.standby_lags(estate.reader))
                standbys = [StandbyOut(*one) for one in found]
        return ShardOut(
            estate.name,
            estate.takes,
            meters.breaker,
            estate.owned,
            sum(not owner.address for owner in list(estate.owners.values())),
            round(time.monotonic() - meters.beaten_at, 3) if meters.beaten_at else None,
            meters.buffered_messages,
            meters.buffered_bytes,
            meters.flush_lag_ms / 1000,
            estate.seen.timeline,
            meters.commit_failures,
            meters.append_failures,
            standbys,
        )


def joined(parts: Sequence[OverviewOut], asked: Asked, silent: list[str]) -> OverviewOut:
    """What nodes say, as if one had said it. The first is our own."""
    rows = sorted((row for part in parts for row in part.rows), key=_order(asked.sort))
    spaces: dict[str, list[NamespaceSumsOut]] = {}
    for part in parts:
        for one in part.namespaces:
            spaces.setdefault(one.namespace, []).append(one)
    added = [_added(several, NamespaceSumsOut(namespace=name)) for name, several in spaces.items()]
    added.sort(key=lambda one: (-one.stuck, -one.ready, -one.topics, one.namespace))
    away = [name for name in parts[0].away if all(name in part.away for part in parts)]
    return OverviewOut(
        parts[0].at,
        sum(part.topics for part in parts),
        _added([part.totals for part in parts], SumsOut()),
        rows[asked.skip : asked.skip + asked.limit],
        added[:SPACES_SHOWN_MAX],
        _past([part.past for part in parts]),
        silent,
        away,
    )


def _added(several: Iterable[SumsOut], into: S) -> S:
    for one in several:
        for name in _ADDED:
            setattr(into, name, round(getattr(into, name) + getattr(one, name), 1))
        into.oldest_at = min(filter(None, (into.oldest_at, one.oldest_at)), default=None)
    return into


def _past(several: Sequence[list[PointOut]]) -> list[PointOut]:
    """At each moment of the one that has most of them, what the others said last."""
    own, *others = sorted(several, key=len, reverse=True)
    times = [[point.at for point in points] for points in others]
    found = []
    for point in own:
        numbers = list(astuple(point))
        for at, points in zip(times, others, strict=True):
            place = bisect_right(at, point.at) - 1
            if place >= 0 and point.at - at[place] <= _CARRIED_MS:
                numbers[1:] = [round(sum(two), 1) for two in zip(numbers[1:], astuple(points[place])[1:], strict=True)]
        found.append(PointOut(*numbers))
    return found


def _order(sort: str) -> Callable[[RowOut], tuple[object, ...]]:
    """As `window` sorts."""
    if sort == "name":
        return lambda row: (row.namespace, row.topic)
    if sort == "interest":
        return lambda row: (interest(row), row.namespace, row.topic)
    if sort == "age":
        return lambda row: (row.oldest_at is None, row.oldest_at or "", row.namespace, row.topic)
    name = {"in": "in_per_second", "out": "out_per_second"}.get(sort, sort)
    return lambda row: (-getattr(row, name), row.namespace, row.topic)


def _asked(call: Call, route: Route) -> tuple[Call, Route]:
    """The same, asked of another node, whichever of the routes it came by."""
    query = call.target.partition("?")[2]
    return replace(call, path=route.path, target=f"{route.path}?{query}" if query else route.path), route


def _silent(answers: dict[str, Answer | None]) -> list[str]:
    return [address for address, answer in answers.items() if answer is None]
