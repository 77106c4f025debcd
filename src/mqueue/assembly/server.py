"""A server from its configuration: broker, door, routes and listener, put together, started, changed and stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from mqueue.assembly.administration import administrator_of
from mqueue.assembly.faces import Faces
from mqueue.assembly.security import check_address, is_private, material_of, pair_of, rules_of, tls_of
from mqueue.assembly.telemetry import Exporting, exporting_of
from mqueue.broker import backstage
from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import behind
from mqueue.config import Address, Config
from mqueue.model.clock import Clock, SystemClock
from mqueue.model.errors import BadSetting, Unavailable
from mqueue.model.settings import describe
from mqueue.server.administration import Administrator
from mqueue.server.faces import Footing
from mqueue.server.forwarding.voucher import Voucher
from mqueue.server.http.app import App
from mqueue.server.http.dashboard import assets
from mqueue.server.http.listen import Listener
from mqueue.server.http.routes import Route, Routes
from mqueue.server.http.service import Bounds, Service
from mqueue.server.http.sqs.actions import ACTIONS
from mqueue.server.http.tables import TABLE
from mqueue.server.http.watching import Watch
from mqueue.server.logs import write_audit
from mqueue.server.metrics.page import Page, Vitals
from mqueue.server.metrics.requests import Requests
from mqueue.server.overview.local import LocalOverview
from mqueue.server.overview.sampler import Sampler, counts_of
from mqueue.server.overview.vitals import LocalVitals
from mqueue.server.placing.joining import Joining, no_time
from mqueue.server.security.audit import Audit
from mqueue.server.security.gatekeeper import Gatekeeper
from mqueue.server.security.peers import Limit, RateLimit
from mqueue.server.security.tls import ServerTls
from mqueue.server.told import told_calls
from mqueue.wire.arrow import warm_up

if TYPE_CHECKING:
    from mqueue.assembly.clustered import Approach, Membership


class Serving:
    """A server that runs in the loop it is started in. `config` is what holds at present."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._limited: Callable[[int, int], Limit] = RateLimit
        self._door = Gatekeeper(rules_of(config.security, None), Audit(write_audit))
        self._material = material_of(config.security)
        self._tls: ServerTls | None = None
        self._administrator: Administrator | None = None
        self._broker: AsyncBroker | None = None
        self._listener: Listener | None = None
        self._service: Service | None = None
        self._known: Approach | None = None
        self._node: Membership | None = None
        self._given_clock = clock
        self._faces = Faces()
        self._exporting: Exporting | None = None
        self._sampler: Sampler | None = None

    async def start(self) -> Address:
        """Where it listens for HTTP, with the port that it got; `addresses` has all."""
        check_address(self.config)
        warm_up()
        self._broker = _broker(self.config, self._clock)
        try:
            backstage.bound_answers(self._behind)
            _look_back(self.config, self._behind)
            self._tls = tls_of(self.config, self._clock.now())
            self._exporting = exporting_of(self.config)
            if self.config.cluster.databases:
                self._known = await asyncio.to_thread(_clustered().approach, self.config)
            self._listener = await self._listen(self._broker)
            if self._known is not None:
                await self._join(self._known)
            if self.config.dashboard.enabled and self._sampler is not None:
                self._sampler.start()
            await self._faces.open(self.config, self._footing())
        except BaseException:
            await self.stop()
            raise
        return Address(self.config.server.http.host, self._listener.port)

    async def stop(self) -> None:
        """Take nothing more, finish what is under way, and close the broker. Whoever holds a lease keeps it."""
        if self._service is not None:
            self._service.stopping.set()
            await self._service.end_errands()
        try:
            await self._faces.close()
        finally:  # what a face could not end keeps nobody's leases and locks
            await self._leave()

    async def _leave(self) -> None:
        """The second half of a stop: nobody asks any more but by HTTP."""
        if self._sampler is not None:
            await self._sampler.close()
        if self._node is not None:
            self._node.let_go()
        if self._listener is not None:
            await self._listener.close()
        if self._node is not None:
            await self._node.end()
        if self._known is not None:
            self._known.link.close()
        if self._broker is not None:
            await self._behind.close_keeping_leases()
        if self._exporting is not None:
            await asyncio.to_thread(self._exporting.close)

    async def _join(self, known: Approach) -> None:
        assert self._service is not None
        assert self._listener is not None
        assert self._administrator is not None
        scheme = "http" if self._tls is None else "https"
        listened = f"{scheme}://{Address(self.config.server.http.host, self._listener.port)}"
        address = self.config.cluster.address or listened
        app = self._listener.connections.app
        self._node = await _clustered().join(
            self.config, app, self._behind, known, self._administrator, address, self._given_clock
        )
        self._service.calls = self._node.calls
        assert self._sampler is not None
        self._node.show(self._service, self._sampler)
        self._limited = self._node.limited
        self._door.rules = rules_of(self.config.security, self._door.rules.keys, limited=self._limited)

    def _footing(self) -> Footing:
        assert self._service is not None
        service = self._service
        return Footing(
            told_calls(service),
            self._door,
            self._clock,
            self.config.limits,
            service.bounds,
            self._tls,
            service.page,
            service.stopping,
        )

    @property
    def addresses(self) -> dict[str, Address]:
        """Where it listens, by the name of the listener."""
        assert self._listener is not None
        return {"http": Address(self.config.server.http.host, self._listener.port), **self._faces.addresses}

    @property
    def poison(self) -> str:
        """Why only a new start can help; empty while all is well."""
        return backstage.trouble(self._behind) if backstage.is_poisoned(self._behind) else ""

    def reload(self, config: Config) -> list[str]:
        """Take over what can be changed while it runs: what tokens are signed with, certificates, clients, proxies, the
        rate limit, quotas. Names the parts that differ and wait for a start. Raises BadSetting; then all is as it was.
        """
        assert self._administrator is not None
        taken = _merged(self.config, config)
        material = material_of(taken.security)
        if taken.security != self.config.security or material != self._material:
            rules = rules_of(taken.security, self._door.rules.keys, self._door.rules, self._limited)
            pair = pair_of(taken.security)
            if self._tls is not None and pair is not None:
                self._tls.reload(pair, self._clock.now())
            self._door.rules = rules
        self._administrator.configure(taken.quotas.namespaces, taken.quotas.default)
        self.config, self._material = taken, material
        return [name for name in Config.__struct_fields__ if getattr(taken, name) != getattr(config, name)]

    @property
    def _behind(self) -> LoopBroker:
        found: LoopBroker = behind(self._broker)
        return found

    async def _listen(self, broker: AsyncBroker) -> Listener:
        config = self.config
        table = _table(config)
        requests = Requests((route.method, route.path) for route in (*table, *ACTIONS.values()))
        service = self._service = Service(broker, self._door, self._clock, _bounds(config))
        service.loop = asyncio.get_running_loop()
        service.local = is_private(config)
        service.telemetry = None if self._exporting is None else self._exporting.spans
        service.secure = self._tls is not None
        known = self._known
        shared = None if known is None else known.shelf
        service.administration = self._administrator = await asyncio.to_thread(
            administrator_of, config, self._behind, self._clock, self._door, shared
        )
        if known is not None:
            service.places, service.voucher = Joining(), Voucher(known.secret, no_time)
        self._sampler = Sampler(counts_of(self._behind), self._clock)
        service.overview = LocalOverview(self._sampler)
        listener = await _open(App(service, Routes(table), Watch(requests)), config.server.http, self._tls)
        where = f"{'http' if self._tls is None else 'https'}://{Address(config.server.http.host, listener.port)}"
        connections = listener.connections
        service.vitals = LocalVitals(self._behind, where, self._clock.now(), lambda: len(connections))
        if config.metrics.enabled:
            service.page = self._page(requests, listener)
            if self._exporting is not None:
                service.page.registry.register(self._exporting.outbox)
            backstage.measure(self._behind, service.page.commits)
        return listener

    def _page(self, requests: Requests, listener: Listener) -> Page:
        config = self.config
        vitals = Vitals(
            version("mqueue"),
            config.data.node or os.uname().nodename,
            self._clock.now(),
            lambda: len(listener.connections),
            config.server.connections_max,
            self._door.refusals,
        )
        return Page(self._behind, self._clock, requests, vitals, config.metrics.topics_max, config.metrics.interval_ms)


def _clustered() -> ModuleType:
    """Only who is a node of a cluster loads what that needs."""
    try:
        from mqueue.assembly import clustered
    except ModuleNotFoundError as error:
        raise BadSetting(f"a cluster needs {error.name}: pip install 'mqueue[cluster]'") from None
    return clustered


async def _open(app: App, address: Address, tls: ServerTls | None) -> Listener:
    try:
        return await Listener.open(app, address.host, address.port, None if tls is None else tls.context)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Unavailable(f"{address} cannot be listened on: {why}", code="cannot_listen") from error


def _merged(old: Config, new: Config) -> Config:
    """The new configuration, as far as it can be taken over."""
    security, fresh = old.security, new.security
    tls = security.tls
    if tls.cert_file is not None and fresh.tls.cert_file is not None:
        tls = replace(tls, cert_file=fresh.tls.cert_file, key_file=fresh.tls.key_file)
    if tls.clients and fresh.tls.clients:  # without any, others would be let in than before
        tls = replace(tls, clients=fresh.tls.clients)
    return replace(
        old,
        quotas=new.quotas,
        logging=replace(old.logging, level=new.logging.level),
        security=replace(
            security,
            jwt=fresh.jwt,
            tls=tls,
            trusted_proxies=fresh.trusted_proxies,
            rate_limit=fresh.rate_limit,
        ),
    )


def _table(config: Config) -> tuple[Route, ...]:
    """All routes; that of the metrics without a lock, and no dashboard, where the configuration says so."""
    table = TABLE
    if config.metrics.public:
        table = tuple(replace(route, place="open") if route.path == "/metrics" else route for route in table)
    if not config.dashboard.enabled:
        table = (*(route for route in table if route not in assets.ROUTES), assets.NO_DASHBOARD)
    return table


def _broker(config: Config, clock: Clock) -> AsyncBroker:
    data = config.data
    in_memory = data.memory or bool(config.cluster.databases)
    return AsyncBroker(
        None if in_memory else data.dir,
        clock=clock,
        limits=config.limits,
        storage=None if in_memory else data.storage,
        **describe(config.topic),
    )


def _look_back(config: Config, broker: LoopBroker) -> None:
    """Only who has a lake loads what reads it."""
    if config.lake.url is not None:
        from mqueue.lake.archive import LakeArchive

        backstage.look_back(broker, LakeArchive(config.lake.url, config.lake.format))


def _bounds(config: Config) -> Bounds:
    given = asdict(config.server)
    return Bounds(**{name: given[name] for name in Bounds.__struct_fields__ if name in given})
