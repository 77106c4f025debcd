"""What values must be to each other: secrets strong enough, TLS whole, nothing public that is not guarded.

Each check looks at the finished tree and answers with keys and sentences. No sentence shows a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from mqueue.config.tree import Address, Cluster, Config, Data, Jwt, Secret, Security
from mqueue.model.limits import FRAME_BYTES_MAX
from mqueue.server.security.peers import bind_allowed
from mqueue.server.security.signing import SECRET_BYTES_DISTINCT_MIN, SECRET_BYTES_MIN

Wrong: TypeAlias = Iterator[tuple[str, str]]

_SHARED = ("HS256",)
_PUBLIC = ("RS256", "ES256")
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - to refuse them
_MAKE_ONE = "make one with `openssl rand -base64 48`"


def resolve(config: Config) -> Config:
    """Put what follows from other values in the place of what was left open."""
    security, jwt = config.security, config.security.jwt
    auth: tuple[str, ...] | None = security.auth
    if auth is None:
        auth = ("jwt",) if jwt.secret or jwt.jwks_file else ()
    algorithms = jwt.algorithms or ()
    if "jwt" in auth and not algorithms:
        algorithms = _SHARED if jwt.secret else _PUBLIC
    return replace(config, security=replace(security, auth=auth, jwt=replace(jwt, algorithms=algorithms)))


def check(config: Config, unread: Collection[str] = ()) -> Wrong:
    """`unread`: keys whose values were bad. What hangs on them is not judged: that something is missing, which in
    truth is only misspelled, would be a second and false alarm."""
    yield from _strength(config.security)
    if not any(path.startswith("security.") for path in unread):
        yield from _secrets(config.security.jwt)
        yield from _ways_in(config)
        yield from _algorithms(config.security.jwt)
        yield from _tls(config)
        yield from _listeners(config)
    if not any(path.startswith(("limits.", "server.")) for path in unread):
        yield from _sizes(config)
    if not any(path.startswith(("cluster.", "broker.", "security.tls.")) for path in unread):
        yield from _cluster(config)
        yield from _redis(config.cluster)


def _strength(security: Security) -> Wrong:
    secrets = {
        "jwt.secret": security.jwt.secret,
        "jwt.previousSecret": security.jwt.previous_secret,
        "keys.pepper": security.keys_pepper,
    }
    for name, secret in secrets.items():
        if secret is not None and _is_weak(secret):
            yield f"security.{name}", f"is too weak: at least {SECRET_BYTES_MIN} bytes that nobody guesses; {_MAKE_ONE}"


def _is_weak(secret: Secret) -> bool:
    """Short, or of few signs: a word many times over is long and still a word."""
    data = secret.reveal().encode()
    return len(data) < SECRET_BYTES_MIN or len(set(data)) < SECRET_BYTES_DISTINCT_MIN


def _secrets(jwt: Jwt) -> Wrong:
    if jwt.previous_secret and not jwt.secret:
        yield "security.jwt.previousSecret", "is given, but no secret that follows it"
    if jwt.secret and jwt.jwks_file:
        yield (
            "security.jwt.jwksFile",
            "is given beside a secret: give one of them, or tokens could be signed by either",
        )


def _ways_in(config: Config) -> Wrong:
    security = config.security
    if "jwt" in security.auth and not (security.jwt.secret or security.jwt.jwks_file):
        yield (
            "security.auth",
            f"is jwt, but there is no secret (JWT_SECRET; {_MAKE_ONE}) and no security.jwt.jwksFile",
        )
    if "keys" in security.auth and config.data.memory:
        yield "security.auth", "is keys, but a broker in memory has no place to keep them: give it a data directory"
    if "keys" in security.auth and not security.keys_pepper:
        yield "security.auth", f"is keys, but there is no security.keys.pepper (MQUEUE_KEYS_PEPPER; {_MAKE_ONE})"


def _algorithms(jwt: Jwt) -> Wrong:
    """One family: whoever may choose between two can have a public key taken for a secret."""
    if jwt.secret and set(jwt.algorithms) & set(_PUBLIC):
        yield "security.jwt.algorithms", f"take only {', '.join(_SHARED)} with a secret"
    if jwt.jwks_file and not jwt.secret and set(jwt.algorithms) & set(_SHARED):
        yield "security.jwt.algorithms", f"take only {', '.join(_PUBLIC)} with public keys"


def _tls(config: Config) -> Wrong:
    tls = config.security.tls
    if tls.cert_file and not tls.key_file:
        yield "security.tls.certFile", "is given, but security.tls.keyFile is not"
    if tls.key_file and not tls.cert_file:
        yield "security.tls.keyFile", "is given, but security.tls.certFile is not"
    if tls.self_signed and tls.cert_file:
        yield "security.tls.selfSigned", "is true although there is a certificate: give one of them"
    if tls.client_ca_file and not tls.on:
        yield "security.tls.clientCaFile", "is given, but TLS is off: give a certificate"
    if tls.clients and not tls.client_ca_file:
        yield "security.tls.clients", "are given, but security.tls.clientCaFile is not: nobody could prove to be one"


def _listeners(config: Config) -> Wrong:
    security, taken = config.security, dict[Address, str]()
    known = bool(security.auth or security.tls.client_ca_file)
    for name in ("http", "grpc", "amqp"):
        address: Address | None = getattr(config.server, name)
        if address is None:
            continue
        path = f"broker.listeners.{name}"
        if not bind_allowed(address.host.lower(), known, security.tls.on, security.public_bind):
            yield (
                path,
                (
                    f"is {address}, open to the outside, and takes TLS and auth then (security.tls, security.auth);"
                    " where something in front of it does that, security.publicBind: true"
                ),
            )
        if address.port and address in taken:
            yield path, f"is {address}, as broker.listeners.{taken[address]} is"
        taken[address] = name


def _sizes(config: Config) -> Wrong:
    limits, body = config.limits, config.server.body_bytes_max
    message = limits.payload_bytes_max + limits.key_bytes_max + limits.headers_bytes_max
    if message >= FRAME_BYTES_MAX:
        yield (
            "limits.maxMessageSize",
            f"makes {message} bytes with key and headers; they take less than {FRAME_BYTES_MAX}",
        )
    if limits.call_bytes_max < message:
        yield "limits.maxCallSize", f"is less than one message may have, {message} bytes"
    if body * 3 < limits.payload_bytes_max * 4:
        yield "server.maxBodySize", "is less than the longest message takes as base64; lower limits.maxMessageSize too"


def _cluster(config: Config) -> Wrong:
    cluster, tls = config.cluster, config.security.tls
    if not cluster.databases:
        given = {"redisAddrs": cluster.redis.addresses, "address": cluster.address, "caFile": cluster.ca_file}
        for name, value in given.items():
            if value:
                yield (
                    f"cluster.{name}",
                    "is given, but cluster.databaseUrls (DATABASE_URLS) is not: there is no cluster",
                )
        return
    if config.data.memory or config.data.dir != Data().dir:
        path, what = ("storage", "is memory") if config.data.memory else ("dataDir", "is given")
        yield f"broker.{path}", f"{what} beside cluster.databaseUrls: messages lie in one place, so remove one of them"
    if cluster.address is None and config.server.http.host in _EVERYWHERE:
        yield (
            "cluster.address",
            f"is not given, and {config.server.http} tells other nodes nothing: name this machine as they see it,"
            " http://host:port",
        )
    if tls.on and (cluster.address or "https").startswith("http:"):
        yield "cluster.address", "begins with http://, but the server speaks TLS: https://"
    if tls.self_signed:
        yield "security.tls.selfSigned", "is true in a cluster, whose nodes check each other: give a certificate"


def _redis(cluster: Cluster) -> Wrong:
    redis = cluster.redis
    if cluster.wal_dir is not None and not (cluster.databases and redis.addresses):
        yield (
            "cluster.walDir",
            "is given, but cluster.redisAddrs (REDIS_ADDRS) is not: a log on one machine alone would be lost with it"
            if cluster.databases
            else "is given, but cluster.databaseUrls (DATABASE_URLS) is not: there is no cluster",
        )
    if redis.addresses:
        if redis.ca_file and not redis.tls:
            yield "cluster.redisCaFile", "is given, but cluster.redisTls is false"
        return
    # A password alone may be somebody else's: the name of its variable is everybody's.
    password = redis.password if cluster.databases else None
    given = {"Username": redis.username, "Password": password, "Sentinel": redis.sentinel}
    for name, value in (given | {"Tls": redis.tls, "CaFile": redis.ca_file}).items():
        if value:
            yield f"cluster.redis{name}", "is given, but cluster.redisAddrs (REDIS_ADDRS) is not"
