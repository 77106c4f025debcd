"""Writes src/mqueue/client/sync.pyi, what type checkers see of `Client`: `python -m tools.client_stub`."""

from __future__ import annotations

from tools.stubs import SRC, Stub

from mqueue.client import sync

STUB = Stub(
    SRC / "client/sync.pyi",
    '"""Made by tools/client_stub.py from the async classes: do not edit."""\n\n',
    sync,
    (sync.ClientLease, sync.ClientDlq, sync.ClientSchedules, sync.Producer, sync.Client),
    {
        "DeadMessage": "from mqueue.broker.message import DeadMessage",
        "Iterator": "from collections.abc import Iterator",
        "Message": "from mqueue.broker.message import Message",
        "Subscription": "from mqueue.broker.consume import Subscription",
        "concurrent": "import concurrent.futures",
    },
)

if __name__ == "__main__":
    STUB.write()
