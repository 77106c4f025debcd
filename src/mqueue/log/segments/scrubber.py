"""Reading through old segments, so that damage is found before somebody needs what is damaged."""

from __future__ import annotations

from mqueue.log.segments.log import SegmentLog

_HOUR_MS = 3_600_000


class Scrubber:
    def __init__(self, log: SegmentLog) -> None:
        self._log = log

    def run_once(self, now: int) -> list[str]:
        """Check the sealed segment that was not looked at longest, if its turn has come; what is wrong with it."""
        hours = self._log.storage.scrub_hours
        due = [segment for segment in list(self._log.shelf.segments) if segment.sealed]
        if not hours or not due:
            return []
        segment = min(due, key=lambda one: one.scrubbed_at)
        if segment.scrubbed_at == 0:  # a new one was written just now: its first turn comes in its time
            segment.scrubbed_at = now
            return []
        if now - segment.scrubbed_at < hours * _HOUR_MS:
            return []
        segment.scrubbed_at = now
        if self._log.shelf.sound(segment):
            return []
        report = f"{segment.name} is damaged: what is damaged of it is not served"
        self._log.reports.append(report)
        return [report]
