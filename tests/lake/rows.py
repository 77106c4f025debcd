"""Messages for lakes: batches with every shape a value may have, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pyarrow as pa

from mqueue.lake import Lake
from mqueue.lake.schema import LAKE

DAY_MS = 86_400_000
START_MS = 1_767_225_600_000
"""2026-01-01, midnight in UTC."""


def batch(
    topic: str,
    offsets: Sequence[int],
    *,
    namespace: str = "default",
    partition: int = 0,
    start_ms: int = START_MS,
    step_ms: int = 1,
) -> pa.RecordBatch:
    """A message for each offset. All but its place follows from the offset, so the same offset is the same message."""
    messages = [_message(offset, start_ms + offset * step_ms) for offset in offsets]
    place = {"namespace": namespace, "topic": topic, "partition": partition}
    return pa.RecordBatch.from_pylist([{**place, **message} for message in messages], schema=LAKE)


def _message(offset: int, ms: int) -> dict[str, object]:
    chance = random.Random(offset)
    return {
        "key": chance.choice([None, b"", b"key", b"\xff\xfe\x00", chance.randbytes(9)]),
        "value": chance.choice([b"", b"{}", chance.randbytes(chance.randrange(200)), None]),
        "offset": offset,
        "timestamp": ms * 1000,
        "headers": chance.choice(
            [
                None,
                [],
                [{"key": "a", "value": b"\x00\xff"}],
                [{"key": "ä ", "value": b""}, {"key": "", "value": None}, {"key": "a", "value": b"2"}],
            ]
        ),
        "id": offset * 7 + (1 << 60),
        "priority": chance.choice([0, 4, 9]),
        "deliver_at": chance.choice([None, ms * 1000 + 5_000_000]),
        "expires_at": chance.choice([None, 253_402_300_799_999_000]),
        "idempotency_key": chance.choice([None, "", "schlüssel-✓"]),
        "fairness_key": chance.choice([None, "tenant 7"]),
        "date": ms // DAY_MS,
    }


def put(lake: Lake, app: str, version: int, *batches: pa.RecordBatch) -> None:
    """Each batch as files of its own, in one append."""
    files = [file for rows in batches for file in lake.writer().write([rows])]
    assert lake.append(files, app, version).published


def table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches), LAKE)


def offsets(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, as they come."""
    rows = pa.Table.from_batches(list(batches), pa.schema([LAKE.field("partition"), LAKE.field("offset")]))
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
