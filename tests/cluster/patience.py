"""Waiting in tests of a cluster: for what comes to pass by itself, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_SECONDS = 120
_LOOK_SECONDS = 0.05


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_SECONDS / _LOOK_SECONDS)):
        if condition():
            return
        threading.Event().wait(_LOOK_SECONDS)
    raise AssertionError(f"it did not come to pass within {PATIENCE_SECONDS} seconds")
