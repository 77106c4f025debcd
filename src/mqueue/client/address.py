"""Where a server is and how a client shows up there: what was typed, parsed and checked once. Nodes of a cluster are as
good as each other, so several addresses may be given: as a list, or in one text with commas between them.

The token is a secret: it is in no `repr` and in no sentence of ours. Opens no connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from mqueue.model.errors import BadSetting
from mqueue.model.names import check_consumer, check_name
from mqueue.model.times import Duration, duration_ms
from mqueue.wire.tls import client_context

PathLike: TypeAlias = str | os.PathLike[str]

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_MS_MAX = 3_600_000
URLS_MAX = 64
ENCODINGS = ("json", "arrow")

_GIVE = f"give one such as {DEFAULT_URL}"
_PORTS = {"http": 80, "https": 443}


class Address(Struct, frozen=True):
    """`urls` have no slash at their ends; `timeout_ms` is how long a call may take, waiting apart."""

    urls: tuple[str, ...]
    token: str | None
    name: str
    timeout_ms: int
    encoding: str
    retry: bool
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"<Address {self.url}{' with a token' if self.token else ''}>"

    @property
    def url(self) -> str:
        """All of them, as they could be typed."""
        return ",".join(self.urls)


def address_of(
    url: str | Sequence[str],
    token: str | None,
    name: str,
    timeout: Duration,
    ca: PathLike | None,
    cert: PathLike | tuple[PathLike, PathLike] | None,
    encoding: str,
    retry: bool,
) -> Address:
    timeout_ms = duration_ms(timeout, "timeout")
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        raise BadSetting(f"timeout {timeout!r:.80}; it takes more than 0 and at most {TIMEOUT_MS_MAX} ms")
    if encoding not in ENCODINGS:
        raise BadSetting(f"encoding {encoding!r:.80}; it takes one of {', '.join(ENCODINGS)}")
    if type(retry) is not bool:
        raise BadSetting(f"retry {retry!r:.80}; it takes true or false")
    urls = _urls(url)
    return Address(
        urls,
        _token(token),
        check_consumer(name),
        timeout_ms,
        encoding,
        retry,
        _tls(urls[0].startswith("https:"), ca, cert),
    )


def namespace_of(name: str) -> str:
    return check_name(name, "namespace")


def _urls(given: Any) -> tuple[str, ...]:
    several = given.split(",") if type(given) is str else given
    if not isinstance(several, list | tuple):
        raise BadSetting(f"url is {type(given).__name__}; {_GIVE}")
    if not 1 <= len(several) <= URLS_MAX:
        raise BadSetting(f"{len(several)} urls; it takes 1 to {URLS_MAX}; {_GIVE}")
    urls = tuple(dict.fromkeys(_url(url.strip() if type(url) is str else url) for url in several))
    if len({url.partition(":")[0] for url in urls}) > 1:
        raise BadSetting("some of the urls are http and some https; they have to be the same")
    return urls


def _url(url: Any) -> str:
    """What is refused is not shown: it may hold a password."""
    if type(url) is not str:
        raise BadSetting(f"url is {type(url).__name__}; {_GIVE}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadSetting(f"the url cannot be read; {_GIVE}") from error
    if parts.scheme not in _PORTS or not host:
        raise BadSetting(f"url {parts.scheme[:20]}:…: it takes http or https and a host; {_GIVE}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise BadSetting(f"url {parts.scheme}:…: it takes no user, query or fragment; a token is given by token=")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadSetting(f"url {parts.scheme}:…: it takes printable ASCII; {_GIVE}")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{port or _PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def _token(token: Any) -> str | None:
    if token is None or (type(token) is str and token and token.isascii() and token.isprintable() and " " not in token):
        return token
    raise BadSetting("token: it takes printable ASCII text without spaces (the one given is not shown)")


def _tls(secure: bool, ca: PathLike | None, cert: PathLike | tuple[PathLike, PathLike] | None) -> ssl.SSLContext | None:
    if not secure:
        if ca is not None or cert is not None:
            raise BadSetting("ca or cert is given, but the url is not https")
        return None
    files = () if cert is None else cert if isinstance(cert, tuple) else (cert,)
    identity = b"\n".join(_read(file, "cert") for file in files) if files else None
    return client_context(None if ca is None else _read(ca, "ca"), identity)


def _read(file: Any, what: str) -> bytes:
    if not isinstance(file, str | os.PathLike):
        raise BadSetting(f"{what} {file!r:.80}; it takes the name of a PEM file, or for cert also (certificate, key)")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadSetting(f"{what} {os.fspath(file)!r:.200} cannot be read: {error.strerror}") from error
