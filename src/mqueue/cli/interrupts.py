"""Ctrl-C and SIGTERM, heeded between calls: a call that is cut in the middle leaves a directory to be opened anew.

Where nothing can be broken (waiting for input, printing) they strike at once; so does the second one, wherever it is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    def __init__(self) -> None:
        self._told = False
        self._free = False

    def check(self) -> None:
        """Stop here if we were told to."""
        if self._told:
            raise KeyboardInterrupt

    @contextmanager
    def free(self) -> Iterator[None]:
        """A block that may be stopped anywhere."""
        self._free = True
        try:
            self.check()
            yield
        finally:
            self._free = False

    def _hear(self, *signal_and_frame: Any) -> None:
        at_once = self._told or self._free
        self._told = True
        if at_once:
            raise KeyboardInterrupt


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Listen for them while the block runs. Only the main thread hears signals; elsewhere nobody is told anything."""
    heard = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = [signal.signal(number, heard._hear) for number in _SIGNALS]
    try:
        yield heard
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
