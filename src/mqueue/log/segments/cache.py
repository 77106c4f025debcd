"""Frames at hand: the last ones that were written or read, up to so many bytes."""

from __future__ import annotations

from collections import OrderedDict

from mqueue.wire.frame import Frame


class Cache:
    __slots__ = ("_bytes", "_bytes_max", "_frames")

    def __init__(self, bytes_max: int) -> None:
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        """By their position in the log."""
        self._bytes = 0
        self._bytes_max = bytes_max

    def get(self, position: int) -> Frame | None:
        frame = self._frames.get(position)
        if frame is not None:
            self._frames.move_to_end(position)
        return frame

    def add(self, position: int, frame: Frame) -> None:
        self.drop(position)
        self._frames[position] = frame
        self._bytes += frame.size
        while self._bytes > self._bytes_max and len(self._frames) > 1:
            self._bytes -= self._frames.popitem(last=False)[1].size

    def drop(self, position: int) -> None:
        frame = self._frames.pop(position, None)
        if frame is not None:
            self._bytes -= frame.size
