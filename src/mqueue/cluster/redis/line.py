"""A line to Redis for the threads of a node. It never makes anybody wait long.

What fails once is *away*: from then on calls fail at once, until a thread has found a server that answers. It looks
every second. Nothing that is asked here may be needed: whoever calls has another way.

The addresses may be those of a Redis Cluster: all our keys lie together, so one of its masters has them, and any of its
servers knows which.

Does not know what is kept in Redis; only how its keys begin.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from ssl import TLSVersion
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct
from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    ClusterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

LOGGER = logging.getLogger("mqueue.cluster")
T = TypeVar("T")

TIMEOUT_SECONDS = 1.0
"""For a connection, and for an answer."""
AWAY_SECONDS = 1.0
_PORT = 6379
_NAME_BYTES = 16
_OVERTAKEN = (ReadOnlyError, MovedError, ClusterDownError)
"""Answers of one that was the master, or that does not have our keys any more."""


class Away(Exception):
    """Redis cannot be asked just now."""


class Access(Struct, frozen=True):
    """Where Redis is, "host:port", and how to get in. `sentinel`: what Sentinels call the master, and the addresses are
    theirs; they are asked with the same password, and without one."""

    addresses: tuple[str, ...]
    username: str | None = None
    password: str | None = None
    sentinel: str | None = None
    tls: bool = False
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Access({self.shown})"

    @property
    def shown(self) -> str:
        """For messages: no password."""
        return ", ".join(self.addresses) + (f" (Sentinel {self.sentinel!r})" if self.sentinel else "")


class Line:
    """`clients`: of servers that hold the same; the first is used that answers and is no replica. `prefix`: how every
    key begins. `shown`: where that is, for messages, in which no secret appears. `make`: a client for a server that
    these tell of, where keys are spread."""

    configured = True

    def __init__(
        self,
        clients: Sequence[Redis],
        prefix: bytes,
        shown: str,
        secrets: Sequence[str] = (),
        make: Callable[[str, int], Redis] | None = None,
    ) -> None:
        self._clients = clients
        self._make = make
        self._keeper: tuple[tuple[str, int], Redis] | None = None
        """In a Redis Cluster: where our keys lie, and how to get there."""
        self._prefix = prefix
        self._shown = shown
        self._secrets = secrets
        self._current: Redis | None = None
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._finder: threading.Thread | None = None
        if clients:
            self._current, why = self._found()
            if self._current is None:
                self._lost(None, why)

    @classmethod
    def of(cls, access: Access, cluster: UUID) -> Line:
        """A line for a cluster; without addresses one that is always away. Tries to connect, once."""
        if not access.addresses:
            return Nothing(cluster)
        secrets = [secret for secret in (access.password,) if secret]
        settings = _settings(access)
        make = None if access.sentinel else lambda host, port: Redis(host, port, **settings)
        return cls(list(clients_of(access)), _prefix(cluster), access.shown, secrets, make)

    @property
    def is_away(self) -> bool:
        return self._current is None

    def do(self, work: Callable[[Redis], T]) -> T:
        """What `work` makes of Redis, or Away. An error that is an answer is no reason to take it for away."""
        client = self._current
        if client is None:
            raise Away(f"Redis at {self._shown} is away")
        try:
            return work(client)
        except ResponseError as problem:
            if isinstance(problem, _OVERTAKEN):
                self._lost(client, problem)
            raise Away(self._said(problem)) from None
        except (RedisError, OSError) as problem:
            self._lost(client, problem)
            raise Away(self._said(problem)) from None

    def key(self, kind: str, *parts: str | int | bytes) -> bytes:
        """The key of something. Names are hashed, so that no odd byte gets in and none is too long."""
        return b":".join((self._prefix, kind.encode(), *map(_part, parts)))

    def close(self) -> None:
        self._closing.set()
        with self._guard:
            finder = self._finder
        if finder is not None:
            finder.join()
        self._current = None
        for client in (*self._clients, *([self._keeper[1]] if self._keeper else [])):
            _close(client)

    def _lost(self, client: Redis | None, problem: Exception | None) -> None:
        """`client` failed. Whoever learns it first lets a thread look for one that does not."""
        with self._guard:
            if self._current is not client or self._finder is not None or self._closing.is_set():
                return
            self._current = None
            LOGGER.warning("Redis is away: %s", self._said(problem))
            self._finder = threading.Thread(target=self._find, name="mqueue-redis", daemon=True)
            self._finder.start()

    def _find(self) -> None:
        while not self._closing.wait(AWAY_SECONDS):
            found, _ = self._found()
            if found is not None:
                with self._guard:
                    self._current, self._finder = found, None
                LOGGER.warning("Redis at %s is back", self._shown)
                return

    def _found(self) -> tuple[Redis | None, Exception | None]:
        """The first that answers, or why the last did not."""
        why: Exception | None = None
        for client in self._clients:
            try:
                client.connection_pool.disconnect(inuse_connections=False)
                found = self._keeping(client)
                if _is_master(found):
                    return found, None
            except (RedisError, OSError) as problem:
                why = problem
        return None, why

    def _keeping(self, client: Redis) -> Redis:
        """Who has our keys: the one that is asked, or the one that it names."""
        place = None if self._make is None else _keeper(client, self._prefix)
        if place is None or self._make is None:
            return client
        if self._keeper is None or self._keeper[0] != place:
            if self._keeper is not None:
                _close(self._keeper[1])
            self._keeper = place, self._make(*place)
        self._keeper[1].connection_pool.disconnect(inuse_connections=False)
        return self._keeper[1]

    def _said(self, problem: Exception | None) -> str:
        said = "no server is a master" if problem is None else " ".join(str(problem).split()) or type(problem).__name__
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return f"{self._shown}: {said}"


class Nothing(Line):
    """No Redis: away for ever."""

    configured = False

    def __init__(self, cluster: UUID) -> None:
        super().__init__((), _prefix(cluster), "no address")


def clients_of(access: Access) -> Iterator[Redis]:
    """All that may be tried, in order. Nothing is connected yet."""
    places = [_place(address) for address in access.addresses]
    settings = _settings(access)
    if access.sentinel is None:
        for host, port in places:
            yield Redis(host, port, **settings)
        return
    # Sentinels may ask for the password or, as they come, for none: then they refuse one.
    bare = {name: value for name, value in settings.items() if name not in ("username", "password")}
    make: Any = Sentinel  # which has no types
    for asked in [settings, bare] if access.password else [bare]:
        yield make(places, sentinel_kwargs=asked, **settings).master_for(access.sentinel)


def _close(client: Redis) -> None:
    client.close()
    asked = getattr(client.connection_pool, "sentinel_manager", None)
    for sentinel in asked.sentinels if asked is not None else ():
        sentinel.close()


def _settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "username": access.username,
        "password": access.password,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # every server speaks it, and so does what may stand in between
        "driver_info": None,
    }
    if access.tls:
        settings |= {
            "ssl": True,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_ca_certs": access.ca_file,
            "ssl_min_version": TLSVersion.TLSv1_2,
        }
    return settings


def _place(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        host, port = address, str(_PORT)
    return host.strip("[]"), int(port)


def _is_master(client: Redis) -> bool:
    """Whether what is written there counts. If we may not ask, it is taken for one."""
    try:
        role: Any = client.role()
    except NoPermissionError:
        return True
    return bool(role) and role[0] in (b"master", "master")


def _keeper(client: Redis, prefix: bytes) -> tuple[str, int] | None:
    """Where in a Redis Cluster our keys lie; None: it is none, or we may not ask."""
    try:
        told: Any = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    except ResponseError:
        return None
    slot = key_slot(prefix)
    for first, last, master, *_ in told:
        if first <= slot <= last:
            host = master[0].decode() if master[0] else client.connection_pool.connection_kwargs["host"]
            return host, int(master[1])
    raise RedisError(f"slot {slot} of the Redis Cluster, where our keys lie, belongs to no server")


def _prefix(cluster: UUID) -> bytes:
    """In braces, so that all keys of a cluster lie together wherever keys are spread."""
    return b"mqueue:{%s}" % cluster.hex.encode()


def _part(part: str | int | bytes) -> bytes:
    if isinstance(part, int):
        return b"%d" % part
    if isinstance(part, bytes):
        return part.hex().encode()
    return blake2b(part.encode(), digest_size=_NAME_BYTES).hexdigest().encode()
