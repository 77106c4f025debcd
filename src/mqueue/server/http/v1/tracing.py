"""The trace that a request belongs to, put on the messages it publishes: W3C `traceparent` and `tracestate`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from mqueue.model.message import Draft
from mqueue.server.http.call import Call
from mqueue.wire.arrow import HEADERS

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_STATE_LENGTH_MAX = 512


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """What of a trace stands in the headers of a request. What does not read as one is passed over, as W3C asks."""
    parent = headers.get("traceparent", "")
    if not _PARENT.fullmatch(parent):
        return {}
    state = headers.get("tracestate", "")
    carried = state and len(state) <= _STATE_LENGTH_MAX and state.isascii() and state.isprintable()
    return {"traceparent": parent, "tracestate": state} if carried else {"traceparent": parent}


def traced(call: Call, drafts: list[Draft]) -> list[Draft]:
    """The drafts; those that are in no trace of their own belong to that of the request."""
    trace = trace_of(call.headers)
    if not trace:
        return drafts
    return [
        draft if "traceparent" in (draft.headers or {}) else replace(draft, headers={**(draft.headers or {}), **trace})
        for draft in drafts
    ]


def traced_table(call: Call, table: pa.Table) -> pa.Table:
    """The same for a table. One with headers of its own is left as it is: it knows what it wants."""
    trace = trace_of(call.headers)
    if not trace or "headers" in table.schema.names:
        return table
    return table.append_column("headers", header_column(trace, table.num_rows))


def header_column(trace: Mapping[str, str], count: int) -> pa.Array:
    """The same headers for so many messages."""
    pairs = [(name, value.encode()) for name, value in trace.items()]
    return pa.array([pairs], HEADERS).take(pa.array(np.zeros(count, np.int64)))
