"""Faces besides HTTP: other ways in, that speak the protocols of others on ports of their own.

A face is made of the calls of `AsyncBroker` alone, so it works over every store: in one process the broker itself is
behind them, in a cluster a client of the node that the face belongs to, which sends each call where it belongs. A face
finds out who calls (`Footing.door`) and asks for each right itself (`Principal.demand`): what stands behind it trusts
it. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mqueue.broker.aio import AsyncBroker
from mqueue.model.clock import Clock
from mqueue.model.limits import Limits
from mqueue.server.http.service import Bounds, Door
from mqueue.server.security.tls import ServerTls

if TYPE_CHECKING:
    from mqueue.server.metrics.page import Page


class Footing(Struct, frozen=True):
    """What a face stands on."""

    broker: Callable[[str], AsyncBroker]
    """The calls of one namespace. Belongs to the loop of the server, as everything here."""
    door: Door
    clock: Clock
    limits: Limits
    bounds: Bounds
    tls: ServerTls | None
    page: Page | None
    """The metrics, where a face may register its own; None: they are off."""
    stopping: asyncio.Event
    """Set when the server has been told to stop."""


def is_here(broker: object) -> bool:
    """Whether the calls of a namespace are made in this process: then each begins at once, in the order of the calls,
    where those to a broker elsewhere may overtake each other."""
    return isinstance(broker, AsyncBroker)


class Face(Protocol):
    """One that listens."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Let nobody in any more, tell those who are there, give back what they hold, and end within
        `Bounds.drain_timeout_ms`."""


class OpenFace(Protocol):
    """How a face begins: `mqueue.server.<face>.face.open_face`."""

    async def __call__(self, footing: Footing, host: str, port: int) -> Face:
        """Listen; port 0 is a free one. Raises OSError where that cannot be."""
