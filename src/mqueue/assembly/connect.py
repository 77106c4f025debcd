"""Which broker or client a URL stands for."""

from __future__ import annotations

import os
from collections.abc import Generator
from types import TracebackType
from typing import Any

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.broker import Broker
from mqueue.model.errors import BadSetting

URL_VARIABLE = "MQUEUE_URL"

_LATER = {"http": "client for a server", "https": "client for a server"}
_SCHEMES = "memory:, file:, http:, https:"
_GIVE = "give 'memory:' for a broker inside this process, or 'file:./data' for one that keeps what it has on disk"


def connect(url: str | None = None, **settings: Any) -> Broker:
    """The broker that a URL stands for, or `MQUEUE_URL` where none is given. Settings are those of `Broker`."""
    return Broker(path_of(url), **settings)


def connect_async(url: str | None = None, **settings: Any) -> Connecting:
    """The same for event loops: `q = await connect_async()`, or `async with connect_async() as q`."""
    return Connecting(url, settings)


class Connecting:
    """A connection about to be made: by `await`, or by `async with`, which also closes it."""

    def __init__(self, url: str | None, settings: dict[str, Any]) -> None:
        self._path = path_of(url)
        self._settings = settings
        self._broker: AsyncBroker | None = None

    def __await__(self) -> Generator[Any, None, AsyncBroker]:
        return self._connected().__await__()

    async def __aenter__(self) -> AsyncBroker:
        return await self._connected()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._broker is not None:
            await self._broker.close()

    async def _connected(self) -> AsyncBroker:
        if self._broker is None:
            self._broker = AsyncBroker(self._path, **self._settings)
        return self._broker


def path_of(url: str | None) -> str | None:
    """Where a URL says that the messages lie; None: in memory. Of one that is refused only the scheme is shown, because
    the rest may hold a password."""
    given = url if url is not None else os.environ.get(URL_VARIABLE, "")
    if not given:
        raise BadSetting(f"no url was given and {URL_VARIABLE} is not set; {_GIVE}")
    scheme, colon, rest = given.partition(":")
    scheme = scheme.lower()
    if colon and scheme in _LATER:
        raise BadSetting(f"url {scheme}:…: this version has no {_LATER[scheme]}; {_GIVE}")
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
