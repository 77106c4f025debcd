"""The dead-letter queue: where the dead go, and what they carry.

A dead message is copied to its topic's dead-letter queue in the same commit that makes it dead.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from mqueue.heart.heart import Fallen
from mqueue.heart.runs import each
from mqueue.heart.topic import Topic
from mqueue.log.base import Log
from mqueue.model.errors import Corrupt, Unavailable
from mqueue.model.names import dlq_name
from mqueue.model.settings import Settings
from mqueue.model.times import rfc3339
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Rows
from mqueue.wire.story import STORY

LOGGER = logging.getLogger("mqueue")
AGAIN_MS = 1_000
PATIENCE_MS = 600_000
"""For how long a dead message that cannot be read is tried again."""


def given_up(dead: Fallen) -> str:
    where = f"{dead.topic.name}/{dead.partition} from offset {dead.start} on"
    return f"{dead.mask.bit_count()} dead messages of {where} cannot be read or copied: they have no copy in the DLQ"


def dlq_settings(origin: Settings) -> Settings:
    """A dead-letter queue has none itself, never gives up, drops nothing for being full, has no turns and no
    notes."""
    return replace(
        origin,
        dlq=False,
        dlq_topic=None,
        dlq_expired=False,
        dlq_dropped=False,
        max_retries=None,
        default_ttl_ms=None,
        max_depth=None,
        policy="strict",
        fairness=None,
        ordered=False,
        labels=(),
    )


def dlq_of(topic: Topic) -> str | None:
    """The name of the topic where its dead go, or None if they are dropped."""
    if not topic.settings.dlq or topic.settings.dlq_topic == topic.name:
        return None
    return topic.settings.dlq_topic or dlq_name(topic.name)


def copies(log: Log, fallen: list[Fallen], left: list[Fallen]) -> Rows:
    """The dead of one topic as rows for its dead-letter queue. Those that cannot be read just now go to `left`."""
    rows = Rows([], key=[], headers=[], priority=[])
    for dead in fallen:
        late = 0
        for offset in each(dead.start, dead.mask):
            try:
                frame = log.frame(dead.topic.id, dead.partition, offset)
            except Corrupt as error:
                LOGGER.error("a dead message of %s is damaged, at %d/%d: %s", *_place(dead, offset), error)
                continue
            except Unavailable:
                late |= 1 << offset - dead.start
                continue
            if frame is not None:
                _copy(rows, dead, frame, offset - frame.base)
        if late:
            left.append(replace(dead, mask=late))
    return rows


def _place(dead: Fallen, offset: int) -> tuple[str, int, int]:
    return dead.topic.name, dead.partition, offset


def _copy(rows: Rows, dead: Fallen, frame: Frame, row: int) -> None:
    """Add a dead message to the rows, with the story of its death in its headers."""
    own = frame.rows.headers[row] if frame.rows.headers else None
    failure = dead.failure
    story = (
        dead.topic.name,
        str(dead.partition),
        str(frame.base + row),
        str(frame.id_of(row)),
        dead.group,
        str(dead.attempts),
        dead.reason,
        failure.error,
        failure.consumer,
        rfc3339(failure.first_at),
        rfc3339(failure.last_at),
    )
    assert rows.key is not None
    assert rows.headers is not None
    assert isinstance(rows.priority, list)
    rows.payload.append(frame.rows.payload[row])
    rows.key.append(frame.rows.key[row] if frame.rows.key else None)
    rows.headers.append({**(own or {}), **dict(zip(STORY, story, strict=True))})
    rows.priority.append(frame.number("priority", row))
