"""Bringing the dead back: the original becomes ready again, for the group that it died in and for no other.

Only if retention has dropped the original is the message published anew, for everybody.
"""

from __future__ import annotations

from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.store.bury import STORY
from mqueue.store.store import Store
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Headers, Rows


def redrive(store: Store, dlq: Topic, frame: Frame, row: int, now: int) -> bool:
    """Bring one dead message back and cancel its copy; False if it is no dead message."""
    headers = frame.rows.headers[row] if frame.rows.headers else None
    if headers is None or not all(name in headers for name in STORY):
        return False
    topic = store.topic(dlq.namespace, str(headers["x-origin-topic"]), now)
    if not _revive(store, topic, headers, now):
        _publish_anew(store, topic, frame, row, headers, now)
    span = (frame.partition, frame.base + row, frame.base + row + 1, 1, frame.number("priority", row), frame.at_of(row))
    store.heart.happen(ev.Voided(now, dlq.id, "cancelled", (span,)))
    store.commit(now)
    return True


def _revive(store: Store, topic: Topic, headers: Headers, now: int) -> bool:
    """Make the original ready again in the group that it died in; False if it is gone."""
    group = topic.groups.get(str(headers["x-group"]))
    number, offset = int(headers["x-origin-partition"]), int(headers["x-origin-offset"])
    frame = store.log.frame(topic.id, number, offset) if number < len(topic.partitions) else None
    if group is None or frame is None or frame.id_of(offset - frame.base) != int(headers["x-origin-id"]):
        return False
    priority, due, _ = store.order_key(topic, frame, offset - frame.base)
    return store.heart.redrive(topic, group, ((number, offset, offset + 1, 1, priority, due),), now) == 1


def _publish_anew(store: Store, topic: Topic, frame: Frame, row: int, headers: Headers, now: int) -> None:
    own = {name: value for name, value in headers.items() if name not in STORY}
    key = frame.rows.key[row] if frame.rows.key else None
    store.publish(topic, Rows([frame.rows.payload[row]], [key], [own or None], frame.number("priority", row)), now)
