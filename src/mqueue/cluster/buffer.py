"""What was handed in at a node and is not in its shard yet: so much, and no more.

Counts what waits for the next statement, what is on its way, and what lies in the log of the node. Lives in the loop of
the estate.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqueue.cluster.meters import Meters
from mqueue.log.postgres.batch import Promise
from mqueue.model.errors import Backpressure

_RETRY_SECONDS = 1.0


class Buffer:
    """`length_max` messages, `bytes_max` bytes. The numbers of now are in `meters`."""

    def __init__(self, meters: Meters, length_max: int, bytes_max: int) -> None:
        self._meters = meters
        self._length_max = length_max
        self._bytes_max = bytes_max
        self._held: dict[int, tuple[int, int]] = {}
        """What was counted of each promise: one that is open still grows."""

    def check(self) -> None:
        """Raise if no more is taken. Whoever is let in may bring any number: so it is exceeded by one call at most."""
        meters = self._meters
        if meters.buffered_messages >= self._length_max or meters.buffered_bytes >= self._bytes_max:
            meters.refused += 1
            raise Backpressure(
                f"{meters.buffered_messages} messages of {meters.buffered_bytes} bytes wait here for their shard; "
                f"no more than {self._length_max} messages or {self._bytes_max} bytes may",
                retry_after=_RETRY_SECONDS,
            )

    def hold(self, promises: Iterable[Promise]) -> None:
        """These wait, or have grown."""
        meters = self._meters
        for promise in promises:
            frame = promise.frame
            count, size = self._held.get(id(promise), (0, 0))
            self._held[id(promise)] = frame.count, frame.size
            meters.buffered_messages += frame.count - count
            meters.buffered_bytes += frame.size - size

    def release(self, promises: Iterable[Promise]) -> None:
        """These are in the shard, or never will be."""
        for promise in promises:
            count, size = self._held.pop(id(promise), (0, 0))
            self._meters.buffered_messages -= count
            self._meters.buffered_bytes -= size
