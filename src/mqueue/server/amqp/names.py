"""Names of AMQP as names of ours: queues are topics, virtual hosts are namespaces.

AMQP allows 255 bytes of anything, a topic 249 of letters, digits and `._-`. Every other byte is written `._XX`, in hex.
So that no two names are one topic, a dot before an underscore is written so, too; and the dot of a last `.dlq`: that is
where the dead of a topic lie, and nobody's queue. What gets too long is cut, and ends with `._-` and its SHA-256: that
no other name has. Knows no queues.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from mqueue.model.errors import BadName
from mqueue.model.limits import NAME_LENGTH_MAX
from mqueue.model.names import DLQ_SUFFIX, check_name, is_dlq

CATALOG = ".amqp"
"""The topic of a namespace in which its exchanges, queues and bindings are written down."""
GROUP = "default"
"""The group that reads queues."""
REPLY_TO = "amq.rabbitmq.reply-to"
"""The queue of whoever asks: each channel that consumes from it has one of its own behind it."""
_TOPIC_LENGTH_MAX = NAME_LENGTH_MAX - len(DLQ_SUFFIX)
_OTHER = re.compile(rb"\.(?=_)|[^A-Za-z0-9._-]")
_LONG_KEPT = _TOPIC_LENGTH_MAX - len("._-") - 64


@lru_cache(maxsize=8192)
def topic_of(queue: str) -> str:
    """The topic of a queue. Raises BadName where it has no name."""
    topic = _OTHER.sub(lambda sign: b"._%02X" % sign[0][0], queue.encode()).decode()
    if is_dlq(topic):
        topic = f"{topic.removesuffix(DLQ_SUFFIX)}._2E{DLQ_SUFFIX[1:]}"
    elif topic in (".", "..", CATALOG):
        topic = f"._2E{topic[1:]}"
    if not topic:
        raise BadName("a queue has no name; it takes 1 to 255 bytes")
    if len(topic) > _TOPIC_LENGTH_MAX:
        topic = f"{topic[:_LONG_KEPT]}._-{sha256(queue.encode()).hexdigest()}"
    return topic


def namespace_of(vhost: str) -> str:
    """The namespace of a virtual host: that of `/` is `default`. Raises BadName."""
    return "default" if vhost in ("", "/") else check_name(vhost, "namespace")
