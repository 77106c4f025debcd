"""Bringing the dead back: the original becomes ready again, for the group that it died in and for no other. Or not
bringing them back: then the copy is all that ends.

Only if retention has dropped the original is the message published anew, for everybody.
"""

from __future__ import annotations

from mqueue.heart.group import Group
from mqueue.heart.topic import Topic
from mqueue.model import events as ev
from mqueue.model.errors import BadName, Refused
from mqueue.model.names import check_name
from mqueue.store.keys import keys_in
from mqueue.store.order import order_key
from mqueue.store.store import Store
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Headers, Rows
from mqueue.wire.story import STORY


def redrive(store: Store, dlq: Topic, frame: Frame, row: int, now: int) -> bool:
    """Bring one dead message back and cancel its copy; False if it is no dead message, or its group is gone."""
    headers = frame.rows.headers[row] if frame.rows.headers else None
    if headers is None or not _is_story(headers):
        return False
    topic = store.topic(dlq.namespace, str(headers["x-origin-topic"]), now)
    if topic.id not in store.state.topics:
        raise Refused(
            f"the dead of topic {topic.name!r} lie in {dlq.name!r}, which is delivered from elsewhere: receive them"
            " there and publish them anew",
            code="elsewhere",
        )
    number, offset = int(headers["x-origin-partition"]), int(headers["x-origin-offset"])
    if headers["x-group"] == "" or not _is_there(store, topic, number, offset, int(headers["x-origin-id"])):
        _publish_anew(store, topic, frame, row, headers, now)
    else:
        group = topic.groups.get(str(headers["x-group"]))
        if group is None:
            return False
        _revive(store, topic, group, number, offset, now)
    _rejoin(topic, str(headers["x-group"]), keys_in(frame, row)[0], store, now)
    return discard(store, dlq, frame, row, now)


def discard(store: Store, dlq: Topic, frame: Frame, row: int, now: int) -> bool:
    """Cancel the copy of one dead message: nobody deals with it any more. True, as that is always done."""
    span = (frame.partition, frame.base + row, frame.base + row + 1, 1, frame.number("priority", row), frame.at_of(row))
    store.heart.happen(ev.Voided(now, dlq.id, "cancelled", (span,)))
    store.commit(now)
    return True


def _is_story(headers: Headers) -> bool:
    """Whether these headers are ours: anybody may publish to a dead-letter queue, with any headers."""
    numbers = ("x-origin-partition", "x-origin-offset", "x-origin-id")
    if not all(name in headers for name in STORY) or not all(str(headers[name]).isdecimal() for name in numbers):
        return False
    try:
        check_name(str(headers["x-origin-topic"]), "topic")
    except BadName:
        return False
    return True


def _is_there(store: Store, topic: Topic, number: int, offset: int, id: int) -> bool:
    """Whether the original can still be delivered: retention has not dropped it, and it has not ended for everybody."""
    frame = store.log.frame(topic.id, number, offset) if number < len(topic.partitions) else None
    return frame is not None and frame.id_of(offset - frame.base) == id and offset not in topic.partitions[number].void


def _revive(store: Store, topic: Topic, group: Group, number: int, offset: int, now: int) -> None:
    """Make the original ready again in the group that it died in. If a seek did that already there is nothing to do."""
    frame = store.log.frame(topic.id, number, offset)
    assert frame is not None
    priority, due, _ = order_key(topic, frame, offset - frame.base)
    store.heart.redrive(topic, group, ((number, offset, offset + 1, 1, priority, due),), now)


def _rejoin(topic: Topic, group_name: str, key: int, store: Store, now: int) -> None:
    """The messages of its key do not follow it any more."""
    group = topic.groups.get(group_name)
    if group is not None and key in group.diverted:
        store.heart.happen(ev.Rejoined(now, topic.id, group.name, (key,)))


def _publish_anew(store: Store, topic: Topic, frame: Frame, row: int, headers: Headers, now: int) -> None:
    own = {name: value for name, value in headers.items() if name not in STORY}
    key = frame.rows.key[row] if frame.rows.key else None
    store.publish(topic, Rows([frame.rows.payload[row]], [key], [own or None], frame.number("priority", row)), now)
