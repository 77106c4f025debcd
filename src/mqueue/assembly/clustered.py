"""A server as a node of a cluster: its broker is the cluster, and every request is answered where it belongs."""

from __future__ import annotations

import asyncio

from mqueue.assembly.security import nodes_tls
from mqueue.broker.loop import LoopBroker
from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Node
from mqueue.config import Config
from mqueue.model.clock import Clock
from mqueue.server.forwarding.forwarder import Forwarder
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.service import Service
from mqueue.server.placing.placing import Placing
from mqueue.server.placing.poking import Poker


class Membership:
    """A node, and its lines to the others."""

    def __init__(self, node: Node, forwarder: Forwarder, poker: Poker) -> None:
        self._node = node
        self._forwarder = forwarder
        self._poker = poker

    async def end(self) -> None:
        await self._poker.close()
        await self._forwarder.close()
        await asyncio.to_thread(self._node.close)


async def join(config: Config, service: Service, root: LoopBroker, address: str, clock: Clock | None) -> Membership:
    """Become a node. `root` is a broker without messages: it keeps what has no place of its own yet."""
    lines = Lines()
    node = Node(
        [database.reveal() for database in config.cluster.databases],
        address,
        defaults=config.topic,
        limits=config.limits,
        poke=lines.poke,
        clock=clock,
    )
    root._engine.quotas = node.quotas
    node.quotas.replace(config.quotas.namespaces, config.quotas.default)
    await asyncio.to_thread(node.start)
    forwarder = Forwarder(address, nodes_tls(config), node.secret)
    lines.poker = Poker(forwarder, service)
    service.voucher = Voucher(node.secret)
    service.places = Placing(node, forwarder, lambda estate: _inside(service, estate))
    return Membership(node, forwarder, lines.poker)


class Lines:
    """To other nodes, which are not there before the node has begun: the secret of the cluster is in its shards."""

    poker: Poker | None = None

    def poke(self, address: str, namespace: str, topic: str) -> None:
        if self.poker is not None:
            self.poker.poke(address, namespace, topic)


def _inside(outside: Service, estate: Estate) -> Service:
    """What handlers get that work in the loop of an estate: events are of one loop."""
    service = Service(outside.root, outside.door, estate.clock, outside.bounds)
    service.local = outside.local
    service.administration = outside.administration
    service.page = outside.page
    return service
