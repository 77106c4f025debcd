"""The head of a forwarded request, and what comes through of the head of its answer.

What belongs to one connection ends there. Target and values go out as the bytes they came as.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mqueue.model.errors import Refused
from mqueue.server.forwarding.voucher import NAMESPACE, PEER, PRINCIPAL, VOUCHED, Voucher
from mqueue.server.http.answer import Headers
from mqueue.server.http.call import Call

FORWARDED = "x-mqueue-forwarded"

_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    )
)
_OURS = frozenset((FORWARDED, PRINCIPAL, PEER, VOUCHED))
_NOT_ON = _HOP | _OURS | {"host", "content-length", "expect", "origin"}
"""A body is whole when it goes on. Where a page stands was judged by the name that its browser called us by."""
_CREDENTIALS = frozenset(("authorization", "x-api-key"))
_NOT_BACK = _HOP | {"content-length", "content-type", "x-content-type-options"}


class Heads:
    """Makes the heads of what one node, called `name`, forwards."""

    def __init__(self, name: str, voucher: Voucher | None) -> None:
        self._name = name
        self._voucher = voucher
        self._left = _NOT_ON if voucher is None else _NOT_ON | _CREDENTIALS

    def request(self, call: Call, host: str, method: str) -> bytes:
        """Of a call as it came."""
        length = [("content-length", str(len(call.body)))] if call.body or method != "GET" else []
        return _head(method, call.target, host, (*length, *self.headers(call, call.headers, method, call.target)))

    def on_behalf(self, call: Call, host: str, target: str) -> bytes:
        """Of a POST without a body that this node makes for a caller."""
        headers = {name: value for name, value in call.headers.items() if name in _CREDENTIALS}
        headers[NAMESPACE] = call.namespace
        return _head("POST", target, host, (("content-length", "0"), *self.headers(call, headers, "POST", target)))

    def headers(self, call: Call, headers: Mapping[str, str], method: str, target: str) -> Iterator[tuple[str, str]]:
        """Those that go on, and ours. Credentials stay here if this node vouches for who brought them."""
        left = self._left
        if "connection" in headers:
            left |= {name.strip().lower() for name in headers["connection"].split(",")}
        for name, value in headers.items():
            if name in left or name.startswith("sec-"):
                continue
            if "\r" in value or "\n" in value:
                raise Refused(f"header {name!r:.80} goes on in another line", code="bad_http")
            yield name, value
        yield FORWARDED, self._name
        if self._voucher is not None:
            namespace = headers.get(NAMESPACE, "") if NAMESPACE not in left else ""
            yield from self._voucher.headers(call.principal, call.peer, namespace, method, target)


def _head(method: str, target: str, host: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def come_back(headers: Iterable[tuple[str, str]]) -> Headers:
    """What of an answer's headers is for the caller; the rest is said anew."""
    return tuple((name, value) for name, value in headers if name not in _NOT_BACK)
