"""mqueue: a priority message queue that replays like a log.

q = mqueue.Broker()
q.publish("orders", {"n": 1}, priority="high")
for m in q.receive("orders", limit=10):
    with m:
        print(m.json())
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    Poisoned,
    QueueFull,
    QuotaExceeded,
    Refused,
    ShardDown,
    Stopping,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from mqueue.model.limits import Limits
from mqueue.model.message import Draft, Receipt

if TYPE_CHECKING:
    from mqueue.assembly.connect import connect, connect_async
    from mqueue.assembly.worker import Worker
    from mqueue.broker.aio import AsyncArrowLease, AsyncBroker, AsyncDlq, AsyncSchedules
    from mqueue.broker.bounds import PartitionOffsets
    from mqueue.broker.broker import Broker
    from mqueue.broker.consume import Subscription
    from mqueue.broker.cursors import Cursor
    from mqueue.broker.dlq import Dlq
    from mqueue.broker.explain import Explanation, Trace, TraceEvent
    from mqueue.broker.loop import AsyncSubscription
    from mqueue.broker.members import GroupMembers, Membership
    from mqueue.broker.message import AsyncDeadMessage, AsyncMessage, DeadMessage, Message
    from mqueue.broker.numbers import GroupStats, TopicStats
    from mqueue.broker.redrive import Deletion, Redrive
    from mqueue.broker.schedules import Schedule, Schedules
    from mqueue.broker.settle import Settlement
    from mqueue.broker.sorting import DeadErrors
    from mqueue.broker.tables import ArrowLease
    from mqueue.broker.transact import StagedPart, Transaction
    from mqueue.client.aio import AsyncClient
    from mqueue.client.dlq import AsyncClientDlq
    from mqueue.client.producer import AsyncProducer
    from mqueue.client.schedules import AsyncClientSchedules
    from mqueue.client.sync import Client, ClientDlq, ClientLease, ClientSchedules, Producer
    from mqueue.client.tables import AsyncClientLease
    from mqueue.client.worker.verdict import Reject, Retry
    from mqueue.log.segments.storage import Storage

__version__ = "0.1.0"

__all__ = [
    "ArrowLease",
    "AsyncArrowLease",
    "AsyncBroker",
    "AsyncClient",
    "AsyncClientDlq",
    "AsyncClientLease",
    "AsyncClientSchedules",
    "AsyncDeadMessage",
    "AsyncDlq",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncSchedules",
    "AsyncSubscription",
    "Backpressure",
    "BadFrame",
    "BadName",
    "BadPriority",
    "BadSetting",
    "BadTime",
    "Broker",
    "Client",
    "ClientDlq",
    "ClientLease",
    "ClientSchedules",
    "Closed",
    "Conflict",
    "Corrupt",
    "Cursor",
    "DeadErrors",
    "DeadMessage",
    "Deletion",
    "DiskFull",
    "Dlq",
    "Draft",
    "Error",
    "Expired",
    "Explanation",
    "Forbidden",
    "GroupMembers",
    "GroupStats",
    "InUse",
    "LeaseLost",
    "Limits",
    "Membership",
    "Message",
    "NotFound",
    "PartitionOffsets",
    "Poisoned",
    "Producer",
    "QueueFull",
    "QuotaExceeded",
    "Receipt",
    "Redrive",
    "Refused",
    "Reject",
    "Retry",
    "Schedule",
    "Schedules",
    "Settlement",
    "ShardDown",
    "StagedPart",
    "Stopping",
    "Storage",
    "Subscription",
    "TooLarge",
    "TopicStats",
    "Trace",
    "TraceEvent",
    "Transaction",
    "Unauthorized",
    "Unavailable",
    "Worker",
    "connect",
    "connect_async",
]

# The broker stands on Arrow, which takes a third of a second to import. It is imported on first use, so that a program
# which only has mqueue installed (every pytest run loads the plugin) or only catches its errors does not pay for that.
_HOMES = {
    "ArrowLease": "broker.tables",
    "AsyncArrowLease": "broker.aio",
    "AsyncBroker": "broker.aio",
    "AsyncClient": "client.aio",
    "AsyncClientDlq": "client.dlq",
    "AsyncClientLease": "client.tables",
    "AsyncClientSchedules": "client.schedules",
    "AsyncDeadMessage": "broker.message",
    "AsyncDlq": "broker.aio",
    "AsyncMessage": "broker.message",
    "AsyncProducer": "client.producer",
    "AsyncSchedules": "broker.aio",
    "AsyncSubscription": "broker.loop",
    "Broker": "broker.broker",
    "Client": "client.sync",
    "ClientDlq": "client.sync",
    "ClientLease": "client.sync",
    "ClientSchedules": "client.sync",
    "Cursor": "broker.cursors",
    "DeadErrors": "broker.sorting",
    "DeadMessage": "broker.message",
    "Deletion": "broker.redrive",
    "Dlq": "broker.dlq",
    "Explanation": "broker.explain",
    "GroupMembers": "broker.members",
    "GroupStats": "broker.numbers",
    "Membership": "broker.members",
    "Message": "broker.message",
    "PartitionOffsets": "broker.bounds",
    "Producer": "client.sync",
    "Redrive": "broker.redrive",
    "Reject": "client.worker.verdict",
    "Retry": "client.worker.verdict",
    "Schedule": "broker.schedules",
    "Schedules": "broker.schedules",
    "Settlement": "broker.settle",
    "StagedPart": "broker.transact",
    "Storage": "log.segments.storage",
    "Subscription": "broker.consume",
    "TopicStats": "broker.numbers",
    "Trace": "broker.explain",
    "TraceEvent": "broker.explain",
    "Transaction": "broker.transact",
    "Worker": "assembly.worker",
    "connect": "assembly.connect",
    "connect_async": "assembly.connect",
}

if not TYPE_CHECKING:  # a type checker would take it for leave to use any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
