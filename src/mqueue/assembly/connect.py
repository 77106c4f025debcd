"""Which broker or client a URL stands for."""

from __future__ import annotations

import os
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.broker import Broker
from mqueue.model.errors import BadSetting

if TYPE_CHECKING:
    from mqueue.client.aio import AsyncClient
    from mqueue.client.sync import Client

URL_VARIABLE = "MQUEUE_URL"
TOKEN_VARIABLE = "MQUEUE_TOKEN"  # noqa: S105 - the name of a variable
NAMESPACE_VARIABLE = "MQUEUE_NAMESPACE"

_SCHEMES = "memory:, file:, http:, https:"
_GIVE = (
    "give 'memory:' for a broker inside this process, 'file:./data' for one that keeps what it has on disk, or"
    " 'http://127.0.0.1:8080' for a server"
)


def connect(url: str | None = None, **settings: Any) -> Broker | Client:
    """The broker or client that a URL stands for, or `MQUEUE_URL` where none is given. Settings are those of `Broker`
    or `Client`; a client also looks for `MQUEUE_TOKEN` and `MQUEUE_NAMESPACE`."""
    given = _given(url)
    if is_remote(given):
        from mqueue.client.sync import Client

        return Client(given, **_with_variables(settings))
    return Broker(path_of(given), **settings)


def connect_async(url: str | None = None, **settings: Any) -> Connecting:
    """The same for event loops: `q = await connect_async()`, or `async with connect_async() as q`."""
    return Connecting(url, settings)


class Connecting:
    """A connection about to be made: by `await`, or by `async with`, which also closes it."""

    def __init__(self, url: str | None, settings: dict[str, Any]) -> None:
        given = _given(url)
        self._path: str | None = None
        self._settings = settings
        self._made: AsyncBroker | AsyncClient | None = None
        if is_remote(given):
            from mqueue.client.aio import AsyncClient

            self._made = AsyncClient(given, **_with_variables(settings))
        else:
            self._path = path_of(given)

    def __await__(self) -> Generator[Any, None, AsyncBroker | AsyncClient]:
        return self._connected().__await__()

    async def __aenter__(self) -> AsyncBroker | AsyncClient:
        return await self._connected()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.close()

    async def _connected(self) -> AsyncBroker | AsyncClient:
        if self._made is None:
            self._made = AsyncBroker(self._path, **self._settings)
        return self._made


def _given(url: str | None) -> str:
    given = url if url is not None else os.environ.get(URL_VARIABLE, "")
    if not given:
        raise BadSetting(f"no url was given and {URL_VARIABLE} is not set; {_GIVE}")
    return given


def is_remote(url: str | None) -> bool:
    """Whether a URL, or the one of the environment, stands for a server."""
    return _given(url).partition(":")[0].lower() in ("http", "https")


def _with_variables(settings: dict[str, Any]) -> dict[str, Any]:
    """What a client is told, and where it is told nothing, what the environment says."""
    found = {"token": os.environ.get(TOKEN_VARIABLE), "namespace": os.environ.get(NAMESPACE_VARIABLE)}
    return {**{name: value for name, value in found.items() if value}, **settings}


def path_of(url: str) -> str | None:
    """Where a URL says that the messages lie; None: in memory. Of one that is refused only the scheme is shown, because
    the rest may hold a password."""
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or scheme not in ("memory", "file"):
        shown = f"{scheme[:20]}:…" if colon else "without a scheme"
        raise BadSetting(f"url {shown}: the schemes are {_SCHEMES}; {_GIVE}")
    if scheme == "memory":
        if rest:
            raise BadSetting("url memory:…: nothing follows the colon; settings are given by keyword")
        return None
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if path.startswith("//") and len(path) > 2:
        raise BadSetting("url file:…: a host cannot be named; give 'file:./data' or 'file:///var/lib/mqueue'")
    if not path.strip("/"):
        raise BadSetting("url file:: no directory is named; give 'file:./data' or 'file:///var/lib/mqueue'")
    return path
