"""Reading through old segments, so that damage is found before somebody needs what is damaged."""

from __future__ import annotations

from mqueue.log.segments.log import SegmentLog
from mqueue.model.errors import Unavailable

_HOUR_MS = 3_600_000


class Scrubber:
    def __init__(self, log: SegmentLog) -> None:
        self._log = log

    def run_once(self, now: int) -> list[str]:
        """Check the segment that was not looked at longest, if its turn has come; what is wrong with it."""
        hours = self._log.storage.scrub_hours
        segments = list(self._log.shelf.segments)
        if not hours or not segments:
            return []
        period = int(hours * _HOUR_MS)
        for number, segment in enumerate(segments):  # spread over the period: a process that lives short does its part
            if not segment.scrubbed_at:
                segment.scrubbed_at = now - period * (len(segments) - number) // len(segments)
        segment = min(segments, key=lambda one: one.scrubbed_at)
        if now - segment.scrubbed_at < period:
            return []
        segment.scrubbed_at = now
        try:
            if self._log.shelf.sound(segment):
                return []
            report = f"{segment.name} is damaged: what is damaged of it is not served"
        except Unavailable as error:
            report = error.message
        if report not in self._log.reports:
            self._log.reports.append(report)
        return [report]
