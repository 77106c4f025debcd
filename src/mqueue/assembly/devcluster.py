"""A whole cluster on one machine, for tests and for trying it: PostgreSQL, Redis and nodes, all real processes.

    with DevCluster(shards=2, nodes=2) as cluster:
        mqueue.Client(cluster.urls[0]).publish("orders", b"1")
        cluster.nodes[0].kill()      # also stop, pause, resume, start
        cluster.shards[1].pause()    # the same for every server of it
        cluster.redis.flush()

Everybody listens on 127.0.0.1. When whoever made it ends, in whatever way, all of it ends, and what was temporary goes.
With a directory it is kept there, and found again:

    <directory>/shard0 …     a PostgreSQL server each, with its password
    <directory>/redis        Redis, with its password
    <directory>/node0 …      a node each: config.yaml, log, wal
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import json

from mqueue.assembly.local import LocalServer, write_secret
from mqueue.assembly.postgres import PostgresServer
from mqueue.assembly.process import ServerProcess
from mqueue.assembly.redis import RedisServer
from mqueue.model.errors import BadSetting, Error

DATABASE = "mqueue"
SERVERS_MAX = 64
PROGRAM = (sys.executable, "-m", "mqueue")
_READY = "ready http="


class NodeServer(LocalServer):
    """`mqueue serve` as a process. `settings` are keys of the configuration by their paths: they lie in a file that
    only its owner reads. Of our environment it sees nothing that would set it. `program` is run in place of `mqueue`.
    """

    kind = "a node"
    port_taken = "cannot be listened on: Address already in use"

    def __init__(
        self,
        settings: Mapping[str, Any],
        directory: Path | None = None,
        *,
        port: int | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        super().__init__(directory, port)
        self._settings = dict(settings)
        self._program = program
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by the name of the listener, as it said when it was ready."""
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if line.startswith(_READY)][-1]
        return dict(word.split("=", 1) for word in told.split()[1:])

    def stop(self) -> None:
        """Told to stop: it hands over what it owns, and ends."""
        self._end(self.last)

    def _command(self, port: int) -> list[str]:
        place = self.directory / "config.yaml"
        own = {f"broker.listeners.{name}": "off" for name in ("grpc", "amqp")}  # only one could have their ports
        own["broker.listeners.http"] = f"127.0.0.1:{port}"
        if self._settings.get("cluster.redisAddrs"):
            own["cluster.walDir"] = str(self.directory / "wal")
        write_secret(place, json.encode(_tree(own | self._settings)).decode())
        return [*self._program, "serve", "--config", str(place)]

    def _environment(self) -> Mapping[str, str]:
        from mqueue.config.keys import KEYS  # who only wants a clock for tests may lack what servers need

        ours = {name for key in KEYS.values() for name in key.variables}
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MQUEUE_", "GOMQ_")) and name.removesuffix("_FILE") not in ours
        }

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        with self.log.open("rb") as log:
            log.seek(begin)
            return any(line.startswith(_READY.encode()) for line in log)


class DevCluster:
    """Runs once it is made. `port`: of the first node, the others follow; None: free ones. `settings`: keys of the
    configuration, by path, for every node.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        shards: int = 2,
        nodes: int = 2,
        redis: bool = True,
        port: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        for name, count in (("shards", shards), ("nodes", nodes)):
            if not 1 <= count <= SERVERS_MAX:
                raise BadSetting(f"{name} is {count}; it takes 1 to {SERVERS_MAX}")
        self._directory = directory
        self._port = port
        self._settings = dict(settings or {})
        self.shards: list[PostgresServer] = []
        self.redis: RedisServer | None = None
        self.nodes: list[NodeServer] = []
        try:
            for number in range(shards):
                self.shards.append(PostgresServer(self._place(f"shard{number}")))
            if redis:
                self.redis = RedisServer(self._place("redis"))
            self.databases = [_database(server) for server in self.shards]
            for _ in range(nodes):
                self.add()
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> list[str]:
        """Of the nodes."""
        return [node.url for node in self.nodes]

    def add(self, settings: Mapping[str, Any] | None = None, program: Sequence[str] = PROGRAM) -> NodeServer:
        """One more node, with further settings of its own."""
        number = len(self.nodes)
        node = NodeServer(
            self.node_settings() | dict(settings or {}),
            self._place(f"node{number}"),
            port=None if self._port is None else self._port + number,
            program=program,
        )
        self.nodes.append(node)
        return node

    def node_settings(self) -> dict[str, Any]:
        """What makes a server a node of this cluster: keys of the configuration by their paths, passwords with them."""
        given: dict[str, Any] = {"broker.nodeId": f"node{len(self.nodes)}", "cluster.databaseUrls": self.databases}
        if self.redis is not None:
            given["cluster.redisAddrs"] = [f"127.0.0.1:{self.redis.port}"]
            given["cluster.redisPassword"] = self.redis.password
        return given | self._settings

    def close(self) -> None:
        """Nodes first: they hand over. Whatever fails, everything is ended."""
        servers: list[LocalServer] = [*self.nodes, *([] if self.redis is None else [self.redis]), *self.shards]
        failure: Exception | None = None
        for server in servers:
            try:
                server.close()
            except (Error, OSError) as error:
                failure = failure or error
                with suppress(Error, OSError):
                    server.kill()
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _place(self, name: str) -> Path | None:
        return None if self._directory is None else self._directory / name


def _database(server: PostgresServer) -> str:
    """Made at the first start."""
    there = server.run(f"select count(*) from pg_database where datname = '{DATABASE}'")  # noqa: S608 - a constant
    return server.create(DATABASE) if there == "0" else server.url(DATABASE)


def _tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keys by their paths, as a file has them."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *above, name = path.split(".")
        branch = tree
        for step in above:
            branch = branch.setdefault(step, {})
        branch[name] = value
    return tree
