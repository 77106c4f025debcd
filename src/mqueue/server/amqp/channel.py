"""A channel: what is on its way in, what was handed out and is not settled, and its modes.

Frames are read by the connection, in order; a message is whole when its last body frame is there. What was handed out
is known by its delivery tag until it is settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from mqueue.broker.message import AsyncMessage
from mqueue.server.amqp import frames
from mqueue.server.amqp.consuming import Consumer
from mqueue.server.amqp.drafting import Publication
from mqueue.server.amqp.errors import (
    FRAME_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    Fault,
)
from mqueue.server.amqp.tables import short_text

if TYPE_CHECKING:
    from mqueue.server.amqp.connection import Connection


_ASIDE_BYTES = 256
"""About what it takes to remember one publish or settlement."""


class Delivered(Struct, frozen=True, gc=False):
    """A message that a client has. `consumer` None: it was got. `size`: bytes, with its properties."""

    message: AsyncMessage
    queue: str
    consumer: Consumer | None
    size: int


class Settling(Struct, frozen=True, gc=False):
    """An ack, a nack or a reject, as it came."""

    channel: Channel
    method: int
    tag: int
    bits: int


class Channel:
    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.consumers: dict[str, Consumer] = {}
        self.unsettled: dict[int, Delivered] = {}
        self.got_one_by_one = 0
        """So many of these were asked for: they do not count as prefetched."""
        self.prefetch = 0
        """Of all its consumers together; 0: no limit."""
        self.consumer_prefetch = 0
        """Of each consumer that is to come."""
        self.flowing = True
        self.closing = False
        """We have closed it, and wait until the client knows."""
        self.closed = False
        self.confirming = False
        self.published = 0
        """So many messages were published since it confirms."""
        self.transaction: tuple[list[Publication], list[Settling]] | None = None
        self._aside = 0
        """Bytes of what waits for its commit."""
        self.last_queue = ""
        self.reply_queue = ""
        """Where answers come that are sent straight to this channel."""
        self._tag = 0
        self._begun: tuple[str, str, bool] | None = None
        self._raw = b""
        self._size = 0
        self._missing = -1
        """Bytes of the body that are to come; -1: the header is."""
        self._pieces: list[bytes] = []
        self._partial = 0
        """Bytes of a message that is not whole."""

    # In

    def begin(self, payload: bytes) -> None:
        """A publish."""
        self.check_whole("a publish")
        exchange, key, mandatory, immediate = frames.read_publish(payload)
        if immediate:
            raise Fault(
                NOT_IMPLEMENTED, "immediate: nobody promises that a message is delivered at once", frames.PUBLISH
            )
        self._begun = exchange, key, mandatory
        self._missing = -1

    def header(self, payload: bytes, bytes_max: int) -> Publication | None:
        """What was published, if that is all of it."""
        if self._begun is None or self._missing >= 0:
            raise Fault(UNEXPECTED_FRAME, "a content header, and no publish before it")
        kind, size = frames.read_header(payload)
        if kind != frames.BASIC:
            raise Fault(FRAME_ERROR, f"a content header of class {kind}; there is {frames.BASIC}")
        if size > bytes_max:
            self._begun = None
            raise Fault(
                PRECONDITION_FAILED,
                f"message size {size} is larger than configured max size {bytes_max}",
                frames.PUBLISH,
            )
        self._raw, self._size, self._missing = payload[12:], size, size
        if not size:
            return self._whole(b"")
        self._hold(len(self._raw))
        return None

    def body(self, payload: bytes) -> Publication | None:
        if self._begun is None or self._missing < 0:
            raise Fault(UNEXPECTED_FRAME, "a body, and no content header before it")
        size = len(payload)
        if size > self._missing:
            raise Fault(FRAME_ERROR, f"a body that is {size - self._missing} bytes longer than its header says")
        if size == self._size:
            return self._whole(payload)
        self._missing -= size
        self._pieces.append(payload)
        self._hold(size)
        if self._missing:
            return None
        body = b"".join(self._pieces)
        self._pieces = []
        return self._whole(body)

    def _hold(self, size: int) -> None:
        self._partial += size
        self.connection.hold(size)

    def _whole(self, body: bytes) -> Publication:
        assert self._begun is not None
        exchange, key, mandatory = self._begun
        self._begun = None
        self._hold(-self._partial)
        return Publication(exchange, key, self._raw, body, mandatory)

    def check_whole(self, what: str) -> None:
        """Raises Fault where something comes in the middle of a message."""
        if self._begun is not None:
            raise Fault(UNEXPECTED_FRAME, f"{what}, and a message before it is not whole")

    def drop_partial(self) -> None:
        """Forget a message that is not whole, and what is not committed."""
        self.connection.hold(-self._partial - self._aside)
        self._begun, self._pieces, self._partial, self._aside = None, [], 0, 0
        if self.transaction is not None:
            self.transaction = [], []

    # Out

    @property
    def shared_room(self) -> int:
        """What is left of the prefetch of all its consumers, if it has one."""
        return self.prefetch - len(self.unsettled) + self.got_one_by_one

    @property
    def open_for_delivery(self) -> bool:
        return self.flowing and not self.closing and not self.closed and self.connection.takes_more

    def deliver(
        self, consumer: Consumer, queue: str, message: AsyncMessage, again: bool, address: bytes, raw: bytes
    ) -> None:
        """Hand a message to a consumer. It is sent with the next flush."""
        tag = self._tag = self._tag + 1
        connection, body = self.connection, message.payload
        if not consumer.no_ack:
            size = len(body) + len(raw)
            self.unsettled[tag] = Delivered(message, queue, consumer, size)
            consumer.held += 1
            connection.handed += size
        consumer.deliveries.write(connection.out, tag, again, address, raw, body)

    def got(self, queue: str, message: AsyncMessage, no_ack: bool, raw: bytes) -> int:
        """The tag of a message that was asked for."""
        tag = self._tag = self._tag + 1
        if not no_ack:
            size = len(message.payload) + len(raw)
            self.unsettled[tag] = Delivered(message, queue, None, size)
            self.got_one_by_one += 1
            self.connection.handed += size
        return tag

    def cancelled(self, consumer: Consumer) -> None:
        """The queue of a consumer is gone: the client is told, if it wants to know."""
        if self.consumers.pop(consumer.tag, None) is not None and self.connection.wants_cancels:
            name = short_text(consumer.tag)
            self.connection.send(frames.named(self.number, frames.CANCEL, name, b"\x01"))

    # Settle

    def puts_aside(self, publication: Publication | None = None, settling: Settling | None = None) -> bool:
        """Whether something waits for the commit of this channel. Raises Fault where too much does."""
        if self.transaction is None:
            return False
        published, settlings = self.transaction
        size = _ASIDE_BYTES
        if publication is not None:
            published.append(publication)
            size += publication.size
        if settling is not None:
            settlings.append(settling)
        self._aside += size
        self.connection.hold(size)
        return True

    def taken_aside(self) -> tuple[list[Publication], list[Settling]]:
        """What waits for the commit; from now on nothing does. Raises Fault."""
        if self.transaction is None:
            raise Fault(PRECONDITION_FAILED, "channel is not transactional")
        found, self.transaction = self.transaction, ([], [])
        size, self._aside = self._aside, 0
        self.connection.hold(-size)
        return found

    def taken(self, tag: int) -> Delivered | None:
        """Take out one message, if it is there."""
        found = self.unsettled.pop(tag, None)
        if found is not None:
            self._free(found)
        return found

    def settled(self, tag: int, multiple: bool) -> Iterator[Delivered]:
        """Take out what a tag stands for: one, all up to it, or all. Raises Fault for one that is unknown."""
        unsettled = self.unsettled
        if not multiple:
            found = self.taken(tag)
            if found is None:
                raise Fault(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
            yield found
            return
        if tag > self._tag:
            raise Fault(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        most = tag or self._tag
        for number in list(unsettled):
            if number > most:
                break
            found = unsettled.pop(number)
            self._free(found)
            yield found

    def _free(self, delivered: Delivered) -> None:
        self.connection.handed -= delivered.size
        if delivered.consumer is not None:
            delivered.consumer.held -= 1
        else:
            self.got_one_by_one -= 1
