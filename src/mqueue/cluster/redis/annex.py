"""What an estate has in Redis: copies of frames that its server has, and a voice to wake other nodes.

    <prefix>:frame:<server>:<topic id>:<partition>:<base>    a frame as it was appended
        "MQC1", u32 crc of the rest, u32 topic, u32 partition, i64 base, i64 base id, u32 count, u32 length of the head,
        head, body. Little-endian; CRC-32C.

A copy is believed only if it is exactly the frame that is asked for: the same ids at the same place. Ids are given
once, also after a server was restored from a backup, and topics that are made again have another number. So whatever
Redis lost, kept too long or got back, a frame that is found there is the one that the server has.

`server` is in every key since servers count their topics each for itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import google_crc32c

from mqueue.cluster.redis.line import Away, Line
from mqueue.cluster.redis.outbox import Copy, Outbox
from mqueue.cluster.redis.wake import Wake
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.tape import Place

_MAGIC = b"MQC1"
_FRONT = struct.Struct("<4sI")
_REST = struct.Struct("<IIqqII")
_FRAME_BYTES_MAX = 8 << 20
"""A larger frame is not worth it."""


class Annex:
    """May be asked by any thread. `ttl_ms`: how long copies of frames are kept."""

    def __init__(self, line: Line, outbox: Outbox, server: str, ttl_ms: int) -> None:
        self._line = line
        self._outbox = outbox
        self._server = server
        self._ttl_ms = ttl_ms
        self.found = 0
        """Frames that need not be read from the server."""
        self.missed = 0

    # Frames

    def keep(self, arrivals: Sequence[Arrival]) -> None:
        """These were appended just now; others may want to read them soon."""
        worth = [arrival for arrival in arrivals if arrival.body and len(arrival.body) <= _FRAME_BYTES_MAX]
        if worth:
            self._outbox.offer(lambda: self._copies(worth), sum(len(arrival.body) for arrival in worth))

    def _copies(self, arrivals: Sequence[Arrival]) -> Iterator[Copy]:
        for arrival in arrivals:
            yield self._key(arrival.topic, arrival.partition, arrival.base), packed(arrival), self._ttl_ms

    def find(self, topic: int, partition: int, places: Sequence[Place]) -> dict[int, tuple[bytes, bytes]]:
        """(head, body) of those frames that are here, by their bases."""
        whole = [place for place in places if place.origin == place.base]
        if not whole or self._line.is_away:
            return {}
        keys = [self._key(topic, partition, place.base) for place in whole]
        try:
            values: list[Any] = self._line.do(lambda client: client.mget(keys))
        except Away:
            return {}
        found = {}
        for place, value in zip(whole, values, strict=True):
            pieces = None if value is None else unpacked(value, topic, partition, place)
            if pieces is not None:
                found[place.base] = pieces
        self.found += len(found)
        self.missed += len(whole) - len(found)
        return found

    def _key(self, topic: int, partition: int, base: int) -> bytes:
        return self._line.key("frame", self._server.encode(), topic, partition, base)

    # Wake-ups

    def wake(self, vshard: int, arrivals: Sequence[Arrival], otherwise: Callable[[], None]) -> None:
        """Tell whoever delivers from a virtual shard that there is something; `otherwise` if that cannot be."""
        ends: dict[tuple[int, int], int] = {}
        for arrival in arrivals:
            place = (arrival.topic, arrival.partition)
            ends[place] = max(ends.get(place, 0), arrival.base + arrival.count)
        news = tuple((topic, partition, end) for (topic, partition), end in ends.items())
        self._outbox.wake(Wake(self._server, vshard, news).packed(), otherwise)


def packed(arrival: Arrival) -> bytes:
    """A frame as a copy."""
    front = _REST.pack(arrival.topic, arrival.partition, arrival.base, arrival.id, arrival.count, len(arrival.head))
    rest = b"".join((front, arrival.head, arrival.body))
    return _FRONT.pack(_MAGIC, google_crc32c.value(rest)) + rest


def unpacked(data: bytes, topic: int, partition: int, place: Place) -> tuple[bytes, bytes] | None:
    """(head, body) of a copy; None if it is not exactly what is asked for."""
    start = _FRONT.size + _REST.size
    if len(data) < start:
        return None
    magic, crc = _FRONT.unpack_from(data)
    if magic != _MAGIC or google_crc32c.value(data[_FRONT.size :]) != crc:
        return None
    *told, length = _REST.unpack_from(data, _FRONT.size)
    if told != [topic, partition, place.base, place.id, place.count]:
        return None
    return data[start : start + length], data[start + length :]
