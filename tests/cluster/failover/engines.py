"""What a cluster stands on, failed over while it is used: PostgreSQL by promotion, Redis by its Sentinels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol

from redis import Redis
from redis.exceptions import RedisError

from mqueue.assembly.redis import MASTER
from mqueue.testing import RedisServer, Replicas
from tests.cluster.patience import wait_until

_END_SESSIONS = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'mqueue:shard%'"
)


class Engine(Protocol):
    """`settings`: what nodes need to know of it."""

    name: str
    durability: str

    @property
    def settings(self) -> dict[str, Any]: ...

    def fail(self) -> None:
        """The one in charge dies; returns when another has been made its successor."""

    def haunt(self, number: int) -> None:
        """The dead may come back as if nothing had happened."""

    def mend(self) -> None:
        """Until there is a spare again."""

    def close(self) -> None: ...


class Primaries:
    """A primary and two standbys, of which one confirms every commit. Every fourth time the dead primary comes back
    as if nothing had happened, and nodes have to connect again while it is there."""

    name = "postgresql primary"
    durability = "quorum"

    def __init__(self, servers: int = 3) -> None:
        self.shard = Replicas(servers)
        self.url = self.shard.create("mqueue")
        self._dead = self.shard.primary

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def fail(self) -> None:
        self._dead = self.shard.fail_over()

    def haunt(self, number: int) -> None:
        if number % 4 == 0:
            self.shard.revive(self._dead)
            self.shard.primary.run(_END_SESSIONS, "mqueue")
            wait_until(lambda: self._connected() >= 4)
            self._dead.kill()

    def mend(self) -> None:
        self.shard.rejoin()

    def _connected(self) -> int:
        sql = "select count(*) from pg_stat_activity where application_name like 'mqueue:shard%'"
        return int(self.shard.primary.run(sql))

    def close(self) -> None:
        self.shard.close()


class Sentinels:
    """A Redis, its replica, and three Sentinels that watch them."""

    name = "redis by sentinel"
    durability = "wal"

    def __init__(self) -> None:
        master = RedisServer()
        replica = RedisServer(replica_of=master, password=master.password)
        self._servers = {server.port: server for server in (master, replica)}
        self._master = master
        self._password = master.password
        self._sentinels = [RedisServer(sentinel_of=master, password="", quorum=2) for _ in range(3)]
        wait_until(self._has_spare)
        wait_until(lambda: all(self._knows(sentinel) for sentinel in self._sentinels))

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "cluster.redisAddrs": [f"127.0.0.1:{sentinel.port}" for sentinel in self._sentinels],
            "cluster.redisPassword": self._password,
            "cluster.redisSentinel": MASTER,
        }

    def fail(self) -> None:
        dead = self._master
        dead.kill()
        wait_until(lambda: self._named() != dead.port)
        self._master = self._servers[self._named()]

    def haunt(self, number: int) -> None:
        """Sentinels make a replica of whoever comes back."""

    def mend(self) -> None:
        for server in self._servers.values():
            server.start()
        wait_until(self._has_spare)
        wait_until(lambda: all(self._knows(sentinel) for sentinel in self._sentinels))

    def close(self) -> None:
        for server in (*self._sentinels, *self._servers.values()):
            server.close()

    def _named(self) -> int:
        """The port of the master, as the Sentinels agree; of the old one while they do not."""
        found = {_asked(sentinel, lambda client: _port(client)) for sentinel in self._sentinels}
        return found.pop() if len(found) == 1 else self._master.port

    def _knows(self, sentinel: RedisServer) -> bool:
        """Whether it knows the other Sentinels and a replica that is well."""

        def look(client: Any) -> bool:
            told: Any = client.sentinel_master(MASTER)
            replicas: Sequence[Any] = client.sentinel_slaves(MASTER)
            well = [one for one in replicas if not one["is_sdown"] and one["master-link-status"] == "ok"]
            return int(told["num-other-sentinels"]) == 2 and bool(well) and "down" not in told["flags"]

        return bool(_asked(sentinel, look))

    def _has_spare(self) -> bool:
        told = _asked(self._master, lambda client: client.info("replication"), self._password)
        return bool(told) and told["role"] == "master" and told.get("slave0", {}).get("state") == "online"


def _port(client: Any) -> int:
    return int(client.sentinel_get_master_addr_by_name(MASTER)[1])


def _asked(server: RedisServer, look: Callable[[Any], Any], password: str | None = None) -> Any:
    with closing(Redis("127.0.0.1", server.port, password=password, decode_responses=True, socket_timeout=5)) as client:
        try:
            return look(client)
        except (RedisError, KeyError):
            return None
