"""The stream reader: batches by offset range out of the log, as many as the user admits, told to Spark as JSON.

Spark keeps one of these in a process on the driver for as long as a query runs, and asks it some sixty times a second
how far the topics reach. Tasks get a copy, of which only `read` is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from mqueue.pipeline.horizon import Reach, ends, floors, reach, resolved, tell_loss, whole
from mqueue.pipeline.offsets import Places, admitted, dumped, loaded, ranges_between, rows_between, split
from mqueue.pipeline.plain import plainly
from mqueue.pipeline.reading import Reading, read, stretches
from mqueue.pipeline.ship import Carried
from mqueue.pipeline.subscription import Shape, Subscription, shape_of

if TYPE_CHECKING:
    from mqueue.client.sync import Client

LOOK_SECONDS = 0.25
"""How old what is known of the ends of topics may be: Spark asks far more often than that."""


class MqueueStreamReader(Carried, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, reading: Reading, now: Callable[[], float] = time.monotonic) -> None:
        self._reading = reading
        self._now = now
        self._client: Client | None = None
        self._initial: Places | None = None
        self._floors: Places = {}
        self._target: Places | None = None
        self._seen: Reach = {}
        self._seen_at = -LOOK_SECONDS
        self._shapes: dict[str, Shape] = {}
        self._given_at: float | None = None
        name = reading.options.subscription
        self._subscription = None if name is None else Subscription(name, now)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks get what they have to know, and no connection."""
        return MqueueStreamReader, (self._reading,)

    # Where it stands

    @plainly
    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        if self._initial is None:
            client, options, there = self._open(), self._reading.options, self._look(fresh=True)

            def start() -> Places:
                return resolved(client, options, there, start=True)

            self._initial = start() if self._subscription is None else self._subscription.begin(client, there, start)
            self._floors = floors(there)
        return dumped(self._initial)

    @plainly
    def latestOffset(  # noqa: N802
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        begin = loaded(start)
        seen = self._look()
        if self._subscription is not None:
            self._subscription.renew(self._open(), seen)
        end = self._target if self._target is not None else ends(seen)
        if self._delayed(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = admitted(begin, end, limit.max_rows)
        return dumped(end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._reading.options.offsets_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = ends(self._look(fresh=True))

    @plainly
    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return dumped(ends(self._look()))

    def _delayed(self, start: Places, end: Places) -> bool:
        """Whether a batch waits for more: there is less than the user wants, and not for too long."""
        options = self._reading.options
        if options.offsets_min is None or self._target is not None:
            return False
        waited_ms = None if self._given_at is None else (self._now() - self._given_at) * 1000
        rows = rows_between(start, end)
        if rows < options.offsets_min and waited_ms is not None and waited_ms < options.delay_ms_max:
            return True
        if rows:
            self._given_at = self._now()
        return False

    # A batch

    @plainly
    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        options, begin, stop, there = self._reading.options, loaded(start), loaded(end), self._look(fresh=True)
        for topic, partitions in begin.items():
            for number, offset in partitions.items():
                if stop.get(topic, {}).get(number, -1) < offset:
                    tell_loss(f"{topic}/{number} was read up to {offset}, and is gone or begins anew", options)
        self._tell_anew(begin, there)
        ranges = whole(ranges_between(begin, stop), there, self._open(), options, self._exempt(begin, there))
        return stretches(split(ranges, os.cpu_count() or 1, options.partitions_min, options.records_max), there)

    def _tell_anew(self, begin: Places, there: Reach) -> None:
        """A topic that was deleted and made anew may have come as far as the one before it: its offsets do not tell."""
        for topic, partitions in there.items():
            shape = shape_of(partitions)
            if topic in begin and self._shapes[topic][1] != shape[1]:
                tell_loss(
                    f"topic {topic!r} was deleted and made anew while it was read: what it has before"
                    f" {begin[topic]} (by partition) is not read",
                    self._reading.options,
                )
            self._shapes[topic] = shape

    def _exempt(self, begin: Places, there: Reach) -> Places:
        """Where what is missing was missing before this query began: retention has dropped nothing since."""
        return {
            topic: {
                n: begin[topic][n]
                for n, floor in partitions.items()
                if n in begin.get(topic, {}) and floor <= self._floors.get(topic, {}).get(n, 0)
            }
            for topic, partitions in floors(there).items()
        }

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._reading, partition)

    @plainly
    def commit(self, end: dict[str, dict[str, int]]) -> None:
        if self._subscription is not None:
            self._subscription.advance(self._open(), loaded(end))

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # The server

    def _open(self) -> Client:
        if self._client is None:
            self._client = self._reading.connection.open()
        return self._client

    def _look(self, fresh: bool = False) -> Reach:
        """How far the topics reach, as of a moment ago at most."""
        if fresh or self._now() - self._seen_at >= LOOK_SECONDS:
            self._seen = reach(self._open(), self._reading.options)
            self._seen_at = self._now()
            for topic, partitions in self._seen.items():
                self._shapes.setdefault(topic, shape_of(partitions))
        return self._seen
