"""Writes src/mqueue/broker/aio.pyi, what type checkers see of the async classes: `python -m tools.async_stub`."""

from __future__ import annotations

from tools.stubs import SRC, Stub

from mqueue.broker import aio

STUB = Stub(
    SRC / "broker/aio.pyi",
    '"""Made by tools/async_stub.py from the sync classes: do not edit."""\n\n',
    aio,
    (aio.AsyncArrowLease, aio.AsyncDlq, aio.AsyncSchedules, aio.AsyncBroker),
    {
        "AsyncDeadMessage": "from mqueue.broker.message import AsyncDeadMessage",
        "AsyncIterator": "from collections.abc import AsyncIterator",
        "AsyncMessage": "from mqueue.broker.message import AsyncMessage",
        "AsyncSubscription": "from mqueue.broker.loop import AsyncSubscription",
    },
)

if __name__ == "__main__":
    STUB.write()
