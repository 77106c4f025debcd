"""A server as a node of a cluster: its broker is the cluster, and every request is answered where it belongs."""

from __future__ import annotations

import asyncio

from mqueue.broker.loop import LoopBroker
from mqueue.cluster.estate import Estate
from mqueue.cluster.node import Node
from mqueue.config import Config
from mqueue.log.postgres.batch import Arrival
from mqueue.model.clock import Clock
from mqueue.server.forwarding.forwarder import Forwarder
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.service import Service
from mqueue.server.placing.placing import Placing


class Membership:
    """A node, and its lines to the others."""

    def __init__(self, node: Node, forwarder: Forwarder) -> None:
        self._node = node
        self._forwarder = forwarder

    async def end(self) -> None:
        await self._forwarder.close()
        await asyncio.to_thread(self._node.close)


async def join(config: Config, service: Service, root: LoopBroker, address: str, clock: Clock | None) -> Membership:
    """Become a node. `root` is a broker without messages: it keeps what has no place of its own yet."""
    node = Node(
        [database.reveal() for database in config.cluster.databases],
        address,
        defaults=config.topic,
        limits=config.limits,
        poke=_poke,
        clock=clock,
    )
    root._engine.quotas = node.quotas
    node.quotas.replace(config.quotas.namespaces, config.quotas.default)
    await asyncio.to_thread(node.start)
    forwarder = Forwarder(address, secret=node.secret)
    service.voucher = Voucher(node.secret)
    service.places = Placing(node, forwarder, lambda estate: _inside(service, estate))
    return Membership(node, forwarder)


def _inside(outside: Service, estate: Estate) -> Service:
    """What handlers get that work in the loop of an estate: events are of one loop."""
    service = Service(outside.root, outside.door, estate.clock, outside.bounds)
    service.local = outside.local
    service.administration = outside.administration
    service.page = outside.page
    return service


async def _poke(address: str, arrivals: list[Arrival]) -> None:
    """Other nodes look for themselves what was appended."""
