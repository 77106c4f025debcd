"""Wake-ups: a node that published tells all nodes over one channel, and whoever delivers that looks for himself.

    channel <prefix>:wake    msgpack [server, virtual shard, [[topic id, partition, end], …]]

Nothing is believed but that it may be worth a look. A wake-up that is lost costs the second until the next look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from redis.exceptions import RedisError

from mqueue.cluster.redis.line import AWAY_SECONDS, Away, Line

LOGGER = logging.getLogger("mqueue.cluster")

_SILENCE_SECONDS = 1.0
_SILENCES_MAX = 5
"""So often nothing may come, not even the answer to a ping."""


_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Offset = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """Something was appended to topics of a virtual shard: `news` are (topic, partition, end)."""

    server: str
    vshard: _Number
    news: tuple[tuple[_Number, _Number, _Offset], ...]

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self)


_WAKE = msgspec.msgpack.Decoder(Wake)


def _channel(client: Any) -> Any:
    return client.pubsub()


class Ear:
    """Listens, in a thread. `heard` is called there; it may not wait for anything."""

    def __init__(self, line: Line, heard: Callable[[Wake], None]) -> None:
        self._line = line
        self._heard = heard
        self._closing = threading.Event()
        self.listens = threading.Event()
        """While it is subscribed."""
        self._thread = threading.Thread(target=self._live, name="mqueue-redis-in", daemon=True)

    def start(self) -> None:
        if self._line.configured:
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            with suppress(Away):  # a word that means nothing to anybody: our own thread need not wait for the next one
                self._line.do(lambda client: client.publish(self._line.key("wake"), b""))
            self._thread.join()

    def _live(self) -> None:
        while not self._closing.is_set():
            try:
                with self._line.do(_channel) as channel:
                    self._listen(channel)
            except (Away, RedisError, OSError):  # the line itself is judged by those who ask something
                self.listens.clear()
                self._closing.wait(AWAY_SECONDS)

    def _listen(self, channel: Any) -> None:
        channel.subscribe(self._line.key("wake"))
        silences = 0
        while not self._closing.is_set():
            message = channel.get_message(timeout=_SILENCE_SECONDS)
            if message is None:
                silences += 1
                if silences > _SILENCES_MAX or self._line.is_away:
                    raise Away("nobody speaks")
                channel.ping()
                continue
            silences = 0
            if message["type"] == "subscribe":
                self.listens.set()
            elif message["type"] == "message":
                self._hear(message["data"])

    def _hear(self, data: bytes) -> None:
        try:
            wake = _WAKE.decode(data)
        except msgspec.DecodeError:
            return  # whoever said that is none of ours
        self._heard(wake)
