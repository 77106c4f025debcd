"""SIGTERM and SIGINT, as a call inside the event loop. Only the main thread hears them; elsewhere this does nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(call: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, `call(name)` for each of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, call, number.name)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
