"""One namespace of a server as one client sees it: what is asked goes out under its name, and comes back as structs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from mqueue.client.address import Address
from mqueue.client.line import Line, Reply, Request, Untaken
from mqueue.model.errors import Corrupt, NotFound, TooLarge

if TYPE_CHECKING:
    from mqueue.client.telemetry import ClientSpans

T = TypeVar("T")

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"

_ENCODER = msgspec.json.Encoder()


class Window:
    """The line is shared with the windows of other namespaces. `spans`: whom to tell of calls; None: nobody."""

    def __init__(self, line: Line, address: Address, namespace: str, spans: ClientSpans | None = None) -> None:
        self.line = line
        self.address = address
        self.namespace = namespace
        self.spans = spans
        self._headers = {"X-Mqueue-Namespace": namespace}
        if address.name:
            self._headers["X-Mqueue-Consumer"] = quote(address.name)

    async def ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        *,
        repeatable: bool | None = None,
        wait_ms: int = 0,
        everywhere: bool = False,
        stopped: asyncio.Event | None = None,
    ) -> T:
        """The answer as `kind`. What only reads, or sets what is to be, may be asked twice."""
        return parsed(
            kind,
            await self.send(
                method,
                path,
                body,
                query,
                repeatable=repeatable,
                wait_ms=wait_ms,
                everywhere=everywhere,
                stopped=stopped,
            ),
        )

    async def tell(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> None:
        """Ask for something that has no answer but that it is done."""
        await self.send(method, path, body, query)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        *,
        arrow: bytes | None = None,
        accept: str = JSON,
        repeatable: bool | None = None,
        wait_ms: int = 0,
        everywhere: bool = False,
        stopped: asyncio.Event | None = None,
        untaken: Untaken | None = None,
    ) -> Reply:
        """`everywhere`: it is asked for no namespace."""
        request = self.request(
            method,
            path,
            body,
            query,
            arrow=arrow,
            accept=accept,
            repeatable=repeatable,
            wait_ms=wait_ms,
            everywhere=everywhere,
        )
        try:
            return await self.line.send(request, stopped, untaken)
        except TooLarge as error:
            if error.code != "body_too_large":
                raise
            raise TooLarge(f"the call is too large to be sent: {error.message}", code="call_too_large") from None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        *,
        arrow: bytes | None = None,
        accept: str = JSON,
        repeatable: bool | None = None,
        wait_ms: int = 0,
        everywhere: bool = False,
    ) -> Request:
        """Names of the query that are None are left out."""
        headers = {**({} if everywhere else self._headers), "Accept": accept}
        if self.spans is not None:
            headers |= self.spans.carried()
        data = b""
        if arrow is not None:
            data, headers["Content-Type"] = arrow, ARROW
        elif body is not None:
            data, headers["Content-Type"] = _written(body), JSON
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return Request(
            method,
            f"{path}?{urlencode(given)}" if given else path,
            data,
            headers,
            method in ("GET", "PUT") if repeatable is None else repeatable,
            wait_ms,
        )


def message_path(id: int, *names: str) -> str:
    """The path of a message. What cannot be an id is none of a message that is there."""
    if not 0 <= id < 1 << 63:
        raise NotFound(f"message {id} is not there: it never was, or retention has dropped it")
    return path_of("messages", id, *names)


def _written(body: Any) -> bytes:
    return body if isinstance(body, bytes) else _ENCODER.encode(body)


def path_of(*names: object) -> str:
    """`/v1/topics/orders/groups/g`: names of ours as they are, those of users escaped."""
    return "/v1/" + "/".join(quote(str(name), safe="") for name in names)


def parsed(kind: type[T], reply: Reply) -> T:
    try:
        wanted: Any = kind
        found: T = _decoder(wanted).decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the answer of {len(reply.body)} bytes cannot be read: {error}", applied=None) from error
    return found


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
