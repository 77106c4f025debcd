"""The columns that a reader of messages can ask for, by view: as Arrow types, and as the text Spark takes."""

from __future__ import annotations

import pyarrow as pa

from mqueue.lake.schema import COLUMNS, TIME

MESSAGES, DLQ, TRACE = "messages", "dlq", "trace"

STORY: dict[str, pa.DataType] = {
    "source_topic": pa.string(),
    "group": pa.string(),
    "attempts": pa.int32(),
    "reason": pa.string(),
    "error": pa.string(),
}
"""Of a dead message: where it came from, and why it is dead."""

VIEWS: dict[str, dict[str, pa.DataType]] = {
    MESSAGES: COLUMNS,
    DLQ: {**COLUMNS, **STORY},
    TRACE: {
        "namespace": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "id": pa.int64(),
        "event": pa.string(),
        "time": TIME,
        "group": pa.string(),
        "consumer": pa.string(),
        "attempts": pa.int32(),
        "error": pa.string(),
    },
}

_ASKED_FOR = ("expires_at", "fairness_key")
"""Few use them, and each column costs Spark something for every row: they are read where a schema names them."""

_SPARK: dict[pa.DataType, str] = {
    pa.binary(): "binary",
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    TIME: "timestamp",
    COLUMNS["headers"]: "array<struct<key:string,value:binary>>",
}


def spark_schema(view: str, include_headers: bool) -> str:
    """The columns of a view as Spark takes them, where nobody says which."""
    left_out = _ASKED_FOR if include_headers else (*_ASKED_FOR, "headers")
    return _text({name: type for name, type in VIEWS[view].items() if name not in left_out})


def whole_schema(view: str) -> str:
    """All columns of a view as Spark takes them."""
    return _text(VIEWS[view])


def spark_types(view: str) -> dict[str, str]:
    """The columns of a view and their types in Spark's words."""
    return {name: _SPARK[type] for name, type in VIEWS[view].items()}


def arrow_schema(view: str, names: list[str]) -> pa.Schema:
    """Columns of a view as Arrow, in this order."""
    return pa.schema([(name, VIEWS[view][name]) for name in names])


def _text(columns: dict[str, pa.DataType]) -> str:
    return ", ".join(f"`{name}` {_SPARK[type]}" for name, type in columns.items())
