"""A cluster to break: PostgreSQL servers, nodes that are processes, and Redis if it is asked for.

It goes on from one run to the next: whatever a fault has ended is started again; each run has its own namespace.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from uuid import UUID

from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.model.errors import ShardDown
from mqueue.policy.routing import virtual_shard
from mqueue.testing import PostgresServer, RedisServer
from tests.cluster.faults.history import KEYED, ONCE, PLAIN, Topic

PATIENCE_SECONDS = 120


class NodeProcess:
    """`mqueue serve` as a node, on a port that it chooses. `url` once it is ready."""

    def __init__(self, name: str, place: Path, databases: Sequence[str], more: dict[str, str]) -> None:
        self.name = name
        place.mkdir(parents=True, exist_ok=True)
        self.log = place / f"{name}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MQUEUE_", "GOMQ_"))}
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mqueue", "serve", "--http", "127.0.0.1:0"],
                cwd=place,
                env={**kept, "DATABASE_URLS": ",".join(databases), **more},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._out = self._process.stdout
        self.url = ""
        self.stopped = False

    def ready(self) -> NodeProcess:
        assert self._out is not None
        line = self._out.readline().decode()
        if not line.startswith("ready http="):
            self.kill()
            raise AssertionError(f"node {self.name} did not start: {self.log.read_text()[-2000:]}")
        self.url = "http://" + line.split("=")[1].strip()
        return self

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.stopped = False

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        code = self._process.wait(PATIENCE_SECONDS)
        if self._out is not None:
            self._out.close()
        return code


class Stage:
    """`databases`: those of a server that is there already, instead of `servers` of our own."""

    def __init__(
        self,
        place: Path,
        *,
        servers: int = 3,
        nodes: int = 3,
        databases: Sequence[str] = (),
        redis: bool = False,
        wal: bool = False,
    ) -> None:
        self.place = place
        self.servers: list[PostgresServer] = []
        self.redis: RedisServer | None = None
        self.nodes: list[NodeProcess] = []
        self._wal = wal
        self._wanted = nodes
        self._started = 0
        self._links: list[Link] = []
        try:
            if databases:
                self.databases = list(databases)
            else:
                self.servers = [PostgresServer() for _ in range(servers)]
                self.databases = [server.create("mqueue") for server in self.servers]
            self._links = [Link(url, "faults") for url in self.databases]
            if redis:
                self.redis = RedisServer()
            self.restore()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for node in self.nodes:
            if node.runs:
                node.kill()
        for link in self._links:
            link.close()
        if self.redis is not None:
            self.redis.close()
        for server in self.servers:
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

    def begin_node(self, name: str | None = None) -> NodeProcess:
        """One more, which is not ready yet and asked by nobody. With the name of one that is gone it has that one's
        log."""
        self._started += name is None
        name = name or f"node{self._started}"
        more = {}
        if self.redis is not None:
            more = {"REDIS_ADDRS": f"127.0.0.1:{self.redis.port}", "REDIS_PASSWORD": self.redis.password}
            if self._wal:
                more["WAL_DIR"] = str(self.place / name / "wal")
        return NodeProcess(name, self.place, self.databases, more)

    def add_node(self, name: str | None = None) -> NodeProcess:
        node = self.begin_node(name).ready()
        self.nodes.append(node)
        return node

    def restore(self) -> None:
        """As many nodes as there should be, all servers up, and everything owned by somebody alive."""
        for server in self.servers:
            server.resume()
            server.start()
        if self.redis is not None:
            self.redis.start()
        for node in self.nodes:
            if node.stopped:
                node.resume()
        self.nodes = [node for node in self.nodes if node.runs]
        for node in self.nodes[self._wanted :]:
            node.terminate()
            node.wait()
        del self.nodes[self._wanted :]
        begun = [self.begin_node() for _ in range(self._wanted - len(self.nodes))]
        self.nodes += [node.ready() for node in begun]
        self.wait_until(self.settled)

    # Who owns what, as PostgreSQL says

    def settled(self) -> bool:
        """Whether nodes have their shares: that they are alive and nobody else is."""
        alive = {node.url for node in self.nodes}
        for number in range(len(self.databases)):
            try:
                found = Counter(self.owners(number).values())
            except ShardDown:
                return False
            if found.keys() != alive or max(found.values()) - min(found.values()) > 1:
                return False
        return True

    def owners(self, server: int) -> dict[int, str]:
        """Of each virtual shard of a server, who owns it; "": nobody."""
        return {row[0]: row[3] for row in owning.owners(self._links[server])}

    def owned(self, topics: Sequence[Topic], namespace: str, node: NodeProcess) -> list[Topic]:
        """Those of some topics that a node delivers."""
        owners = [self.owners(server) for server in range(len(self.databases))]
        return [topic for topic in topics if owners[topic.server][virtual_shard(namespace, topic.name)] == node.url]

    def sessions(self, server: int, node: NodeProcess) -> list[UUID]:
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
                told.append(f"{node.name}: {node.log.read_text()[-500:]}")
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
