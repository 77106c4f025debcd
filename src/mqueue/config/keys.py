"""Every key there is, in one table: its place in a file, its variables, the field it sets, what it takes and means.

The reader, the tables in docs/configuration.md and config.example.yaml are all made from this table, so a key cannot be
half there. A field below `topic` is a name of `mqueue.model.settings`; every other one is a field of the tree. The
first variable wins over the others; those are the names that other systems of this kind use.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.config.kinds import (
    ADDRESS,
    AUTH,
    CLIENTS,
    FILE,
    FLAG,
    NAME,
    NETWORKS,
    NODE,
    PATH,
    QUOTAS,
    SECRET,
    TEXT,
    WHOLE,
    Kind,
    choice,
    duration,
    either,
    number,
    only,
    optional,
    size,
    whole,
    words,
)
from mqueue.config.servers import COLLECTOR, COLLECTOR_HEADERS, DATABASES, NODE_URL, PLACES
from mqueue.model.limits import FRAME_BYTES_MAX, KIB, MIB, PARTITIONS_MAX, VISIBILITY_MS_MAX
from mqueue.server.security.signing import ALGORITHMS
from mqueue.server.security.tokens import LEEWAY_SECONDS_MAX, LIFETIME_SECONDS_MAX

_COPIES = "one node keeps one copy; copies of the data directory are made below it"
_LANES = "high, normal and low are the names, and whole numbers between them are lanes too"
_SECOND = 1000
_TIMEOUT = duration(_SECOND, 3600 * _SECOND)


class Key(Struct, frozen=True):
    """`field` is None where there is nothing to set. `default` is text for the page where the tree cannot tell."""

    path: str
    field: str | None
    kind: Kind
    variables: tuple[str, ...]
    meaning: str
    secret: bool = False
    default: str | None = None


def _key(path: str, field: str | None, kind: Kind, variables: str, meaning: str, default: str | None = None) -> Key:
    return Key(path, field, kind, tuple(variables.split()), meaning, default=default)


def _secret(path: str, field: str | None, kind: Kind, variables: str, meaning: str) -> Key:
    """Never shown, and as `<path>File` or `<variable>_FILE` read from a file."""
    return Key(path, field, kind, tuple(variables.split()), meaning, secret=True)


_BROKER = (
    _key("broker.nodeId", "data.node", optional(NODE), "MQUEUE_NODE_ID",
         "what this node calls itself in logs and metrics; ids do not depend on it"),
    _key("broker.storage", "data.memory", either("disk", "memory"), "MQUEUE_STORAGE GOMQ_STORAGE",
         "where messages lie: `disk` (synced before it is answered) or `memory`"),
    _key("broker.dataDir", "data.dir", PATH, "MQUEUE_DATA_DIR GOMQ_DATA_DIR", "the data directory, made if missing"),
    _key("broker.listeners.http", "server.http", ADDRESS, "MQUEUE_HTTP",
         "HTTP; without a host 127.0.0.1, port 0 is a free one"),
    _key("broker.listeners.grpc", "server.grpc", optional(ADDRESS, "off"), "MQUEUE_GRPC", "Arrow Flight"),
    _key("broker.listeners.amqp", "server.amqp", optional(ADDRESS, "off"),
         "MQUEUE_AMQP MQUEUE_LISTEN_ADDR GOMQ_LISTEN_ADDR", "AMQP 0-9-1"),
)  # fmt: skip

_SERVER = (
    _key("server.maxConnections", "server.connections_max", whole(1, 1_000_000), "MQUEUE_MAX_CONNECTIONS",
         "connections open at once, over all listeners"),
    _key("server.maxBodySize", "server.body_bytes_max", size(KIB, 1024 * MIB), "MQUEUE_MAX_BODY_SIZE",
         "one request; a call as base64 is a third longer than its messages"),
    _key("server.maxHeadersSize", "server.headers_bytes_max", size(KIB, MIB), "MQUEUE_MAX_REQUEST_HEADERS_SIZE",
         "all headers of a request"),
    _key("server.headersTimeout", "server.headers_timeout_ms", _TIMEOUT, "MQUEUE_HEADERS_TIMEOUT",
         "until the headers of a request are there"),
    _key("server.bodyTimeout", "server.body_timeout_ms", _TIMEOUT, "MQUEUE_BODY_TIMEOUT", "until its body is"),
    _key("server.idleTimeout", "server.idle_timeout_ms", _TIMEOUT, "MQUEUE_IDLE_TIMEOUT",
         "a connection on which nothing happens is closed"),
    _key("server.drainTimeout", "server.drain_timeout_ms", duration(0, 3600 * _SECOND), "MQUEUE_DRAIN_TIMEOUT",
         "what is under way may take so long once the server is told to stop"),
)  # fmt: skip

_STORAGE = (
    _key("storage.segmentSize", "data.storage.segment_bytes", size(64 * KIB), "MQUEUE_SEGMENT_SIZE",
         "a segment is closed once it is that long"),
    _key("storage.cacheSize", "data.storage.cache_bytes", size(), "MQUEUE_CACHE_SIZE",
         "so much of what was written or read last stays in memory"),
    _key("storage.reserveSize", "data.storage.reserve_bytes", size(), "MQUEUE_RESERVE_SIZE",
         "room that is kept for settling when the disk is full"),
    _key("storage.checkpointSize", "data.storage.checkpoint_bytes", size(), "MQUEUE_CHECKPOINT_SIZE",
         "a checkpoint is written after so much log"),
    _key("storage.checkpointSeconds", "data.storage.checkpoint_seconds", whole(0, 86_400),
         "MQUEUE_CHECKPOINT_SECONDS", "or after so long"),
    _key("storage.scrubHours", "data.storage.scrub_hours", number(100_000), "MQUEUE_SCRUB_HOURS",
         "every segment is read and checked once in so long; 0: never"),
    _key("storage.acceptLoss", "data.storage.accept_loss", FLAG, "MQUEUE_ACCEPT_LOSS",
         "open a directory although something that was durable is missing from it"),
)  # fmt: skip

_LIMITS = (
    _key("limits.maxMessageSize", "limits.payload_bytes_max", size(1, FRAME_BYTES_MAX - MIB),
         "MQUEUE_MAX_MESSAGE_SIZE GOMQ_MAX_MESSAGE_SIZE", "one payload"),
    _key("limits.maxKeySize", "limits.key_bytes_max", size(1, 64 * KIB), "MQUEUE_MAX_KEY_SIZE", "one key"),
    _key("limits.maxHeadersSize", "limits.headers_bytes_max", size(0, 512 * KIB), "MQUEUE_MAX_HEADERS_SIZE",
         "all headers of a message"),
    _key("limits.maxCallMessages", "limits.call_messages_max", whole(1, 1_000_000), "MQUEUE_MAX_CALL_MESSAGES",
         "messages of one publish call"),
    _key("limits.maxCallSize", "limits.call_bytes_max", size(1, 1024 * MIB), "MQUEUE_MAX_CALL_SIZE",
         "bytes of one publish call"),
    _key("limits.maxTopics", "limits.topics_max", whole(1, 10_000_000), "MQUEUE_MAX_TOPICS", "topics there may be"),
    _key("limits.maxGroups", "limits.groups_max", whole(1, 1_000_000), "MQUEUE_MAX_GROUPS", "groups of one topic"),
    _key("limits.maxMembers", "limits.members_max", whole(1, 100_000), "MQUEUE_MAX_MEMBERS", "members of one group"),
)  # fmt: skip

_SECURITY = (
    _key("security.auth", "security.auth", AUTH, "MQUEUE_AUTH",
         "who is let in: `off` (everybody), `jwt`, `keys`, or both; `auto` is `jwt` where a secret or a key set is"
         " given, else `off`", "auto"),
    _key("security.publicBind", "security.public_bind", FLAG, "MQUEUE_PUBLIC_BIND",
         "listen on public addresses although auth or TLS is off"),
    _secret("security.jwt.secret", "security.jwt.secret", optional(SECRET), "MQUEUE_JWT_SECRET JWT_SECRET",
            "the shared secret that tokens are signed with, at least 32 bytes"),
    _secret("security.jwt.previousSecret", "security.jwt.previous_secret", optional(SECRET),
            "MQUEUE_JWT_PREVIOUS_SECRET", "the one before, good as well while secrets are being changed"),
    _key("security.jwt.jwksFile", "security.jwt.jwks_file", optional(FILE), "MQUEUE_JWKS_FILE",
         "public keys (a JSON Web Key Set) that tokens are signed for, instead of a secret"),
    _key("security.jwt.issuer", "security.jwt.issuer", TEXT, "MQUEUE_JWT_ISSUER",
         "the `iss` that tokens must have"),
    _key("security.jwt.audience", "security.jwt.audience", TEXT, "MQUEUE_JWT_AUDIENCE",
         "the `aud` that tokens must have"),
    _key("security.jwt.algorithms", "security.jwt.algorithms", optional(words(*ALGORITHMS)),
         "MQUEUE_JWT_ALGORITHMS", "signatures that count; none: HS256 with a secret, RS256 and ES256 with a key set",
         "none"),
    _key("security.jwt.leeway", "security.jwt.leeway_ms", duration(0, LEEWAY_SECONDS_MAX * _SECOND),
         "MQUEUE_JWT_LEEWAY", "how far clocks may be apart"),
    _key("security.jwt.maxLifetime", "security.jwt.lifetime_max_ms", duration(_SECOND, LIFETIME_SECONDS_MAX * _SECOND),
         "MQUEUE_JWT_MAX_LIFETIME", "tokens that live longer are refused"),
    _secret("security.keys.pepper", "security.keys_pepper", optional(SECRET), "MQUEUE_KEYS_PEPPER",
            "what API keys are hashed with, at least 32 bytes; they lie in the data directory"),
    _key("security.tls.certFile", "security.tls.cert_file", optional(FILE), "MQUEUE_TLS_CERT_FILE",
         "the certificate and what it hangs on, PEM"),
    _key("security.tls.keyFile", "security.tls.key_file", optional(FILE), "MQUEUE_TLS_KEY_FILE",
         "its private key, PEM"),
    _key("security.tls.selfSigned", "security.tls.self_signed", FLAG, "MQUEUE_TLS_SELF_SIGNED",
         "make a certificate at the start, for trying things out"),
    _key("security.tls.clientCaFile", "security.tls.client_ca_file", optional(FILE), "MQUEUE_TLS_CLIENT_CA_FILE",
         "ask clients for a certificate of this authority"),
    _key("security.tls.clients", "security.tls.clients", CLIENTS, "MQUEUE_TLS_CLIENTS",
         "what they may do, by the subject of their certificate: `dns:a.example: read:tenant-a write:tenant-a/orders`;"
         " in a variable `subject=grants; subject=grants`"),
    _key("security.trustedProxies", "security.trusted_proxies", NETWORKS, "MQUEUE_TRUSTED_PROXIES",
         "networks whose `X-Forwarded-For` is believed"),
    _key("security.rateLimit.perSecond", "security.rate_limit.per_second", optional(whole(1, 1_000_000)),
         "MQUEUE_RATE_LIMIT", "requests a second of one address, at all nodes of a cluster together; none: any number"),
    _key("security.rateLimit.burst", "security.rate_limit.burst", whole(1, 1_000_000), "MQUEUE_RATE_LIMIT_BURST",
         "so many at once after a rest"),
)  # fmt: skip

_QUOTAS = (
    _key("quotas.default", "quotas.default", optional(WHOLE), "MQUEUE_DEFAULT_QUOTA",
         "messages a minute that a namespace without a line of its own may publish; none: any number"),
    _key("quotas.namespaces", "quotas.namespaces", QUOTAS, "MQUEUE_NAMESPACE_QUOTAS NAMESPACE_QUOTAS",
         "the same by namespace; in a variable `tenant-a:1000,tenant-b:500`"),
)  # fmt: skip

_DEFAULTS = (
    _key("defaults.topic.partitions", "topic.partitions", optional(whole(1, PARTITIONS_MAX)), "MQUEUE_PARTITIONS",
         "slices of a topic; may grow; none: 1, and 6 at the nodes of a cluster", "none"),
    _key("defaults.topic.replicationFactor", None, only("1", _COPIES, int), "MQUEUE_REPLICATION_FACTOR",
         "copies of a message; 1, as long as there is one node", "1"),
    _key("defaults.topic.maxDepth", "topic.max_depth", optional(whole(1)),
         "MQUEUE_MAX_QUEUE_DEPTH GOMQ_MAX_QUEUE_DEPTH", "messages that the slowest group may owe; none: any number"),
    _key("defaults.topic.overflow", "topic.overflow", choice("refuse", "drop_oldest", "drop_ready"), "MQUEUE_OVERFLOW",
         "beyond that: refuse, drop_oldest or drop_ready"),
    _key("defaults.topic.defaultTtl", "topic.default_ttl", optional(duration(1)),
         "MQUEUE_DEFAULT_TTL GOMQ_DEFAULT_TTL", "ttl of messages that come without one; none: they do not expire"),
    _key("defaults.topic.start", "topic.start", choice("earliest", "latest"), "MQUEUE_GROUP_START",
         "where groups made on first use begin"),
    _key("defaults.topic.hold", "topic.hold", duration(), "MQUEUE_HOLD",
         "for how long a silent group holds back retention"),
    _key("defaults.topic.trace", "topic.trace", FLAG, "MQUEUE_TRACE",
         "whether traces tell what became of messages; false: only that they were published"),
    _key("defaults.topic.retention.hours", "topic.retention.hours", optional(number(100_000_000)),
         "MQUEUE_RETENTION_HOURS", "settled messages are kept so long; none: for ever"),
    _key("defaults.topic.retention.bytes", "topic.retention.bytes", optional(size()), "MQUEUE_RETENTION_BYTES",
         "or so much of a topic; none: any amount"),
    _key("defaults.topic.retention.onAck", "topic.retention.on_ack", FLAG, "MQUEUE_RETENTION_ON_ACK",
         "or until every group has settled them"),
    _key("defaults.topic.retention.compact", "topic.retention.compact", FLAG, "MQUEUE_RETENTION_COMPACT",
         "of messages with a key only the last of each stays"),
    _key("defaults.topic.dedup.mode", "topic.dedup", choice("window", "until_acked", "forever"), "MQUEUE_DEDUP",
         "how long idempotency keys are kept: window, until_acked, forever"),
    _key("defaults.topic.dedup.window", "topic.dedup_window", duration(1), "MQUEUE_DEDUP_WINDOW", "the window"),
    _key("defaults.topic.dedup.maxKeys", "topic.dedup_keys_max", whole(1, 1_000_000_000), "MQUEUE_DEDUP_MAX_KEYS",
         "keys that a topic keeps; more are refused"),
    _key("defaults.delivery.visibilityTimeout", "topic.visibility", duration(1, VISIBILITY_MS_MAX),
         "MQUEUE_VISIBILITY_TIMEOUT", "how long a lease lasts"),
    _key("defaults.delivery.maxRetries", "topic.max_retries", optional(whole(0, 1_000_000)),
         "MQUEUE_MAX_RETRIES GOMQ_MAX_RETRIES", "deliveries after the first one; none: without end"),
    _key("defaults.delivery.backoff", "topic.backoff", duration(), "MQUEUE_BACKOFF",
         "wait after the first failure; doubled by each further one"),
    _key("defaults.delivery.backoffMax", "topic.backoff_max", duration(), "MQUEUE_BACKOFF_MAX",
         "the longest such wait"),
    _key("defaults.delivery.maxInFlight", "topic.in_flight_max", whole(1, 10_000_000), "MQUEUE_MAX_IN_FLIGHT",
         "messages that a group may hold at once"),
    _key("defaults.delivery.dlqEnabled", "topic.dlq", FLAG, "MQUEUE_DLQ_ENABLED",
         "keep the dead, in `<topic>.dlq`; false: they are dropped"),
    _key("defaults.delivery.dlqTopic", "topic.dlq_topic", optional(NAME), "MQUEUE_DLQ_TOPIC",
         "keep them in this topic instead"),
    _key("defaults.delivery.dlqExpired", "topic.dlq_expired", FLAG, "MQUEUE_DLQ_EXPIRED",
         "whether what expired goes there too"),
    _key("defaults.delivery.dlqDropped", "topic.dlq_dropped", FLAG, "MQUEUE_DLQ_DROPPED",
         "whether what was dropped to make room does, too"),
    _key("defaults.delivery.policy", "topic.policy", choice("strict", "weighted", "ageing"), "MQUEUE_POLICY",
         "what goes first: strict, weighted, ageing"),
    _key("defaults.delivery.weights.critical", "topic.weights.critical", whole(1, 1000), "MQUEUE_WEIGHT_CRITICAL",
         "share of the lane `critical` under the policy weighted"),
    _key("defaults.delivery.weights.high", "topic.weights.high", whole(1, 1000), "MQUEUE_WEIGHT_HIGH",
         "share of the lane `high` under the policy weighted"),
    _key("defaults.delivery.weights.normal", "topic.weights.normal", whole(1, 1000), "MQUEUE_WEIGHT_NORMAL",
         "share of the lane `normal` under the policy weighted"),
    _key("defaults.delivery.weights.low", "topic.weights.low", whole(1, 1000), "MQUEUE_WEIGHT_LOW",
         "share of the lane `low` under the policy weighted"),
    _key("defaults.delivery.weights.background", "topic.weights.background", whole(1, 1000), "MQUEUE_WEIGHT_BACKGROUND",
         "share of the lane `background` under the policy weighted"),
    _key("defaults.delivery.ageLimit", "topic.age_limit", duration(1), "MQUEUE_AGE_LIMIT",
         "how long a message waits behind more urgent ones under the policy ageing"),
    _key("defaults.delivery.fairness.enabled", "topic.fairness.enabled", FLAG, "MQUEUE_FAIRNESS",
         "whether fairness keys take turns; true also if one of their limits is given"),
    _key("defaults.delivery.fairness.maxInFlight", "topic.fairness.in_flight_max", optional(whole(1, 10_000_000)),
         "MQUEUE_FAIRNESS_MAX_IN_FLIGHT",
         "messages of one fairness key that a group may hold at once; none: any number"),
    _key("defaults.delivery.fairness.rate", "topic.fairness.rate", optional(number(1_000_000)),
         "MQUEUE_FAIRNESS_RATE", "messages of one fairness key that a group gets in a second; none: any number"),
    _key("defaults.delivery.ordered", "topic.ordered", FLAG, "MQUEUE_ORDERED",
         "one message of a key at a time"),
    _key("defaults.delivery.onFailure", "topic.on_failure", choice("block", "skip", "divert"), "MQUEUE_ON_FAILURE",
         "what a failure in an ordered topic does to its key: block, skip, divert"),
    _key("defaults.delay.enabled", "topic.delayed", FLAG, "MQUEUE_DELAY_ENABLED",
         "whether messages may be delayed at all; false is a maxDelay of 0s"),
    _key("defaults.delay.maxDelay", "topic.max_delay", optional(duration()), "MQUEUE_MAX_DELAY",
         "how far ahead a message may be scheduled; none: any time"),
    _key("defaults.delay.dueRate", "topic.due_rate", optional(number(1_000_000)), "MQUEUE_DUE_RATE",
         "scheduled messages of a topic that become visible in a second; none: all that are due"),
    _key("defaults.priority.lanes", None, only("3", _LANES, int), "MQUEUE_PRIORITY_LANES",
         "named priorities; always 3: high, normal, low", "3"),
)  # fmt: skip

_LOGGING = (
    _key("logging.level", "logging.level", choice("debug", "info", "warn", "error", also={"warning": "warn"}),
         "MQUEUE_LOG_LEVEL LOG_LEVEL", "debug, info, warn, error"),
    _key("logging.encoding", "logging.encoding", choice("json", "console"), "MQUEUE_LOG_ENCODING LOG_ENCODING",
         "json, or console for people"),
)  # fmt: skip

_METRICS = (
    _key("metrics.enabled", "metrics.enabled", FLAG, "MQUEUE_ENABLE_METRICS GOMQ_ENABLE_METRICS",
         "answer /metrics"),
    _key("metrics.public", "metrics.public", FLAG, "MQUEUE_METRICS_PUBLIC", "also to those who were not let in"),
    _key("metrics.interval", "metrics.interval_ms", duration(0, 3600 * _SECOND),
         "MQUEUE_METRICS_INTERVAL GOMQ_METRICS_INTERVAL", "numbers younger than this are not counted again"),
    _key("metrics.maxTopics", "metrics.topics_max", WHOLE, "MQUEUE_METRICS_MAX_TOPICS",
         "topics with numbers of their own; the rest are added up"),
)  # fmt: skip

_TELEMETRY = (
    _key("telemetry.endpoint", "telemetry.endpoint", optional(COLLECTOR),
         "MQUEUE_TELEMETRY_ENDPOINT OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_EXPORTER_OTLP_ENDPOINT",
         "a collector that takes OTLP over HTTP; `/v1/traces` is added where it does not stand there; none: no spans"),
    _secret("telemetry.headers", "telemetry.headers", optional(COLLECTOR_HEADERS),
            "MQUEUE_TELEMETRY_HEADERS OTEL_EXPORTER_OTLP_TRACES_HEADERS OTEL_EXPORTER_OTLP_HEADERS",
            "headers that it wants to see, `name=value,name=value`"),
    _key("telemetry.sampleRatio", "telemetry.sample_ratio", optional(number(1)), "MQUEUE_TELEMETRY_SAMPLE_RATIO",
         "so many of the traces that begin here are told; one that began elsewhere is told if it is told there; none:"
         " as OTEL_TRACES_SAMPLER says, else all"),
    _key("telemetry.serviceName", "telemetry.service_name", TEXT,
         "MQUEUE_TELEMETRY_SERVICE_NAME OTEL_SERVICE_NAME", "what the server is called there"),
)  # fmt: skip

_DASHBOARD = (
    _key("dashboard.enabled", "dashboard.enabled", FLAG, "MQUEUE_DASHBOARD", "show the dashboard at /"),
)  # fmt: skip

_LAKE = (
    _key("lake.url", "lake.url", optional(TEXT), "MQUEUE_LAKE_URL",
         "where archived messages lie, a directory or a URL as s3://bucket/lake; none: what retention drops is gone"),
    _key("lake.format", "lake.format", choice("delta", "iceberg", "parquet"), "MQUEUE_LAKE_FORMAT",
         "of its tables: delta, iceberg, parquet"),
)  # fmt: skip

_CLUSTERED = (
    _secret("cluster.databaseUrls", "cluster.databases", DATABASES, "MQUEUE_DATABASE_URLS DATABASE_URLS",
            "PostgreSQL servers, one a shard, in the order of the first start: with them a server is a node of a"
            " cluster; a URL may name several hosts that replicate each other; none: messages lie where `broker` says"),
    _key("cluster.address", "cluster.address", optional(NODE_URL), "MQUEUE_CLUSTER_ADDRESS",
         "where other nodes reach this one, `http://host:port`; none: where it listens"),
    _key("cluster.caFile", "cluster.ca_file", optional(FILE), "MQUEUE_CLUSTER_CA_FILE",
         "authorities (PEM) that other nodes' certificates are checked with; none: those of the machine"),
    _key("cluster.owns", "cluster.owns", FLAG, "MQUEUE_CLUSTER_OWNS",
         "deliver its share of the topics; false: it publishes, and forwards everything else to nodes that do"),
    _key("cluster.sessionTimeout", "cluster.session_ms", duration(2 * _SECOND, 600 * _SECOND),
         "MQUEUE_SESSION_TIMEOUT",
         "after so long without a word from it others take over what it delivers; it speaks every second"),
    _key("cluster.redisAddrs", "cluster.redis.addresses", PLACES, "MQUEUE_REDIS_ADDRS REDIS_ADDRS",
         "Redis, for copies and wake-ups, `host:port`, commas between several, also of a Redis Cluster; none: the"
         " cluster does without"),
    _key("cluster.redisUsername", "cluster.redis.username", optional(TEXT), "MQUEUE_REDIS_USERNAME REDIS_USERNAME",
         "whom Redis knows us as"),
    _secret("cluster.redisPassword", "cluster.redis.password", optional(SECRET),
            "MQUEUE_REDIS_PASSWORD REDIS_PASSWORD", "the password for it"),
    _key("cluster.redisSentinel", "cluster.redis.sentinel", optional(NAME), "MQUEUE_REDIS_SENTINEL REDIS_SENTINEL",
         "what Sentinels call the master; then the addresses are those of Sentinels"),
    _key("cluster.redisTls", "cluster.redis.tls", FLAG, "MQUEUE_REDIS_TLS", "TLS to Redis"),
    _key("cluster.redisCaFile", "cluster.redis.ca_file", optional(FILE), "MQUEUE_REDIS_CA_FILE",
         "authorities (PEM) that its certificate is checked with; none: those of the machine"),
    _key("cluster.walDir", "cluster.wal_dir", optional(PATH), "MQUEUE_WAL_DIR WAL_DIR",
         "a log of the node's own, for messages published with durability `wal`; it needs Redis; none: not offered"),
    _key("cluster.bufferTtl", "cluster.buffer_ttl_ms", duration(_SECOND, 86_400 * _SECOND),
         "MQUEUE_BUFFER_TTL BUFFER_TTL", "how long Redis keeps copies of what PostgreSQL has"),
    _key("cluster.maxBufferLength", "cluster.buffer_length_max", whole(1, 100_000_000),
         "MQUEUE_MAX_BUFFER_LENGTH MAX_BUFFER_LENGTH",
         "messages for one shard that may wait at a node to be written; more are refused"),
    _key("cluster.maxBufferBytes", "cluster.buffer_bytes_max", size(MIB), "MQUEUE_MAX_BUFFER_BYTES",
         "the same in bytes"),
)  # fmt: skip

PARTS: dict[str, tuple[Key, ...]] = {
    "broker": _BROKER,
    "server": _SERVER,
    "storage": _STORAGE,
    "limits": _LIMITS,
    "security": _SECURITY,
    "quotas": _QUOTAS,
    "defaults": _DEFAULTS,
    "logging": _LOGGING,
    "metrics": _METRICS,
    "telemetry": _TELEMETRY,
    "dashboard": _DASHBOARD,
    "lake": _LAKE,
    "cluster": _CLUSTERED,
}
KEYS: dict[str, Key] = {key.path: key for part in PARTS.values() for key in part}
SECRET_FILES: dict[str, Key] = {f"{key.path}File": key for key in KEYS.values() if key.secret}
BRANCHES = frozenset(path[:dot] for path in KEYS for dot in range(len(path)) if path[dot] == ".")
