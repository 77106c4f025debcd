"""A connection: bytes in, bytes out, how it begins and how it ends. What a client does in between is its `Session`.

Nobody sends more than is taken: while too much waits to be done nothing is read, while the client does not read nothing
is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from pamqp import commands
from pamqp.base import Frame

from mqueue.model.errors import Error
from mqueue.model.limits import MIB
from mqueue.server.amqp import frames, greeting
from mqueue.server.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    FRAME_ERROR,
    NOT_ALLOWED,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
    Fault,
    fault_of,
)
from mqueue.server.amqp.frames import HEARTBEAT, METHOD
from mqueue.server.amqp.names import namespace_of
from mqueue.server.amqp.rights import Rights
from mqueue.server.amqp.session import Session

if TYPE_CHECKING:
    from mqueue.server.amqp.face import AmqpFace
    from mqueue.server.amqp.vhost import Vhost

LOGGER = logging.getLogger("mqueue.amqp")

HELD_BYTES_MAX = 64 * MIB
"""Of messages that are not whole yet, or not committed, on all channels."""
WRITE_BYTES_MAX = MIB
"""If more than this was not taken by the client nothing more is delivered."""
ANSWERS_BYTES_MAX = 16 * MIB
"""If more than this was not taken nothing more is done for the client, nor read: answers are as long as it likes."""
HANDED_BYTES_MAX = 128 * MIB
"""Of messages that the client has and has not settled. If it has more than this nothing more is delivered."""
_HEARTBEATS_MISSED = 2


class Connection(asyncio.Protocol):
    """`state`: greeting → login → tuning → opening → entering → open → closing → closed."""

    _transport: asyncio.Transport

    def __init__(self, face: AmqpFace) -> None:
        self._face = face
        self._loop = asyncio.get_running_loop()
        self._splitter = frames.Splitter(greeting.FRAME_MAX)
        self._state = "greeting"
        self._begun = b""
        self.name = secrets.token_hex(8)
        self._peer = ""
        self._rights: Rights | None = None
        self._session: Session | None = None
        self._agreed = greeting.Agreed(greeting.CHANNELS_MAX, greeting.FRAME_MAX, 0)
        self.out: list[bytes] = []
        """To be sent with the next flush."""
        self.writable = True
        self._relieved = asyncio.Event()
        self._relieved.set()
        self.handed = 0
        """Bytes of messages that the client has and has not settled."""
        self.wants_cancels = False
        self._began_at = self._heard_at = self._said_at = self._loop.time()
        self._held = 0
        self._paused = False

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        if not self._face.admit(self):
            self.end()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            if self._state == "greeting":
                data = self._greeted(data)
            incoming = self._splitter.feed(data)
            if self._session is None:
                for kind, number, payload in incoming:
                    self.frame(kind, number, payload)
            else:
                self._session.take(incoming)
        except Fault as fault:
            self.fail(fault)
        except Exception as error:
            LOGGER.exception("a connection ends")
            self.fail(fault_of(error))
        if self._session is not None:
            self._session.go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._state = "closed"
        self.writable = False
        self._relieved.set()
        self._face.dismiss(self)
        if self._session is not None:
            self._session.end(drop=False)

    def pause_writing(self) -> None:
        self.writable = False
        self._relieved.clear()

    def resume_writing(self) -> None:
        self.writable = True
        self._relieved.set()
        if self._session is not None:
            self._session.ring()
            self._session.go_on()

    def pause(self, full: bool) -> None:
        """Read nothing for now, or go on."""
        if full != self._paused and not self._transport.is_closing():
            self._paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._heard_at = self._loop.time()  # until now it could not be heard
                self._transport.resume_reading()

    def hold(self, size: int) -> None:
        """So many bytes more of messages that are not whole, or not committed. Raises Fault."""
        self._held += size
        if self._held > HELD_BYTES_MAX:
            raise Fault(RESOURCE_ERROR, f"more than {HELD_BYTES_MAX} bytes of messages are not whole, or not committed")

    # Out

    @property
    def takes_more(self) -> bool:
        """Whether the client reads, and has not more in hand than it may."""
        return self.writable and not self.laden

    @property
    def laden(self) -> bool:
        """Whether the client has as much in hand as it may."""
        return self.handed >= HANDED_BYTES_MAX

    @property
    def choked(self) -> bool:
        """Whether the client takes no answers."""
        return not self._relieved.is_set() and self._transport.get_write_buffer_size() > ANSWERS_BYTES_MAX

    async def relieved(self) -> None:
        """Until it has taken them, or is gone."""
        await self._relieved.wait()

    @property
    def frame_max(self) -> int:
        return self._agreed.frame_max

    def say(self, number: int, told: Frame) -> None:
        self.send(frames.method(number, told))

    def send(self, data: bytes) -> None:
        self.out.append(data)
        self.flush()

    def flush(self) -> None:
        if self.out:
            out, self.out = self.out, []
            if not self._transport.is_closing():
                self._said_at = self._loop.time()
                self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # In

    def _greeted(self, data: bytes) -> bytes:
        """The first eight bytes, and what follows them. Who speaks another protocol is told ours."""
        begun = self._begun = self._begun + data
        if len(begun) < len(frames.GREETING) and frames.GREETING.startswith(begun):
            return b""
        if not begun.startswith(frames.GREETING):
            self.send(frames.GREETING)
            self.end()
            return b""
        self._state = "login"
        self.say(0, greeting.start(self._certificate() is not None))
        return begun[len(frames.GREETING) :]

    def frame(self, kind: int, number: int, payload: bytes) -> None:
        """A frame of the connection itself, or of a channel that there is not. Raises Fault."""
        if self._state == "closed":
            return
        if kind == HEARTBEAT:
            if number or payload:
                raise Fault(FRAME_ERROR, "a heartbeat that is none")
        elif not number:
            self._on_zero(kind, payload)
        elif self._state == "open":
            assert self._session is not None, "it is open since there is one"
            self._session.begin(number, kind, payload)
        elif self._state != "closing":
            raise Fault(CHANNEL_ERROR, f"a frame for channel {number}, and the connection is not open yet")

    def _on_zero(self, kind: int, payload: bytes) -> None:
        if kind != METHOD:
            raise Fault(UNEXPECTED_FRAME, f"a frame of type {kind} on channel 0")
        told = frames.method_of(payload)
        if isinstance(told, commands.Connection.Close):
            self._part()
        elif isinstance(told, commands.Connection.CloseOk):
            self.end()
        elif self._state == "closing":
            return
        elif self._state == "login" and isinstance(told, commands.Connection.StartOk):
            self._log_in(told)
        elif self._state == "tuning" and isinstance(told, commands.Connection.TuneOk):
            self._agreed = greeting.agree(told)
            self._splitter.frame_max = self._agreed.frame_max
            self._state = "opening"
        elif self._state == "opening" and isinstance(told, commands.Connection.Open):
            self._open(told)
        elif self._state == "open" and isinstance(told, commands.Connection.UpdateSecret):
            self._renew(told)
        else:
            raise Fault(COMMAND_INVALID, f"{told.name} is not expected now", told.index)

    # How it begins

    def _log_in(self, told: commands.Connection.StartOk) -> None:
        given = told.client_properties.get("capabilities")
        can = given if isinstance(given, dict) else {}
        self.wants_cancels = bool(can.get("consumer_cancel_notify"))
        proof = greeting.proof_of(told.mechanism, told.response)
        try:
            self._rights = self._face.enter(proof, self._peer, self._certificate())
        except Error as error:
            if not can.get("authentication_failure_close"):
                self.end()
                return
            why = f"Login was refused using authentication mechanism {told.mechanism}: {error.message}"
            raise Fault(ACCESS_REFUSED, why, told.index) from error
        self._state = "tuning"
        self.say(0, greeting.tune())

    def _open(self, told: commands.Connection.Open) -> None:
        assert self._rights is not None
        try:
            namespace = namespace_of(told.virtual_host)
            self._rights.enter(namespace)
        except Error as error:
            why = f"access to vhost {told.virtual_host!r:.80} refused: {error.message}"
            raise Fault(NOT_ALLOWED, why, told.index) from error
        self._state = "entering"
        self.later(self._enter(namespace, self._rights))

    async def _enter(self, namespace: str, rights: Rights) -> None:
        try:
            vhost = await self._face.vhost(namespace)
        except Exception as error:
            self.fail(fault_of(error))
            return
        if self._state == "entering":
            self._session = Session(self, vhost, rights, self._agreed.channels_max)
            self._state = "open"
            self.say(0, commands.Connection.OpenOk())

    def _renew(self, told: commands.Connection.UpdateSecret) -> None:
        """A new token in place of one that ends."""
        assert self._rights is not None
        try:
            self._rights.prove(greeting.proof_of("PLAIN", f"\0\0{told.new_secret}"))
        except Error as error:
            raise Fault(ACCESS_REFUSED, error.message, told.index) from error
        self.say(0, commands.Connection.UpdateSecretOk())

    def _certificate(self) -> bytes | None:
        secured = self._transport.get_extra_info("ssl_object")
        found: bytes | None = None if secured is None else secured.getpeercert(True)
        return found

    @property
    def vhost(self) -> Vhost | None:
        """Where it is, once it has been let in."""
        return None if self._session is None else self._session.vhost

    # How it goes on, and ends

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that is done though nobody waits for it."""
        self._face.later(work)

    def beat(self, now: float, patience: float) -> None:
        """Called now and then: be heard of, and see whether the client is still there."""
        seconds = self._agreed.heartbeat_seconds
        if self._state == "closing":
            if now - self._said_at > patience:
                self._transport.abort()
        elif self._state != "open":
            if now - self._began_at > patience:
                self.end()
        elif seconds:
            if now - self._heard_at > seconds * _HEARTBEATS_MISSED and not self._paused:
                LOGGER.info("nothing was heard of %s for %s seconds", self._peer, round(now - self._heard_at))
                self._transport.abort()
            elif now - self._said_at >= seconds / 2 and self.writable:
                self.send(frames.PULSE)

    def _part(self) -> None:
        """The client wants to end it: what it sent before is done first."""
        if self._session is None or self._state != "open":
            self._bid_farewell()
        else:
            self._state, self._said_at = "closing", self._loop.time()
            self._session.go_on()
            self.later(self._finish(self._session))

    async def _finish(self, session: Session) -> None:
        await session.finish()
        self._bid_farewell()

    def _bid_farewell(self) -> None:
        self.say(0, commands.Connection.CloseOk())
        self.end()

    def prove(self) -> None:
        """Called now and then: a proof that does not hold any more ends the connection."""
        if self._rights is not None and self._state == "open":
            try:
                self._rights.renew()
            except Error as error:
                self.fail(Fault(CONNECTION_FORCED, f"the credentials do not hold any more: {error.message}"))

    def fail(self, fault: Fault) -> None:
        """The connection ends, and the client is told why."""
        if self._state in ("closing", "closed"):
            return
        told = commands.Connection.Close(fault.code, "", fault.method >> 16, fault.method & 0xFFFF)
        told.reply_text = fault.text
        self._state = "closing"
        self._face.counts.faults += 1
        self.say(0, told)
        if self._session is not None:
            self._session.end(drop=True)

    def end(self) -> None:
        """What was said is sent, and that is it."""
        self._state = "closed"
        self.flush()
        self._transport.close()
