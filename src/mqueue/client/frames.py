"""The log as whole frames, from afar: pages of packed frames, the next one on its way while one is worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from mqueue.broker.occurrences import check_numbers
from mqueue.broker.replay import check_position
from mqueue.client.read import covered
from mqueue.client.window import Window, path_of
from mqueue.model.errors import Corrupt
from mqueue.model.names import check_name
from mqueue.wire.frame import Frame
from mqueue.wire.packed import FRAMES, unpack_all


class Ask:
    """What is asked for, checked as far as it can be checked from here."""

    def __init__(self, window: Window, topic: str, partition: int, start: int, stop: int) -> None:
        check_numbers(partition, start, stop)
        check_position(start, "start")
        check_position(stop, "stop")
        self._query = covered(start, stop, partition)
        self._window = window
        self._path = path_of("topics", check_name(topic, "topic"), "frames")
        self._partition = partition
        self.start = start
        self._stop = stop

    async def page(self, start: int) -> tuple[list[Frame], int | None]:
        """The frames from an offset on, and where to go on; None: that was all."""
        query = {**self._query, "start_offset": start}
        reply = await self._window.send("GET", self._path, query=query, accept=FRAMES)
        if reply.headers.get("Content-Type") != FRAMES:
            raise Corrupt(f"the answer of {len(reply.body)} bytes is no page of frames")
        frames = unpack_all(reply.body, self._partition, start, self._stop)
        told = reply.headers.get("X-Mqueue-Next")
        if told is None:
            return frames, None
        next = int(told) if told.isascii() and told.isdecimal() else -1
        if next < (frames[-1].stop if frames else start + 1):
            raise Corrupt(f"a page of frames from offset {start} on is followed by {told!r:.80}")
        return frames, next


async def pages(ask: Ask) -> AsyncIterator[list[Frame]]:
    """Page by page, one ahead."""
    ahead = asyncio.ensure_future(ask.page(ask.start))
    try:
        while True:
            frames, next = await ahead
            if next is not None:
                ahead = asyncio.ensure_future(ask.page(next))
            if frames:
                yield frames
            if next is None:
                return
    finally:
        ahead.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await ahead
