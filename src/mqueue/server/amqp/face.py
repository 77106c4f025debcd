"""Where clients of RabbitMQ connect: the socket, the connections, and what is done for all of them now and then.

Stands on the calls of `AsyncBroker`, one namespace for each virtual host.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from mqueue.model.errors import Error
from mqueue.server.amqp.connection import Connection
from mqueue.server.amqp.errors import CONNECTION_FORCED, Fault
from mqueue.server.amqp.numbers import AmqpCollector, Counts
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.vhost import GOT_LASTS_SECONDS, Vhost
from mqueue.server.faces import Face, Footing
from mqueue.server.http.keepalive import keep_alive

LOGGER = logging.getLogger("mqueue.amqp")

_BACKLOG = 4096
_BEAT_SECONDS = 1.0
_FOLLOW_SECONDS = 0.5
"""So often the catalogs are looked at: what another node has changed is seen within a second."""
_FORGET_SECONDS = 60.0
"""A namespace in which there is nobody and nothing is followed for so long."""
_PROOF_SECONDS = 10.0
"""So often it is asked whether what a client logged in with still holds."""

Duty = Callable[[], Coroutine[Any, Any, None]]


async def open_face(footing: Footing, host: str, port: int) -> Face:
    """Listen; port 0 is a free one. Raises OSError where that cannot be."""
    face = AmqpFace(footing)
    await face.listen(host, port)
    return face


class AmqpFace:
    def __init__(self, footing: Footing) -> None:
        self.footing = footing
        self._node = secrets.token_hex(8)
        self._connections: set[Connection] = set()
        self.counts = Counts()
        self._vhosts: dict[str, asyncio.Task[Vhost]] = {}
        self._seen: dict[str, float] = {}
        """By namespace: when somebody entered it or left it last."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._duties: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._closing = False

    async def listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        tls, patience = self.footing.tls, self.footing.bounds.headers_timeout_ms / 1000
        self._server = await loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=None if tls is None else tls.context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if tls is None else patience,
        )
        for listening in self._server.sockets:
            keep_alive(listening.fileno())
        if self.footing.page is not None:
            self.footing.page.registry.register(AmqpCollector(lambda: len(self._connections), self.counts))
        rounds = ((_BEAT_SECONDS, self._beat), (_FOLLOW_SECONDS, self._follow), (GOT_LASTS_SECONDS / 3, self._keep))
        self._duties = [
            loop.create_task(self._again(seconds, duty), name="mqueue-amqp-duty")
            for seconds, duty in (*rounds, (_PROOF_SECONDS, self._prove))
        ]

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Let nobody in any more, tell those who are there, and give back what they hold."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        for duty in self._duties:
            duty.cancel()
        for connection in list(self._connections):
            connection.fail(Fault(CONNECTION_FORCED, "the server is told to stop"))
        loop = asyncio.get_running_loop()
        until = loop.time() + self.footing.bounds.drain_timeout_ms / 1000
        while self._tasks and loop.time() < until:  # one may leave another behind
            await asyncio.wait(self._tasks, timeout=until - loop.time())
        for connection in list(self._connections):
            connection.end()
        for vhost in self._vhosts.values():
            if vhost.done() and not vhost.cancelled() and vhost.exception() is None:
                await vhost.result().close()

    # What connections need

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        if self._closing or len(self._connections) >= self.footing.bounds.connections_max:
            return False
        self._connections.add(connection)
        return True

    def dismiss(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.vhost is not None:
            self._seen[connection.vhost.namespace] = asyncio.get_running_loop().time()

    def enter(self, proof: dict[str, str], peer: str, certificate: bytes | None) -> Rights:
        """Who it is. Raises Unauthorized or QuotaExceeded."""
        door, clock = self.footing.door, self.footing.clock
        principal = door.caller(proof, peer, certificate, clock.now())
        return Rights(door, clock, principal, proof, peer, certificate)

    async def vhost(self, namespace: str) -> Vhost:
        """Shared by all who are in it; its catalog has been read."""
        self._seen[namespace] = asyncio.get_running_loop().time()
        task = self._vhosts.get(namespace)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._vhosts[namespace] = self.later(self._made(namespace))
        return await asyncio.shield(task)

    async def _made(self, namespace: str) -> Vhost:
        footing = self.footing
        vhost = Vhost(namespace, footing.broker(namespace), footing.clock, footing.limits, self._node, self.counts)
        await vhost.catalog.catch_up()
        vhost.undertaker.look()
        return vhost

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Something that is done though nobody waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOGGER.warning("something was left undone: %s", task.exception())

    # Now and then

    async def _again(self, seconds: float, duty: Duty) -> None:
        while True:
            await asyncio.sleep(seconds)
            await _attempt(duty)

    async def _beat(self) -> None:
        now = asyncio.get_running_loop().time()
        patience = self.footing.bounds.headers_timeout_ms / 1000
        for connection in list(self._connections):
            connection.beat(now, patience)

    async def _follow(self) -> None:
        self._forget()
        await asyncio.gather(*(_attempt(vhost.run_once) for vhost in self._open()))

    def _forget(self) -> None:
        """Who looks into many namespaces, and makes nothing there, leaves nothing behind here."""
        before = asyncio.get_running_loop().time() - _FORGET_SECONDS
        inhabited = {connection.vhost for connection in self._connections}
        for vhost in self._open():
            if self._seen[vhost.namespace] < before and vhost not in inhabited and vhost.idle:
                del self._vhosts[vhost.namespace], self._seen[vhost.namespace]

    async def _keep(self) -> None:
        await asyncio.gather(*(_attempt(vhost.keep_gotten) for vhost in self._open()))

    async def _prove(self) -> None:
        for connection in list(self._connections):
            connection.prove()

    def _open(self) -> list[Vhost]:
        made = (task for task in self._vhosts.values() if task.done() and not task.cancelled())
        return [task.result() for task in made if task.exception() is None]


async def _attempt(duty: Duty) -> None:
    """What goes wrong in one namespace is no trouble of another: it is done again with the next round."""
    try:
        await duty()
    except Error as error:
        LOGGER.warning("it is tried again: %s", error)
    except Exception:
        LOGGER.exception("it is tried again")
