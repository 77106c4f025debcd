"""Arrow streams: record batches on their way over a line, read with no trust in any byte of them.

    schema message · record batch message · … · end mark (or just the end)        each message as drawn in `message`

A stream is taken apart here, message by message, and what each declares is checked before Arrow reads it: nothing is
decompressed, no dictionary and no type of others' making is known, no length is believed. Then every offset and every
text is proven. What comes out is safe to read; whether its columns are those of messages is for the broker to say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from mqueue.model.errors import BadFrame, TooLarge
from mqueue.model.limits import KIB, Limits
from mqueue.wire.message import Declared, declared, extent

COLUMNS_MAX = 32
BATCHES_MAX = 4096
SCHEMA_BYTES_MAX = 64 * KIB
_REMEMBERED_BYTES_MAX = 2 * KIB
_SCHEMA, _RECORD_BATCH = 1, 3
_END = b"\xff\xff\xff\xff\0\0\0\0"
END_BYTES = len(_END)
_REFUSED = (pa.ArrowException, ValueError, OSError, struct.error)


def read_stream(data: bytes, limits: Limits) -> pa.Table:
    """The table that a stranger sent: valid, and with no more rows than a call may have. Raises BadFrame, TooLarge."""
    messages = messages_of(data)
    schema = _schema(messages)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for message in messages:
        found = declared(message)
        rows += found.rows
        if rows > limits.call_messages_max:
            raise TooLarge(f"{rows} messages in one call; {limits.call_messages_max} are allowed", code="too_many")
        if len(batches) == BATCHES_MAX:
            raise BadFrame(f"more than {BATCHES_MAX} batches in a stream; {BATCHES_MAX} are allowed")
        _check_declared(found, schema)
        batches.append(_batch(message, schema))
    return pa.Table.from_batches(batches, schema)


def read_table(data: bytes) -> pa.Table:
    """The table that a server answered with. It is proven as well, but may be of any size."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except _REFUSED as error:
        raise BadFrame(f"this is no Arrow stream: {error!s:.500}") from error
    return table


def write_table(table: pa.Table | pa.RecordBatch) -> bytes:
    return write_stream(table.to_batches() if isinstance(table, pa.Table) else [table], table.schema)


def write_stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Batches of one schema, none of them compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def messages_of(stream: bytes) -> Iterator[memoryview]:
    """The messages of a stream: first its schema, then record batches and nothing else."""
    data = memoryview(stream)
    start = 0
    wanted = _SCHEMA
    while start < len(data) and data[start : start + 8] != _END:
        kind, length = extent(data[start:])
        if kind != wanted:
            raise BadFrame(
                f"a message of kind {kind} at byte {start}; a stream is one schema ({_SCHEMA}) and then record batches"
                f" ({_RECORD_BATCH}), without dictionaries"
            )
        yield data[start : start + length]
        start += length
        wanted = _RECORD_BATCH
    behind = len(data) - start - len(_END)
    if behind > 0:
        raise BadFrame(f"{behind} bytes follow the end of the stream; none may")


def _schema(messages: Iterator[memoryview]) -> pa.Schema:
    message = next(messages, None)
    if message is None:
        raise BadFrame("an Arrow stream of no bytes; it begins with a schema")
    if len(message) > SCHEMA_BYTES_MAX:
        raise BadFrame(f"a schema of {len(message)} bytes; {SCHEMA_BYTES_MAX} are allowed")
    return _known_schema(bytes(message)) if len(message) <= _REMEMBERED_BYTES_MAX else _checked_schema(message)


def _checked_schema(message: bytes | memoryview) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message)).remove_metadata()
        if len(schema) > COLUMNS_MAX:
            raise BadFrame(f"{len(schema)} columns; {COLUMNS_MAX} are allowed")
        for field in schema:
            _check_names(field)
            parts(field.type)
    except _REFUSED as error:
        raise BadFrame(f"the schema cannot be read: {error!s:.500}") from error
    return schema


_known_schema = lru_cache(maxsize=256)(_checked_schema)
"""Most streams begin with the same bytes: so a call of a thousand messages is read in 17 µs instead of 22."""


def _check_names(field: pa.Field) -> None:
    """Raise ValueError where a name is no text: whoever asks for it later would have to."""
    type = field.type
    str(field.name)
    str(getattr(type, "tz", ""))
    for number in range(type.num_fields):
        _check_names(type.field(number))


def _check_declared(found: Declared, schema: pa.Schema) -> None:
    """That the parts are those of the columns, lie inside the message, and do not overlap."""
    below = [parts(field.type) for field in schema]
    wanted = sum(nodes for nodes, _ in below), sum(buffers for _, buffers in below)
    if (len(found.nodes), len(found.buffers)) != wanted:
        raise BadFrame(f"{len(found.nodes)} nodes and {len(found.buffers)} buffers; the columns have {wanted}")
    if found.rows < 0:
        raise BadFrame(f"{found.rows} rows in a batch")
    for length, nulls in found.nodes:
        if not 0 <= nulls <= length <= max(found.buffers_length, found.rows):
            raise BadFrame(f"a column of {length} values, {nulls} of them null, in {found.buffers_length} bytes")
    end = 0
    for start, length in found.buffers:
        if not 0 <= length <= found.buffers_length or not 0 <= start <= found.buffers_length - length:
            raise BadFrame(f"a buffer of {length} bytes at {start} of {found.buffers_length} bytes")
        if length and (start < end or start % 8):
            raise BadFrame(f"a buffer of {length} bytes at {start}, after one that ends at {end}")
        end = max(end, start + length)


def _batch(message: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        batch.validate(full=True)
    except _REFUSED as error:
        raise BadFrame(f"a batch does not hold its columns: {error!s:.500}") from error
    return batch


@lru_cache(maxsize=256)
def parts(type: pa.DataType) -> tuple[int, int]:
    """How many nodes and buffers a column of a type has. Raises BadFrame for types that no column of ours can have."""
    kinds = pa.types
    if kinds.is_list(type) or kinds.is_large_list(type) or kinds.is_map(type) or kinds.is_struct(type):
        below = [parts(type.field(number).type) for number in range(type.num_fields)]
        own = 1 if kinds.is_struct(type) else 2
        return 1 + sum(nodes for nodes, _ in below), own + sum(buffers for _, buffers in below)
    if kinds.is_null(type):
        return 1, 0
    if kinds.is_integer(type) or kinds.is_timestamp(type):
        return 1, 2
    if kinds.is_binary(type) or kinds.is_string(type) or kinds.is_large_binary(type) or kinds.is_large_string(type):
        return 1, 3
    raise BadFrame(f"a column of type {type!s:.80}; binary, text, integers, timestamps and lists of pairs are allowed")
