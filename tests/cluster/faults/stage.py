"""A cluster to break: PostgreSQL servers, nodes that are processes, and Redis if it is asked for.

It goes on from one run to the next: whatever a fault has ended is started again; each run has its own namespace.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import ShardDown
from mqueue.policy.routing import virtual_shard
from mqueue.testing import NodeServer, PostgresServer, RedisServer
from tests.cluster.faults.history import KEYED, ONCE, PLAIN, Topic

PATIENCE_SECONDS = 120
TALKATIVE = {"log_lock_waits": "on", "log_min_duration_statement": "500ms"}
"""What takes long is to be found in the log of a server."""


class Stage:
    """`databases`: those of a server that is there already, instead of `servers` of our own. With Redis nodes have logs
    of their own, too."""

    def __init__(
        self,
        place: Path,
        *,
        servers: int = 3,
        nodes: int = 3,
        databases: Sequence[str] = (),
        redis: bool = False,
    ) -> None:
        self.place = place
        self.servers: list[PostgresServer] = []
        self.redis: RedisServer | None = None
        self.nodes: list[NodeServer] = []
        self.paused: list[NodeServer] = []
        self._wanted = nodes
        self._links: list[Link] = []
        try:
            if not databases:
                self.servers = [PostgresServer(settings=TALKATIVE) for _ in range(servers)]
            self.databases = list(databases) or [server.create("mqueue") for server in self.servers]
            self._links = [Link(url, "faults") for url in self.databases]
            if redis:
                self.redis = RedisServer()
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
        return [node for node in self.nodes if node.runs and node not in self.paused]

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
        if self.redis is not None:
            settings["cluster.redisAddrs"] = [f"127.0.0.1:{self.redis.port}"]
            settings["cluster.redisPassword"] = self.redis.password
        return NodeServer(settings, self.place / f"node{number}")

    # Who owns what, as PostgreSQL says

    def settled(self) -> bool:
        """Whether nodes have their shares: that they are alive and nobody else is."""
        alive = sorted(node.url for node in self.nodes)
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
        return [topic for topic in topics if owners[topic.server][virtual_shard(namespace, topic.name)] == node.url]

    def sessions(self, server: int, node: NodeServer) -> list[UUID]:
        """Of a node, at a server."""
        return [owner for owner, _, address in owning.alive(self._links[server]) if address == node.url]

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
