"""What a running mqueue was told, as one frozen tree: a part per thing that is set, each with our defaults.

Durations are milliseconds and sizes are bytes; what users type is turned into them before it gets here. Does not know
where a value came from, nor who reads it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from mqueue.log.segments.storage import Storage
from mqueue.model.limits import KIB, MIB, Limits
from mqueue.model.settings import Settings


class Secret:
    """A text that is never shown: not by repr, not by a traceback, not by an encoder (none knows this class)."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


class Address(Struct, frozen=True, eq=False):
    host: str
    port: int
    asked_for: bool = True
    """False: it is only there by default, and a server that cannot have it does without. The place is the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self.host, self.port) == (other.host, other.port)

    def __hash__(self) -> int:
        return hash((self.host, self.port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server(Struct, frozen=True):
    """Where it listens (None: not at all), and how much patience it has with those who connect."""

    http: Address = Address("127.0.0.1", 8080)
    grpc: Address | None = Address("127.0.0.1", 9000, asked_for=False)
    amqp: Address | None = Address("127.0.0.1", 5672, asked_for=False)
    connections_max: int = 10_000
    body_bytes_max: int = 48 * MIB
    headers_bytes_max: int = 64 * KIB
    headers_timeout_ms: int = 10_000
    body_timeout_ms: int = 30_000
    idle_timeout_ms: int = 60_000
    drain_timeout_ms: int = 30_000


class Data(Struct, frozen=True):
    """Where messages lie. `dir` counts only where `memory` is false."""

    node: str | None = None
    memory: bool = False
    dir: str = "./data"
    storage: Storage = Storage()


class Jwt(Struct, frozen=True):
    secret: Secret | None = None
    previous_secret: Secret | None = None
    jwks_file: str | None = None
    issuer: str = "mqueue"
    audience: str = "mqueue"
    algorithms: tuple[str, ...] = ()
    leeway_ms: int = 30_000
    lifetime_max_ms: int = 24 * 3600 * 1000


class Tls(Struct, frozen=True):
    cert_file: str | None = None
    key_file: str | None = None
    self_signed: bool = False
    client_ca_file: str | None = None
    clients: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """What those with a certificate may do, by its subject: grants as tokens have them."""

    @property
    def on(self) -> bool:
        return self.self_signed or self.cert_file is not None


class RateLimit(Struct, frozen=True):
    """Requests of one address; None: any number."""

    per_second: int | None = None
    burst: int = 100


class Security(Struct, frozen=True):
    """`auth` holds the ways to be let in, of `jwt` and `keys`; empty: everybody is."""

    auth: tuple[str, ...] = ()
    jwt: Jwt = Jwt()
    keys_pepper: Secret | None = None
    tls: Tls = Tls()
    trusted_proxies: tuple[str, ...] = ()
    rate_limit: RateLimit = RateLimit()
    public_bind: bool = False


class NamespaceQuotas(Struct, frozen=True):
    """Messages a minute that a namespace may publish; None: any number."""

    default: int | None = None
    namespaces: Mapping[str, int] = MappingProxyType({})


class Logging(Struct, frozen=True):
    level: str = "info"
    encoding: str = "json"


class Metrics(Struct, frozen=True):
    enabled: bool = True
    public: bool = False
    interval_ms: int = 1_000
    topics_max: int = 1_000


class Telemetry(Struct, frozen=True):
    """Where spans go; None: there are none."""

    endpoint: str | None = None
    headers: Secret | None = None
    sample_ratio: float | None = None
    """None: as the variables of OpenTelemetry say, else all."""
    service_name: str = "mqueue"


class Dashboard(Struct, frozen=True):
    enabled: bool = True


class LakeTables(Struct, frozen=True):
    """Where archived messages lie; None: nowhere."""

    url: str | None = None
    format: str = "delta"


class Redis(Struct, frozen=True):
    """Servers for copies of what PostgreSQL has; none: the cluster does without."""

    addresses: tuple[str, ...] = ()
    username: str | None = None
    password: Secret | None = None
    sentinel: str | None = None
    """What Sentinels call the master: then the addresses are theirs."""
    tls: bool = False
    ca_file: str | None = None


class Cluster(Struct, frozen=True):
    """PostgreSQL servers, always in the same order; none: messages lie where `data` says."""

    databases: tuple[Secret, ...] = ()
    redis: Redis = Redis()
    wal_dir: str | None = None
    """A node's own log; None: durability `wal` is not offered."""
    buffer_ttl_ms: int = 60_000
    buffer_length_max: int = 100_000
    buffer_bytes_max: int = 256 * MIB
    address: str | None = None
    """Where other nodes reach this one; None: where it listens."""
    ca_file: str | None = None
    owns: bool = True
    """Whether it delivers; else it only publishes and forwards."""
    session_ms: int = 5_000


class Config(Struct, frozen=True):
    server: Server = Server()
    data: Data = Data()
    limits: Limits = Limits()
    security: Security = Security()
    quotas: NamespaceQuotas = NamespaceQuotas()
    topic: Settings = Settings()
    logging: Logging = Logging()
    metrics: Metrics = Metrics()
    telemetry: Telemetry = Telemetry()
    dashboard: Dashboard = Dashboard()
    lake: LakeTables = LakeTables()
    cluster: Cluster = Cluster()
