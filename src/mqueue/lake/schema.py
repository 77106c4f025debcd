"""The columns of messages outside the broker: named as Spark's Kafka source names them, then our own.

The lake and the Spark source show the same columns, so that one query reads both.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "namespace": pa.string(),
    "id": pa.int64(),
    "priority": pa.int32(),
    "deliver_at": TIME,
    "expires_at": TIME,
    "idempotency_key": pa.string(),
    "fairness_key": pa.string(),
}
"""`timestamp` is when a message was published; `timestampType` is 1, the time of the log, as Kafka numbers it.
`deliver_at` and `expires_at` are null where a message is due at once, or lasts."""

LOG_TIME = 1
"""Kafka's number for a timestamp that was given by the log."""

LAKE = pa.schema([(name, type) for name, type in COLUMNS.items() if name != "timestampType"] + [("date", pa.date32())])
"""Of an archived message. `date` is the day of `timestamp` in UTC; it, `namespace` and `topic` are in the paths."""
LAKE_PARTITIONS = ("namespace", "topic", "date")
