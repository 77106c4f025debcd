"""Packed frames on their way: one after the other, as `mqueue.wire.pack` writes them, with nothing in between.

So they can be sent as they lie in a log. Whoever takes them in checks all checksums, and that they are what he asked
for. Knows nothing of where they come from.
"""

from __future__ import annotations

from mqueue.model.errors import Corrupt
from mqueue.wire.frame import Frame
from mqueue.wire.pack import head_of, pack, unpack

FRAMES = "application/vnd.mqueue.frames"
"""The media type."""


def packed(frame: Frame, start: int, stop: int) -> bytes:
    """The bytes of what a sealed frame has of the offsets from `start` to before `stop`."""
    return pack(within(frame, start, stop))


def within(frame: Frame, start: int, stop: int) -> Frame:
    """What a frame has of the offsets from `start` to before `stop`."""
    first, last = max(start, frame.base), min(stop, frame.stop)
    assert first < last, "there is something"
    whole = first == frame.base and last == frame.stop
    return frame if whole else frame.slice(first - frame.base, last - frame.base)


def unpack_all(data: bytes | memoryview, partition: int, start: int, stop: int) -> list[Frame]:
    """The frames of a page, cut to the offsets that were asked for. They keep the page alive."""
    found: list[Frame] = []
    place = 0
    while place < len(data):
        frame = unpack(data, place)
        if frame.partition != partition or frame.stop <= start or frame.base >= stop or not frame.ids:
            raise Corrupt(
                f"frame at {place}: offsets {frame.base} to {frame.stop - 1} of partition {frame.partition};"
                f" {start} to {stop - 1} of {partition} were asked for"
            )
        found.append(within(frame, start, stop))
        start = frame.stop
        place += head_of(data, place).length
    return found
