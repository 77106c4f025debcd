"""What happened to the messages of a range of offsets, from afar, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa

from mqueue.broker.occurrences import check_numbers
from mqueue.client.read import covered
from mqueue.client.window import ARROW, Window, path_of
from mqueue.model.names import check_name
from mqueue.wire.stream import read_table


def events(window: Window, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[list[pa.RecordBatch]]:
    check_numbers(partition, start, stop)
    return _pages(window, path_of("topics", check_name(topic, "topic"), "events"), covered(start, stop, partition))


async def _pages(window: Window, path: str, query: dict[str, Any]) -> AsyncIterator[list[pa.RecordBatch]]:
    while True:
        reply = await window.send("GET", path, query=query, accept=ARROW)
        table = read_table(reply.body)
        if table.num_rows:
            yield table.to_batches()
        place = reply.headers.get("X-Mqueue-Next")
        if place is None:
            return
        query = {**query, "start_offset": place}
