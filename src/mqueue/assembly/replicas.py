"""One shard on several PostgreSQL servers of one's own: a primary and standbys that stream from it, for tests.

    with Replicas(3) as shard:
        shard.create("orders")
        mqueue serve … DATABASE_URLS=shard.url("orders")     # postgresql://…@a,b,c/orders
        shard.fail_over()      # the primary dies, the standby that has most takes over, the other follows it
        shard.rejoin()         # the dead come back as standbys

A commit waits for one of the standbys (`synchronous_standby_names`), whoever is the primary. Replication and promotion
are PostgreSQL's own; what decides here when to promote is the test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from mqueue.assembly.postgres import SUPERUSER, PostgresServer
from mqueue.assembly.process import ServerProcess, pause_between_looks
from mqueue.model.errors import BadSetting

# A standby whose primary is gone asks again soon: five seconds are too long for a test.
SETTINGS = {"wal_retrieve_retry_interval": "100ms", "wal_receiver_timeout": "5s", "hot_standby": "on"}


class StandbyServer(PostgresServer):
    """Made as a copy of a server that runs, and streams from it, by `name`. Also what has been a primary may become
    one."""

    def __init__(
        self,
        primary: PostgresServer,
        name: str,
        directory: Path | None = None,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._above = primary
        told = {**SETTINGS, **(settings or {}), "cluster_name": name}
        super().__init__(directory, port=port, password=primary.password, settings=told)

    def follow(self, primary: PostgresServer) -> None:
        """Stream from another one from now on, without a restart."""
        self._above = primary
        _asked(self, f"alter system set primary_conninfo = '{self._line()}'")
        _asked(self, "select pg_reload_conf()")

    def copy(self, primary: PostgresServer) -> None:
        """Throw away what it has, and become a standby of another. It must not run."""
        if self.runs:
            raise BadSetting("a server that runs cannot be made anew: kill or stop it first")
        self._above = primary
        shutil.rmtree(self._data)
        self._make()
        self.start()

    def _make(self) -> None:
        self._data.mkdir(mode=0o700, exist_ok=True)
        place = f"postgresql://{SUPERUSER}@127.0.0.1:{self._above.port}/postgres"
        self._call("pg_basebackup", "-d", place, "-D", str(self._data), "-X", "stream", "-c", "fast", "--no-sync")
        (self._data / "standby.signal").touch()
        with (self._data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:  # the last line counts
            file.write(f"primary_conninfo = '{self._line()}'\n")
        if self._owner is not None:
            for found in (self._data, *self._data.rglob("*")):
                shutil.chown(found, *self._owner)

    def _line(self) -> str:
        return f"host=127.0.0.1 port={self._above.port} user={SUPERUSER} password={self._above.password}"

    def _is_ready(self, process: ServerProcess, begin: int) -> bool:
        return super()._is_ready(process, begin) or self._says(process, "standby")


class Replicas:
    """`count` servers, the first a primary. `synchronous`: a commit waits for one of the others."""

    def __init__(self, count: int = 3, *, synchronous: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.servers: list[PostgresServer] = []
        self._synchronous = synchronous
        try:
            first = PostgresServer(settings={**SETTINGS, **(settings or {}), "cluster_name": "s0"})
            self.primary = first
            self.servers.append(first)
            if synchronous:
                names = ", ".join(f"s{number}" for number in range(count))
                first.run(f"alter system set synchronous_standby_names = 'ANY 1 ({names})'")
            for number in range(1, count):
                self.servers.append(StandbyServer(first, f"s{number}", settings=settings))
            first.run("select pg_reload_conf()")
            self.wait_for(lambda: self.streaming() >= count - 1)
        except BaseException:
            self.close()
            raise

    def url(self, database: str = "postgres") -> str:
        """All of them; who connects finds the primary."""
        places = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://{SUPERUSER}:{self.primary.password}@{places}/{quote(database, safe='')}"

    def create(self, database: str) -> str:
        self.primary.create(database)
        return self.url(database)

    def standbys(self) -> list[PostgresServer]:
        """Those that run, and follow."""
        return [server for server in self.servers if server is not self.primary and server.runs]

    def streaming(self) -> int:
        """How many follow the primary now."""
        return int(self.primary.run("select count(*) from pg_stat_replication where state = 'streaming'"))

    def fail_over(self) -> PostgresServer:
        """Kill the primary, as a power failure would; who was it."""
        dead = self.primary
        dead.kill()
        self.promote()
        return dead

    def promote(self) -> PostgresServer:
        """The standby that has most becomes the primary, the others follow it, whatever the old one does."""
        heirs = self.standbys()
        best = heirs[0] if len(heirs) == 1 else max(heirs, key=_received)
        for server in heirs:  # before, so that whoever is promoted has a standby at once
            if server is not best:
                _follow(server, best)
        if not _asked(best, "select pg_promote(true, 60)"):
            raise TimeoutError("a standby was not promoted within 60 seconds")
        self.primary = best
        return best

    def revive(self, dead: PostgresServer) -> None:
        """Start one that was the primary as if nothing had happened: it takes itself for it, and waits for nobody."""
        with (dead.directory / "data" / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write("synchronous_standby_names = ''\n")
        dead.start()

    def rejoin(self) -> None:
        """Whoever is dead comes back as a standby, made anew."""
        for number, server in enumerate(self.servers):
            if not server.runs:
                self.servers[number] = self._anew(server, f"s{number}")
        self.wait_for(lambda: self.streaming() >= len(self.servers) - 1)

    def _anew(self, server: PostgresServer, name: str) -> PostgresServer:
        if isinstance(server, StandbyServer):
            server.copy(self.primary)
            return server
        port = server.port
        server.close()
        return StandbyServer(self.primary, name, port=port)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(6000):
            if condition():
                return
            pause_between_looks()
        raise TimeoutError("the servers did not get there within a minute")

    def close(self) -> None:
        for server in self.servers:
            server.kill()
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _received(server: PostgresServer) -> int:
    return int(_asked(server, "select pg_last_wal_receive_lsn() - '0/0'"))


def _asked(server: PostgresServer, sql: str) -> Any:
    """Over a connection of our own: to start a program takes a tenth of a second, and here every moment counts."""
    import psycopg  # who only wants a clock for tests may lack it

    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]


def _follow(server: PostgresServer, primary: PostgresServer) -> None:
    assert isinstance(server, StandbyServer), "only a copy can follow"
    server.follow(primary)
