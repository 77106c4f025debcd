"""How a message died, as it stands in the headers of its copy in a dead-letter topic.

    header              column          what it says
    x-origin-topic      source_topic    the topic that the message died in
    x-group             group           the consumer group that gave up; none where nobody had it, as of what expired
    x-attempts          attempts        how often that group was given the message
    x-reason            reason          max_retries, rejected, visibility_timeout or expired
    x-error             error           what the last consumer said, if it said something

The other names in `STORY` say where the message lies in its topic, who had it last, and when it failed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STORY = (
    "x-origin-topic",
    "x-origin-partition",
    "x-origin-offset",
    "x-origin-id",
    "x-group",
    "x-attempts",
    "x-reason",
    "x-error",
    "x-consumer",
    "x-first-failure",
    "x-last-failure",
)
"""The headers that tell how a message died."""

_COLUMNS = {
    "source_topic": "x-origin-topic",
    "group": "x-group",
    "attempts": "x-attempts",
    "reason": "x-reason",
    "error": "x-error",
}
_NUMBER = "^[0-9]{1,9}$"


def story_columns(headers: pa.Array) -> dict[str, pa.Array]:
    """Those five columns of dead messages, given their headers as lists of (key, value).

    Anybody may publish to a dead-letter topic, with any headers: where one is missing, empty or makes no sense there is
    a null. Of several with one name the last counts.
    """
    row = pc.list_parent_indices(headers)
    pairs = headers.flatten()
    keys, values = pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)
    found = {column: _texts(row, keys, values, name, len(headers)) for column, name in _COLUMNS.items()}
    texts = found["attempts"]
    number = pc.match_substring_regex(texts, _NUMBER)
    found["attempts"] = pc.if_else(number, texts, None).cast(pa.int32())
    return found


def _texts(row: pa.Array, keys: pa.Array, values: pa.Array, name: str, count: int) -> pa.Array:
    """The value of one header in each row, as text."""
    here = pc.fill_null(pc.equal(keys, name), False)
    rows = row.filter(here).to_numpy(zero_copy_only=False)
    place = np.full(count, -1)
    place[rows] = np.arange(len(rows))
    texts = _decoded(values.filter(here)).take(pa.array(place, mask=place < 0))
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _decoded(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # somebody has put bytes there that are no text
        return pa.array(
            [value if value is None else value.decode(errors="replace") for value in values.to_pylist()], pa.string()
        )
