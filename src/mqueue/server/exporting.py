"""Spans on their way to a collector: a bounded queue, and one thread that empties it.

Whoever ends a span leaves it here and goes on: nobody waits for a collector, and one that is away, slow or angry costs
spans, which are counted, and nothing else. Does not know how spans travel.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LOGGER = logging.getLogger("mqueue.server")

CLOSE_SECONDS = 2.0
"""So long what is left may take at the end."""


class Pace(Struct, frozen=True):
    """`waiting_max`: spans beyond that are dropped. A batch goes out when it is full, or `delay_seconds` old."""

    waiting_max: int = 2048
    batch_max: int = 512
    delay_seconds: float = 5.0


class Outbox(SpanProcessor, Collector):
    """Counts what becomes of spans; read by metrics."""

    def __init__(self, exporter: SpanExporter, where: str, pace: Pace) -> None:
        self._exporter = exporter
        self._where = where
        self._pace = pace
        self._waiting: deque[ReadableSpan] = deque()
        self._changed = threading.Condition()
        self._out = 0
        self._closing = self._hurry = False
        self._well = True
        self.exported = self.failed = self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="mqueue-spans", daemon=True)
        self._thread.start()

    # Who ends spans

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is to be done before it ends."""

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._changed:
            if self._closing or len(self._waiting) >= self._pace.waiting_max:
                self.dropped += 1
                return
            self._waiting.append(span)
            if len(self._waiting) == self._pace.batch_max:
                self._changed.notify_all()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits now; whether it was all gone in time."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._waiting and not self._out, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send what is left, for a moment; what is not gone then is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()  # one that tries again and again lets go
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    # The thread

    def _run(self) -> None:
        while batch := self._next():
            try:
                well = self._exporter.export(batch) is SpanExportResult.SUCCESS
            except Exception as error:
                LOGGER.warning("spans cannot be sent: %s", error)
                well = False
            with self._changed:
                self._out = 0
                self.exported += len(batch) if well else 0
                self.failed += 0 if well else len(batch)
                self._changed.notify_all()
            self._tell(well)

    def _next(self) -> list[ReadableSpan]:
        """The next batch; nothing: it is over."""
        with self._changed:
            while not self._is_due():
                self._changed.wait_for(self._is_due, self._pace.delay_seconds)
                if self._waiting:
                    break
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._pace.batch_max))]
            self._out = len(batch)
            self._hurry = self._hurry and bool(self._waiting)
            return batch

    def _is_due(self) -> bool:
        if self._closing:
            return True
        return len(self._waiting) >= (1 if self._hurry else self._pace.batch_max)

    def _tell(self, well: bool) -> None:
        """Once when it begins to fail, once when it is over."""
        if well is not self._well:
            self._well = well
            if well:
                LOGGER.info("spans get to %s again", self._where)
            else:
                LOGGER.warning("spans do not get to %s; they are dropped until it takes them", self._where)

    # Metrics

    def collect(self) -> Iterator[Metric]:
        spans = CounterMetricFamily(
            "mqueue_telemetry_spans", "Spans that ended, by what became of them.", labels=("result",)
        )
        for result, count in (("exported", self.exported), ("failed", self.failed), ("dropped", self.dropped)):
            spans.add_metric((result,), count)
        yield spans
        yield GaugeMetricFamily("mqueue_telemetry_spans_waiting", "Spans that wait to be sent.", len(self._waiting))
