"""Frames of a range by the shortest way: pages are received into one buffer each, in the thread that works on them.

A task reads gigabytes, and the client's event loop would cost it as much as all the rest. So this asks by itself, over
two connections in turn: the next page is on its way while one is worked on. It knows the good case alone. Whatever else
happens, it leaves the rest to `Client.scan_frames`, which tries again and knows what went wrong.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from mqueue.client.address import Address, address_of
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.offsets import Range
from mqueue.wire.frame import Frame
from mqueue.wire.packed import FRAMES, unpack_all

PAGE_BYTES_MAX = 256 << 20


def frames(connection: Connection, asked: Range) -> Iterator[Frame]:
    """All frames of a range, in order, cut to it."""
    place = asked.start
    lanes = _lanes(connection)
    try:
        lanes[0].ask(asked, place)
        while True:
            page, next = lanes[0].page()
            if next is not None and next > place:
                lanes[1].ask(asked, next)
            found = unpack_all(page, asked.partition, place, asked.stop)
            if next is not None and next < (found[-1].stop if found else place + 1):
                break
            yield from found
            if next is None:
                return
            place = next
            lanes.reverse()
    except (_OtherCase, http.client.HTTPException, OSError):
        pass
    finally:
        for lane in lanes:
            lane.close()
    with connection.open() as client:
        yield from client.scan_frames(asked.topic, asked.partition, place, asked.stop)


class _OtherCase(Exception):
    """The answer is not a page."""


class _Lane:
    """One connection, one question at a time."""

    def __init__(self, address: Address, headers: dict[str, str]) -> None:
        place = urlsplit(address.urls[0])  # if it is away, the client looks for the others
        assert place.hostname is not None
        seconds = address.timeout_ms / 1000
        self._line = (
            http.client.HTTPSConnection(place.hostname, place.port, timeout=seconds, context=address.tls)
            if place.scheme == "https"
            else http.client.HTTPConnection(place.hostname, place.port, timeout=seconds)
        )
        self._path = place.path
        self._headers = headers

    def ask(self, asked: Range, start: int) -> None:
        query = urlencode({"partition": asked.partition, "start_offset": start, "stop_offset": asked.stop})
        path = f"{self._path}/v1/topics/{quote(asked.topic, safe='')}/frames?{query}"
        self._line.request("GET", path, headers=self._headers)

    def page(self) -> tuple[memoryview, int | None]:
        """The bytes of the page that was asked for, and where to go on."""
        answer = self._line.getresponse()
        length, next = answer.length, answer.headers.get("X-Mqueue-Next")
        known = next is None or (next.isascii() and next.isdecimal())
        if answer.status != 200 or answer.headers.get("Content-Type") != FRAMES or length is None or not known:
            raise _OtherCase
        if length > PAGE_BYTES_MAX:
            raise _OtherCase
        page = memoryview(pa.allocate_buffer(length))  # out of Arrow's pool, which has pages at hand
        filled = 0
        while filled < length:
            count = answer.readinto(page[filled:])
            if not count:
                raise _OtherCase
            filled += count
        answer.close()
        return page, None if next is None else int(next)

    def close(self) -> None:
        self._line.close()


def _lanes(connection: Connection) -> list[_Lane]:
    address = address_of(
        connection.servers, connection.token, "", connection.timeout, connection.ca, connection.cert, "arrow", True
    )
    headers = {"Accept": FRAMES, "X-Mqueue-Namespace": connection.namespace}
    if connection.token:
        headers["Authorization"] = f"Bearer {connection.token}"
    return [_Lane(address, headers), _Lane(address, headers)]
