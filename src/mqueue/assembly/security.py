"""From the configuration to the door of a server: which proofs count, and what its TLS is.

Reads the files that the configuration names. Everything here can be read again while the server runs.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from mqueue.assembly.telemetry import header_pairs
from mqueue.config import Config, Data, Secret, Security
from mqueue.config.servers import passwords
from mqueue.model.errors import BadSetting
from mqueue.server.security.certificates import (
    CERTIFICATE_NAME,
    KEY_NAME,
    Pair,
    check_pair,
    read_pair,
    self_signed,
    write_pair,
)
from mqueue.server.security.gatekeeper import Rules
from mqueue.server.security.keys import Keys
from mqueue.server.security.peers import Limit, Proxies, RateLimit, check_bind, is_local
from mqueue.server.security.signing import AlgorithmName, VerifyKey, key_from_secret, keys_from_jwks
from mqueue.server.security.tls import ServerTls
from mqueue.server.security.tokens import Verifier
from mqueue.wire.tls import client_context

TLS_DIR = "tls"
"""Where a self-signed certificate lies, below the data directory."""
_FILE_BYTES_MAX = 1 << 20
_KEY_SET = "the key set for tokens"


def rules_of(
    security: Security,
    keys: Keys | None,
    earlier: Rules | None = None,
    limited: Callable[[int, int], Limit] = RateLimit,
) -> Rules:
    """What counts as a proof. What a rate limit has counted so far goes on to count where the limit stays the same.
    `limited` makes one of calls a second, and so many at once."""
    return Rules(
        tokens=verifier_of(security) if "jwt" in security.auth else None,
        keys=keys,
        clients=security.tls.clients,
        proxies=Proxies(security.trusted_proxies),
        rate=_rate_of(security, earlier, limited),
        anybody=not security.auth and not security.tls.clients,
    )


def verifier_of(security: Security) -> Verifier:
    jwt = security.jwt
    return Verifier(
        tuple(_verify_keys(security)),
        jwt.issuer,
        jwt.audience,
        cast(tuple[AlgorithmName, ...], jwt.algorithms),
        leeway_seconds=jwt.leeway_ms // 1000,
        lifetime_seconds_max=jwt.lifetime_max_ms // 1000,
    )


def tls_of(config: Config, now: int) -> ServerTls | None:
    """None: the line is not encrypted."""
    tls = config.security.tls
    if not tls.on:
        return None
    client_ca = None if tls.client_ca_file is None else _read(tls.client_ca_file, "the authority of clients")
    return ServerTls(pair_of(config.security) or _own_pair(config.data, now), now, client_ca)


def nodes_tls(config: Config) -> ssl.SSLContext | None:
    """For lines to other nodes. Where clients have to show a certificate, a node shows the one it has as a server."""
    tls, ca_file = config.security.tls, config.cluster.ca_file
    if not tls.on and ca_file is None:
        return None
    ca = None if ca_file is None else _read(ca_file, "the authority of other nodes")
    pair = pair_of(config.security) if tls.client_ca_file else None
    return client_context(ca, None if pair is None else pair.key + b"\n" + pair.certificate)


def pair_of(security: Security) -> Pair | None:
    """The certificate and its key as they lie there now; None where there are no files."""
    tls = security.tls
    if tls.cert_file is None or tls.key_file is None:
        return None
    return read_pair(Path(tls.cert_file), Path(tls.key_file))


def check_address(config: Config) -> None:
    """BadSetting for an address that others can reach while there is no lock on the door."""
    security = config.security
    known = bool(security.auth or security.tls.client_ca_file)
    check_bind(config.server.http.host.lower(), known, security.tls.on, security.public_bind)


def is_private(config: Config) -> bool:
    """Whether everybody is let in because only this machine can call."""
    security = config.security
    known = security.auth or security.tls.client_ca_file or security.public_bind
    return not known and is_local(config.server.http.host.lower())


def secrets_of(config: Config) -> list[str]:
    """What must never be written anywhere."""
    security, cluster = config.security, config.cluster
    found = (security.jwt.secret, security.jwt.previous_secret, security.keys_pepper, cluster.redis.password)
    secrets = [secret.reveal() for secret in found if secret is not None]
    secrets += [value for _, value in header_pairs(config.telemetry)]
    return secrets + [text for url in cluster.databases for text in passwords(url.reveal())]


def material_of(security: Security) -> tuple[Pair | None, bytes]:
    """What lies in the files that the configuration names, to see whether it is another by now."""
    jwks = security.jwt.jwks_file
    return pair_of(security), b"" if jwks is None else _read(jwks, _KEY_SET)


def _own_pair(data: Data, now: int) -> Pair:
    """Self-signed. Kept beside the data, so that whoever was told to trust it need not be told at every start."""
    if data.memory:
        return self_signed(now)
    place = Path(data.dir) / TLS_DIR
    with suppress(BadSetting):  # it is not there, or it is not its time any more
        return check_pair(read_pair(place / CERTIFICATE_NAME, place / KEY_NAME), now)
    pair = self_signed(now)
    write_pair(pair, place)
    return pair


def _verify_keys(security: Security) -> Iterator[VerifyKey]:
    jwt = security.jwt
    for secret in (jwt.secret, jwt.previous_secret):
        if secret is not None:
            yield key_from_secret(_bytes(secret))
    if jwt.jwks_file is not None:
        yield from keys_from_jwks(_read(jwt.jwks_file, _KEY_SET))


def _rate_of(security: Security, earlier: Rules | None, limited: Callable[[int, int], Limit]) -> Limit | None:
    limit = security.rate_limit
    if limit.per_second is None:
        return None
    if earlier is not None and earlier.rate is not None and earlier.rate.is_same(limit.per_second, limit.burst):
        return earlier.rate
    return limited(limit.per_second, limit.burst)


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode()


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadSetting(f"{what} ({path}) cannot be read: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise BadSetting(f"{what} ({path}) has more than {_FILE_BYTES_MAX} bytes; {_FILE_BYTES_MAX} are allowed")
    return data
