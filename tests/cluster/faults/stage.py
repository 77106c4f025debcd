"""A cluster to break: PostgreSQL servers, nodes that are processes, and Redis and wires between all of them if they are
asked for.

It goes on from one run to the next: whatever a fault has ended is started again; each run has its own namespace.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from msgspec import Struct

from mqueue.assembly.process import free_port
from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import ShardDown
from mqueue.policy.routing import virtual_shard
from mqueue.testing import NodeServer, PostgresServer, RedisServer
from tests.cluster.faults.history import KEYED, ONCE, PLAIN, Topic
from tests.cluster.network.packets import Packets
from tests.cluster.network.wires import Wire, Wires

PATIENCE_SECONDS = 120
TALKATIVE = {"log_lock_waits": "on", "log_min_duration_statement": "500ms"}
"""What takes long is to be found in the log of a server."""


class Wired(Struct):
    """The wires of a node: to each server, to Redis, and that by which other nodes reach it."""

    port: int
    """Where the node itself listens."""
    shards: list[Wire]
    redis: list[Wire]
    peer: Wire

    @property
    def all(self) -> list[Wire]:
        return [*self.shards, *self.redis, self.peer]


class Stage:
    """`databases`: those of a server that is there already, instead of `servers` of our own. With Redis nodes have logs
    of their own, too. `wired`: all that nodes say goes over wires that can be cut; callers reach them without.
    `packets`: those whose packets the kernel drops. `settings`: more, for every node."""

    def __init__(
        self,
        place: Path,
        *,
        servers: int = 3,
        nodes: int = 3,
        databases: Sequence[str] = (),
        redis: bool = False,
        wired: bool = False,
        packets: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.place = place
        self._settings = dict(settings or {})
        self.servers: list[PostgresServer] = []
        self.redis: RedisServer | None = None
        self.nodes: list[NodeServer] = []
        self.paused: list[NodeServer] = []
        self.cut_off: list[NodeServer] = []
        """Those whose wires are bad: nobody counts on their answers."""
        self.wires: Wires | None = None
        self._wired: dict[int, Wired] = {}
        """By the number of a node."""
        self._addresses: dict[str, str] = {}
        """Of nodes, by their urls: where other nodes reach them, if that is over a wire."""
        self._wanted = nodes
        self._links: list[Link] = []
        try:
            if not databases:
                self.servers = [PostgresServer(settings=TALKATIVE) for _ in range(servers)]
            self.databases = list(databases) or [server.create("mqueue") for server in self.servers]
            self._links = [Link(url, "faults") for url in self.databases]
            if redis:
                self.redis = RedisServer()
            if wired:
                self.wires = Packets() if packets else Wires()
            self.restore()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            node.close()
        for link in self._links:
            link.close()
        if self.redis is not None:
            self.redis.close()
        for number, server in enumerate(self.servers):
            shutil.copy(server.log, self.place / f"postgres{number}.log")
            server.close()
        if self.wires is not None:
            self.wires.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Nodes

    def urls(self) -> list[str]:
        """Of all nodes, as their clients know them: also of one that just died or stands still."""
        return [node.url for node in self.nodes]

    def alive(self) -> list[NodeServer]:
        """Those who answer."""
        return [node for node in self.nodes if node.runs and node not in self.paused and node not in self.cut_off]

    def add_node(self) -> NodeServer:
        """One more, asked by nobody before it is ready."""
        node = self._make(len(self.nodes))
        self.nodes.append(node)
        return node

    def pause(self, node: NodeServer) -> None:
        self.paused.append(node)
        node.pause()

    def resume(self, node: NodeServer) -> None:
        node.resume()
        self.paused.remove(node)

    def restore(self) -> None:
        """As many nodes as there should be, all servers up, and everything owned by somebody alive."""
        for server in self.servers:
            server.resume()
            server.start()
        if self.redis is not None:
            self.redis.start()
        for node in list(self.paused):
            self.resume(node)
        self.heal()
        for node in self.nodes[self._wanted :]:
            node.close()
        del self.nodes[self._wanted :]
        if not self.nodes:
            self.add_node()
        with ThreadPoolExecutor(self._wanted) as threads:
            list(threads.map(NodeServer.start, self.nodes))
            self.nodes += threads.map(self._make, range(len(self.nodes), self._wanted))
        self.wait_until(self.settled)

    def _make(self, number: int) -> NodeServer:
        settings: dict[str, Any] = {"cluster.databaseUrls": self.databases, "metrics.enabled": False}
        settings |= self._settings
        if self.redis is not None:
            settings["cluster.redisAddrs"] = [f"127.0.0.1:{self.redis.port}"]
            settings["cluster.redisPassword"] = self.redis.password
        if self.wires is None:
            return NodeServer(settings, self.place / f"node{number}")
        wired = self._wire(self.wires, number)
        settings["cluster.databaseUrls"] = [
            moved(url, wire.port) for url, wire in zip(self.databases, wired.shards, strict=True)
        ]
        if wired.redis:
            settings["cluster.redisAddrs"] = [f"127.0.0.1:{wire.port}" for wire in wired.redis]
        settings["cluster.address"] = f"http://127.0.0.1:{wired.peer.port}"
        node = NodeServer(settings, self.place / f"node{number}", port=wired.port)
        self._addresses[node.url] = settings["cluster.address"]
        return node

    # Wires

    def wired(self, node: NodeServer) -> Wired:
        return next(one for one in self._wired.values() if one.port == node.port)

    def heal(self) -> None:
        for wired in self._wired.values():
            for wire in wired.all:
                wire.heal()
        self.cut_off.clear()

    def _wire(self, wires: Wires, number: int) -> Wired:
        if number not in self._wired:
            port = free_port()
            shards = [wires.open(port_of(url)) for url in self.databases]
            redis = [] if self.redis is None else [wires.open(self.redis.port)]
            self._wired[number] = Wired(port, shards, redis, wires.open(port))
        return self._wired[number]

    def address(self, node: NodeServer) -> str:
        """Where other nodes reach it."""
        return self._addresses.get(node.url, node.url)

    # Who owns what, as PostgreSQL says

    def settled(self) -> bool:
        """Whether nodes have their shares: that they are alive and nobody else is."""
        alive = sorted(self.address(node) for node in self.nodes)
        for number, link in enumerate(self._links):
            try:
                found = Counter(self.owners(number).values())
                sessions = sorted(address for _, _, address in owning.alive(link))
            except ShardDown:
                return False
            if sessions != alive or sorted(found) != alive or max(found.values()) - min(found.values()) > 1:
                return False
        return True

    def owners(self, server: int) -> dict[int, str]:
        """Of each virtual shard of a server, who owns it; "": nobody."""
        return {row[0]: row[3] for row in owning.owners(self._links[server])}

    def owned(self, topics: Sequence[Topic], namespace: str, node: NodeServer) -> list[Topic]:
        """Those of some topics that a node delivers."""
        owners = [self.owners(server) for server in range(len(self.databases))]
        return [
            topic
            for topic in topics
            if owners[topic.server][virtual_shard(namespace, topic.name)] == self.address(node)
        ]

    def sessions(self, server: int, node: NodeServer) -> list[UUID]:
        """Of a node, at a server."""
        return [owner for owner, _, address in owning.alive(self._links[server]) if address == self.address(node)]

    def link(self, server: int) -> Link:
        return self._links[server]

    def wait_until(self, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        for _ in range(int(seconds * 20)):
            if condition():
                return
            threading.Event().wait(0.05)
        raise AssertionError(f"it did not come to pass within {seconds:g} seconds: {self._story()}")

    def _story(self) -> str:
        told = []
        for node in self.nodes:
            with suppress(OSError):
                told.append(f"{node.url}: {node.log.read_text()[-500:]}")
        return "\n".join(told)


def port_of(url: str) -> int:
    found = re.search(r":(\d+)/", url)
    assert found is not None
    return int(found[1])


def moved(url: str, port: int) -> str:
    """The same database, by another port."""
    return re.sub(r":\d+/", f":{port}/", url, count=1)


def make_topics(namespace: str, servers: int, each: int = 1) -> list[Topic]:
    """On every server so many of each kind, their virtual shards far from each other."""
    found: list[Topic] = []
    for server in range(servers):
        for kind in (PLAIN, KEYED, ONCE) * each:
            names = (f"{kind}{number}" for number in range(10_000))
            known = {topic.name for topic in found}
            name = next(n for n in names if n not in known and virtual_shard(namespace, n) % servers == server)
            found.append(Topic(name, kind, server, 3 if kind == PLAIN else 6))
    return found
