"""How a job that runs as a program is ended from outside, and what it lets others say on stderr meanwhile."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mqueue.model.exits import complaint

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_to_stop(stop: threading.Event | None) -> Iterator[None]:
    """SIGTERM and Ctrl-C set `stop`, and the job ends with its round; the second time, or without it, at once.

    To be entered once Spark runs: it takes Ctrl-C for itself when it starts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(number: int, frame: object) -> None:
        if stop is None or stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, told) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(complaint(record.getMessage()) + "\n")


@contextmanager
def only_ours() -> Iterator[None]:
    """Warnings of ours are a line each; what libraries log, such as stacks of calls that were interrupted, is not."""
    told, silence = _Told(logging.WARNING), logging.NullHandler()
    logging.getLogger("mqueue").addHandler(told)
    logging.getLogger().addHandler(silence)
    try:
        yield
    finally:
        logging.getLogger("mqueue").removeHandler(told)
        logging.getLogger().removeHandler(silence)
