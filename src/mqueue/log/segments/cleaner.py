"""Giving room back: segments nobody needs go; what little is still needed of others is copied on, so that they can go.

A segment may go when none of its messages is kept and the older of the last two checkpoints tells everything that it
says. Copies keep their offsets, ids and times: a message scheduled for 2046 does not hold up what lay beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.segment import Segment
from mqueue.model.errors import Corrupt

_LIVE_MAX = 0.25
"""If more of a segment is still needed it stays: copying would cost more than it gives back."""


class Cleaner:
    def __init__(self, log: SegmentLog) -> None:
        self._log = log
        self._damaged: set[int] = set()

    def run_once(self, lock: AbstractContextManager[None], sync: Callable[[int], None]) -> None:
        """Copy on what is left of one segment, and remove those that are dead."""
        log = self._log
        with lock:
            sparse = next((one for one in self._old() if self._is_sparse(one)), None)
            batch = self._copy_on(sparse) if sparse is not None else None
        if sparse is not None and batch is not None:
            sync(batch)
            with lock:
                log.copied(sparse)
        with lock:
            dead = [segment for segment in self._old() if segment.live_bytes <= 0]
            batch = log.batch
        if dead:
            sync(batch)  # that nobody needs them any more must not be taken back by a crash
            with lock:
                for segment in dead:
                    log.remove(segment)

    def waits(self) -> bool:
        """Whether there is something to clean as soon as there is another checkpoint."""
        told = self._log.told[-1]
        old = [segment for segment in self._log.shelf.segments if segment.sealed and segment.end <= told]
        return len(old) > len(self._old()) and any(one.live_bytes <= 0 or self._is_sparse(one) for one in old)

    def _is_sparse(self, segment: Segment) -> bool:
        return (
            0 < segment.live_bytes <= _LIVE_MAX * (segment.end - segment.start) and segment.start not in self._damaged
        )

    def _copy_on(self, segment: Segment) -> int | None:
        """Copy what is left of a segment, if all of it can be read: what cannot has to stay where it is."""
        try:
            return self._log.copy_on(segment)
        except Corrupt:
            self._damaged.add(segment.start)
            return None

    def _old(self) -> list[Segment]:
        """The segments that no start will have to read again."""
        told = self._log.told[0] if len(self._log.told) == 2 else 0
        return [segment for segment in self._log.shelf.segments if segment.sealed and segment.end <= told]
