"""The log by whole frames, for those who read much of it: nothing is looked at message by message.

For readers in this process frame by frame; for those elsewhere a page of packed frames at a time, as they lie on the
disk, read without the lock. What is read is durable: whoever notes how far it got must not have seen what a power cut
takes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from msgspec import Struct

from mqueue.broker import replay
from mqueue.broker.commits import committed, disregard, settled
from mqueue.broker.deliver import TopicDesk
from mqueue.broker.engine import Engine
from mqueue.broker.occurrences import check_numbers
from mqueue.model.errors import NotFound
from mqueue.model.limits import MIB
from mqueue.wire.frame import Frame
from mqueue.wire.packed import within

PAGE_BYTES = 8 * MIB


class Covered(Struct, frozen=True):
    """What there is of the offsets that were asked for."""

    desk: TopicDesk
    partition: int
    start: int
    stop: int


class Page(Struct):
    pieces: Sequence[bytes | memoryview]
    next: int | None
    """The offset to go on with; None: this was all."""


def covered(engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int) -> Covered:
    check_numbers(partition, start, stop)
    with engine.lock:
        engine.tick()
        return _covered(engine, namespace, topic, partition, start, stop)


def walk(asked: Covered) -> Iterator[Frame]:
    """Frame by frame, for a reader who may wait for the disk."""
    _confirm(asked.desk.engine)
    yield from _frames(asked)


async def walk_in_loop(asked: Covered) -> AsyncIterator[Frame]:
    """The same in an event loop: some frames at a time are read in a thread, as they may have to come from the disk."""
    _confirm(asked.desk.engine)
    await committed()
    frames = _frames(asked)
    while some := await asyncio.to_thread(_some, frames):
        for frame in some:
            yield frame


def _some(frames: Iterator[Frame]) -> list[Frame]:
    """The next frames, up to about `PAGE_BYTES`."""
    found: list[Frame] = []
    size = 0
    try:
        for frame in frames:
            found.append(frame)
            size += frame.batch.nbytes
            if size >= PAGE_BYTES:
                break
    finally:
        disregard()  # as in `_read`
    return found


async def page(engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int) -> Page:
    """About `PAGE_BYTES` of packed frames. It is read in a thread: it may have to come from the disk."""
    check_numbers(partition, start, stop)
    try:
        with engine.lock:
            engine.tick()
            asked = _covered(engine, namespace, topic, partition, start, stop)
            engine.confirm()
    except BaseException:
        await settled()
        raise
    await committed()
    return await asyncio.to_thread(_read, asked)


def _covered(engine: Engine, namespace: str, topic: str, partition: int, start: int, stop: int) -> Covered:
    desk = TopicDesk(engine, engine.known_topic(namespace, topic))
    return Covered(desk, *replay.stretches(desk, start, stop, partition)[0])


def _confirm(engine: Engine) -> None:
    with engine.lock:
        engine.confirm()


def _frames(asked: Covered) -> Iterator[Frame]:
    stretch = (asked.partition, asked.start, asked.stop)
    for frame, first, last in replay.scan_frames(asked.desk, [stretch]):
        yield within(frame, frame.base + first, frame.base + last)
    _check_there(asked)


def _read(asked: Covered) -> Page:
    engine, topic, start = asked.desk.engine, asked.desk.topic, asked.start
    while start < asked.stop:
        try:
            with engine.lock:
                packing = engine.store.log.packed(topic.id, asked.partition, start, asked.stop, PAGE_BYTES)
        finally:
            disregard()  # nothing was handed in here; threads that only look would remember it for ever
        pieces, next = packing.read()
        if pieces or next is None:
            _check_there(asked)
            return Page(pieces, next)
        start = next  # a segment was copied on while it was read
    return Page([], None)


def _check_there(asked: Covered) -> None:
    """Raise if the topic was deleted while it was read: that there was no more of it is not true then."""
    if asked.desk.topic.dropped:
        raise NotFound(f"topic {asked.desk.topic.name!r} was deleted while it was read")
