"""A server as a node of a cluster: its broker is the cluster, and every request is answered where it belongs."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import cast

from msgspec import Struct

from mqueue.assembly.inside import Inside
from mqueue.assembly.security import nodes_tls
from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.client.address import Address
from mqueue.client.aio import AsyncClient
from mqueue.client.line import Line
from mqueue.cluster.estate import Estate
from mqueue.cluster.founding import Founded, found
from mqueue.cluster.node import Node
from mqueue.cluster.plan import Waiting
from mqueue.cluster.redis.line import Access
from mqueue.config import Config
from mqueue.log.postgres import migrate
from mqueue.log.postgres.link import Link, SharedLink
from mqueue.model.clock import Clock
from mqueue.server.administration import Administrator
from mqueue.server.forwarding.forwarder import Forwarder
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.app import App
from mqueue.server.http.service import Service
from mqueue.server.overview.local import LocalOverview
from mqueue.server.overview.sampler import Sampler
from mqueue.server.overview.vitals import LocalVitals
from mqueue.server.placing import snapshot
from mqueue.server.placing.asking import Asking
from mqueue.server.placing.collector import NodeCollector
from mqueue.server.placing.glancing import ClusterOverview, ClusterVitals, counts_of
from mqueue.server.placing.lookout import Lookout
from mqueue.server.placing.peers import Peers
from mqueue.server.placing.placing import Placing
from mqueue.server.placing.poking import Poker
from mqueue.server.placing.shelf import SharedShelf
from mqueue.server.security.peers import Limit

_SECRET_BYTES = 32
_CALL_MS_MAX = 30_000


class Approach(Struct, frozen=True):
    """What a node knows of its cluster before it lets anybody in: its servers, keys and quotas, and how other nodes
    prove that they are."""

    founded: Founded
    secret: bytes
    shelf: SharedShelf
    link: Link


def approach(config: Config) -> Approach:
    """Waits for the servers."""
    databases = [database.reveal() for database in config.cluster.databases]
    link = SharedLink(databases[0], "shared")
    try:
        founded = found(link, databases)
        return Approach(founded, migrate.secret_of(link, os.urandom(_SECRET_BYTES)), SharedShelf(link), link)
    except BaseException:
        link.close()
        raise


class Membership:
    """A node, and its lines to the others."""

    def __init__(
        self,
        node: Node,
        forwarder: Forwarder,
        poker: Poker,
        lookout: Lookout,
        asking: Asking,
        rooms: Rooms,
        client: AsyncClient,
        peers: Peers,
    ) -> None:
        self._node = node
        self._asking = asking
        self._forwarder = forwarder
        self._poker = poker
        self._lookout = lookout
        self._rooms = rooms
        self._client = client
        self._peers = peers

    def calls(self, namespace: str) -> AsyncBroker:
        """The calls of one namespace, for the faces of this node: each goes where it belongs."""
        return cast("AsyncBroker", self._client.namespace(namespace))

    def show(self, service: Service, sampler: Sampler) -> None:
        """What is at a glance is that of the whole cluster."""
        sampler.count = counts_of(self._node)
        own, vitals = service.overview, service.vitals
        assert isinstance(own, LocalOverview)
        assert isinstance(vitals, LocalVitals)
        service.overview = ClusterOverview(own, self._node, self._peers)
        service.vitals = ClusterVitals(vitals, self._node, self._peers, self._asking)

    def limited(self, per_second: int, burst: int) -> Limit:
        """So many calls a second of one address, at all nodes together."""
        return self._node.rate.paced(per_second, burst)

    def let_go(self) -> None:
        """Whoever waits for messages that are delivered here waits no longer."""
        self._rooms.stop()

    async def end(self) -> None:
        await self._client.close()
        await self._lookout.close()
        await self._poker.close()
        await self._forwarder.close()
        await asyncio.to_thread(self._asking.close)
        await asyncio.to_thread(self._node.close)


async def join(
    config: Config,
    app: App,
    root: LoopBroker,
    known: Approach,
    administrator: Administrator,
    address: str,
    clock: Clock | None,
) -> Membership:
    """Become a node. `root` is a broker without messages: it keeps what has no place of its own yet."""
    lines, tls = Lines(), nodes_tls(config)
    node = Node(
        [database.reveal() for database in config.cluster.databases],
        address,
        defaults=config.topic,
        limits=config.limits,
        owns=config.cluster.owns,
        session_ms=config.cluster.session_ms,
        poke=lines.poke,
        clock=clock,
        redis=_redis(config),
        copies_ms=config.cluster.buffer_ttl_ms,
        waiting=Waiting(config.cluster.buffer_length_max, config.cluster.buffer_bytes_max, config.cluster.wal_dir),
    )
    root._engine.quotas = node.quotas
    administrator.configure(config.quotas.namespaces, config.quotas.default)
    await asyncio.to_thread(node.start, known.founded)
    voucher = app.service.voucher = Voucher(known.secret, node.time)
    forwarder = Forwarder(address, tls, voucher)
    lines.poker = Poker(forwarder, app.service)
    try:
        return await _member(app, node, forwarder, lines.poker, administrator)
    except BaseException:
        await lines.poker.close()
        await forwarder.close()
        await asyncio.to_thread(node.close)
        raise


async def _member(app: App, node: Node, forwarder: Forwarder, poker: Poker, administrator: Administrator) -> Membership:
    """From now on requests are answered where they belong."""
    service = app.service
    rooms, peers, asking = Rooms(service), Peers(forwarder, node.others), Asking(node)
    await peers.tell(service)
    service.places = Placing(node, forwarder, peers, asking, rooms.room)
    if service.page is not None:
        service.page.take = partial(snapshot.take, node)
        service.page.registry.register(NodeCollector(node, forwarder.results))
    client = _client(node.address, app)
    return Membership(node, forwarder, poker, Lookout(administrator), asking, rooms, client, peers)


def _client(url: str, app: App) -> AsyncClient:
    """Of this node itself. Whoever calls through a face has been let in by it, and has the right that it asked for."""
    address = Address((url,), None, "", _CALL_MS_MAX, "json", True, None)
    return AsyncClient._over(address, Line(address, carry=Inside(app)))


def _redis(config: Config) -> Access:
    redis = config.cluster.redis
    password = None if redis.password is None else redis.password.reveal()
    return Access(redis.addresses, redis.username, password, redis.sentinel, redis.tls, redis.ca_file)


class Lines:
    """To other nodes, which are not there before the node has begun: the secret of the cluster is in its shards."""

    poker: Poker | None = None

    def poke(self, address: str, namespace: str, topic: str) -> None:
        if self.poker is not None:
            self.poker.poke(address, namespace, topic)


class Rooms:
    """What handlers get that work in the loops of estates: events are of one loop."""

    def __init__(self, outside: Service) -> None:
        self._outside = outside
        self._made: list[tuple[Estate, Service]] = []
        self._stopped = False

    def room(self, estate: Estate) -> Service:
        """Called in the loop of the estate, once for each."""
        outside = self._outside
        service = Service(outside.root, outside.door, estate.clock, outside.bounds)
        service.node = outside
        service.local = outside.local
        service.secure = outside.secure
        service.administration = outside.administration
        service.page = outside.page
        service.telemetry = outside.telemetry
        self._made.append((estate, service))
        if self._stopped:
            service.stopping.set()
        return service

    def stop(self) -> None:
        self._stopped = True
        for estate, service in list(self._made):
            estate.loop.call_soon_threadsafe(service.stopping.set)
