"""A server from its configuration: broker, door, routes and listener, put together, started and stopped."""

from __future__ import annotations

import logging

from msgspec.structs import asdict

from mqueue.broker.aio import AsyncBroker
from mqueue.config import Address, Config
from mqueue.model.clock import Clock, SystemClock
from mqueue.model.settings import describe
from mqueue.server.http.app import App
from mqueue.server.http.listen import Listener
from mqueue.server.http.routes import Routes
from mqueue.server.http.service import Bounds, Service
from mqueue.server.http.tables import TABLE
from mqueue.server.security.audit import Audit
from mqueue.server.security.gatekeeper import Gatekeeper, Rules

AUDIT = logging.getLogger("mqueue.audit")


class Serving:
    """A server that runs in the loop it is started in."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._broker: AsyncBroker | None = None
        self._listener: Listener | None = None

    async def start(self) -> Address:
        """Where it listens, with the port that it got."""
        config = self._config
        self._broker = _broker(config, self._clock)
        try:
            service = Service(self._broker, Gatekeeper(Rules(), Audit(AUDIT.info)), self._clock, _bounds(config))
            app = App(service, Routes(TABLE))
            self._listener = await Listener.open(app, config.server.http.host, config.server.http.port)
        except BaseException:
            await self._broker.close()
            raise
        return Address(config.server.http.host, self._listener.port)

    async def stop(self) -> None:
        """Take nothing more, finish what is under way, and close the broker."""
        if self._listener is not None:
            await self._listener.close()
        if self._broker is not None:
            await self._broker.close()


def _broker(config: Config, clock: Clock) -> AsyncBroker:
    data = config.data
    return AsyncBroker(
        None if data.memory else data.dir,
        clock=clock,
        quotas=config.quotas.namespaces,
        limits=config.limits,
        storage=None if data.memory else data.storage,
        **describe(config.topic),
    )


def _bounds(config: Config) -> Bounds:
    given = asdict(config.server)
    return Bounds(**{name: given[name] for name in Bounds.__struct_fields__ if name in given})
