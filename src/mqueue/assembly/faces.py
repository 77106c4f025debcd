"""The faces of a server besides HTTP: opened once it stands, closed before it goes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from typing import cast

from mqueue.config import Address, Config
from mqueue.model.errors import Unavailable
from mqueue.server.faces import Face, Footing, OpenFace

LOGGER = logging.getLogger("mqueue.server")
MODULES: Mapping[str, str] = {"grpc": "mqueue.server.flight.face", "amqp": "mqueue.server.amqp.face"}
"""Where each begins, by the name of its listener; loaded only where it listens."""


class Faces:
    """Those that listen. `addresses`: where, by name."""

    def __init__(self) -> None:
        self.addresses: dict[str, Address] = {}
        self._open = AsyncExitStack()

    async def open(self, config: Config, footing: Footing) -> None:
        """Raises Unavailable where one that was asked for cannot listen; one that is only there by default may lack."""
        for name, module in MODULES.items():
            address: Address | None = getattr(config.server, name)
            if address is not None:
                await self._begin(name, cast("OpenFace", import_module(module).open_face), footing, address)

    async def _begin(self, name: str, open_face: OpenFace, footing: Footing, address: Address) -> None:
        try:
            face: Face = await open_face(footing, address.host, address.port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            if address.asked_for:
                raise Unavailable(f"{address} cannot be listened on: {why}", code="cannot_listen") from error
            LOGGER.warning("%s is off: %s cannot be listened on: %s", name, address, why)
            return
        self._open.push_async_callback(face.close)
        self.addresses[name] = Address(address.host, face.port)

    async def close(self) -> None:
        await self._open.aclose()
