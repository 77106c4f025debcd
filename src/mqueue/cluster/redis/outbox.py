"""What a node sends to Redis without waiting for it: copies and wake-ups, by one thread, in the order they came.

Copies are dropped when too much waits, or when Redis is away. A wake-up that cannot be sent goes another way. What
there is to send is worked out in the thread: whoever hands it in has somebody else waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct
from redis import Redis

from mqueue.cluster.redis.line import Away, Line

LOGGER = logging.getLogger("mqueue.cluster")

Copy: TypeAlias = tuple[bytes, bytes, int]
"""Key, value, and for how many milliseconds."""

WAITING_BYTES_MAX = 64 << 20
_TRIP_BYTES = 4 << 20
"""What is sent before an answer is waited for."""
_TRIP_COMMANDS = 1_000


class _Letter(Struct):
    copies: Callable[[], Iterable[Copy]]
    size: int


class _Call(Struct):
    message: bytes
    otherwise: Callable[[], None]


class Outbox:
    def __init__(self, line: Line, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._line = line
        self._channel = line.key("wake")
        self._bytes_max = bytes_max
        self._waiting: list[_Letter | _Call] = []
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._busy = False
        self.sent = 0
        """Copies that Redis took."""
        self.dropped = 0
        """Times that copies were not sent."""
        self._thread = threading.Thread(target=self._live, name="mqueue-redis-out", daemon=True)
        if line.configured:
            self._thread.start()

    def offer(self, copies: Callable[[], Iterable[Copy]], size: int) -> None:
        """Something that is worth a copy. `copies` is called by the thread; `size` is about what they weigh."""
        if self._line.is_away:
            self.dropped += self._line.configured
            return
        with self._changed:
            if self._bytes + size > self._bytes_max:
                self.dropped += 1
                return
            self._bytes += size
            self._waiting.append(_Letter(copies, size))
            self._changed.notify_all()

    def wake(self, message: bytes, otherwise: Callable[[], None]) -> None:
        """Tell all nodes; `otherwise` is called if Redis cannot."""
        if self._line.is_away:
            otherwise()
            return
        with self._changed:
            self._waiting.append(_Call(message, otherwise))
            self._changed.notify_all()

    def settled(self, seconds: float) -> bool:
        """Wait until everything was sent; False: that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        while self._wait():
            with self._changed:
                waiting, self._waiting = self._waiting, []
            self._send(waiting)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._busy = not self._closing
            return self._busy

    def _send(self, waiting: Sequence[_Letter | _Call]) -> None:
        trip = _Trip()
        for item in waiting:
            if isinstance(item, _Call):
                trip.calls.append(item)
            else:
                trip.add(_copies(item))
                with self._changed:
                    self._bytes -= item.size
            if trip.is_full:
                self._go(trip)
                trip = _Trip()
        self._go(trip)

    def _go(self, trip: _Trip) -> None:
        if not trip.copies and not trip.calls:
            return
        try:
            self._line.do(lambda client: trip.run(client, self._channel))
            self.sent += len(trip.copies)
        except Away:
            self.dropped += bool(trip.copies)
            for call in trip.calls:
                call.otherwise()


class _Trip:
    """What is sent at once. Copies go first: who is woken looks for them."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.calls: list[_Call] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes > _TRIP_BYTES or len(self.copies) + len(self.calls) >= _TRIP_COMMANDS

    def add(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            self.copies.append(copy)
            self._bytes += len(copy[1])

    def run(self, client: Redis, channel: bytes) -> None:
        with client.pipeline(transaction=False) as pipe:
            for key, value, ms in self.copies:
                pipe.set(key, value, px=max(1, ms))
            for message in dict.fromkeys(call.message for call in self.calls):
                pipe.publish(channel, message)
            pipe.execute()


def _copies(letter: _Letter) -> list[Copy]:
    """A copy that cannot be made is one that is missing."""
    try:
        return list(letter.copies())
    except Exception:
        LOGGER.exception("copies for Redis could not be made")
        return []
