"""Frames at hand: the last ones that arrived or were read, up to so many bytes, of all virtual shards of one server."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from mqueue.log.postgres.tape import Place
from mqueue.wire.frame import Frame

Key: TypeAlias = tuple[int, int, int]
"""topic, partition, base"""


class Copies(Protocol):
    """Where frames may be found that are not at hand, quicker than on the server."""

    def find(self, topic: int, partition: int, places: Sequence[Place]) -> dict[int, tuple[bytes, bytes]]:
        """(head, body) by the base: exactly the frames of these places, or none."""


class Cache:
    """May be asked by any thread."""

    def __init__(self, bytes_max: int, copies: Copies | None = None) -> None:
        self.copies = copies
        self._lock = threading.Lock()
        self._frames: OrderedDict[Key, Frame] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max

    def get(self, key: Key) -> Frame | None:
        with self._lock:
            frame = self._frames.get(key)
            if frame is not None:
                self._frames.move_to_end(key)
            return frame

    def add(self, key: Key, frame: Frame) -> None:
        with self._lock:
            before = self._frames.pop(key, None)
            if before is not None:
                self._bytes -= before.size
            self._frames[key] = frame
            self._bytes += frame.size
            while self._bytes > self._bytes_max and len(self._frames) > 1:
                self._bytes -= self._frames.popitem(last=False)[1].size
