"""mqueue: a priority message queue that replays like a log.

q = mqueue.Broker()
q.publish("orders", {"n": 1}, priority="high")
for m in q.receive("orders", limit=10):
    with m:
        print(m.json())
"""

from mqueue.broker.broker import Broker
from mqueue.broker.consume import Subscription
from mqueue.broker.dlq import DeadMessage, Dlq, Redrive
from mqueue.broker.explain import Explanation, Trace, TraceEvent
from mqueue.broker.message import AsyncMessage, Message
from mqueue.broker.numbers import GroupStats, TopicStats
from mqueue.broker.settle import Settlement
from mqueue.broker.tables import ArrowLease
from mqueue.model.errors import (
    Backpressure,
    BadFrame,
    BadName,
    BadPriority,
    BadSetting,
    BadTime,
    Closed,
    Conflict,
    Corrupt,
    DiskFull,
    Error,
    Expired,
    Forbidden,
    InUse,
    LeaseLost,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Refused,
    ShardDown,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from mqueue.model.limits import Limits
from mqueue.model.message import Draft, Receipt

__version__ = "0.1.0"

__all__ = [
    "ArrowLease",
    "AsyncMessage",
    "Backpressure",
    "BadFrame",
    "BadName",
    "BadPriority",
    "BadSetting",
    "BadTime",
    "Broker",
    "Closed",
    "Conflict",
    "Corrupt",
    "DeadMessage",
    "DiskFull",
    "Dlq",
    "Draft",
    "Error",
    "Expired",
    "Explanation",
    "Forbidden",
    "GroupStats",
    "InUse",
    "LeaseLost",
    "Limits",
    "Message",
    "NotFound",
    "QueueFull",
    "QuotaExceeded",
    "Receipt",
    "Redrive",
    "Refused",
    "Settlement",
    "ShardDown",
    "Subscription",
    "TooLarge",
    "TopicStats",
    "Trace",
    "TraceEvent",
    "Unauthorized",
    "Unavailable",
]
