"""The beat of a node at one PostgreSQL server: its session is renewed once a second, whatever the node is busy with.

Lives in a thread of its own: the loop of the estate may wait for the server, or have much to do. A loop that does
nothing at all for longer than anything takes there delivers nothing, either: there is no beat then, others take over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from mqueue.cluster import tenure
from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.cluster")
STILL_SECONDS = 60.0
"""A statement takes ten at most, and some may come one after the other."""


class Pulse:
    """`beat` renews the session. `soon` has something done in the loop: there `told` is called after each beat, also
    one that failed or was left out."""

    def __init__(
        self, name: str, beat: Callable[[], None], soon: Callable[[Callable[[], None]], None], told: Callable[[], None]
    ) -> None:
        self._name = name
        self._beat = beat
        self._soon = soon
        self._told = told
        self._heard_at = 0.0
        """When the loop did something last."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._walk, name=f"mqueue-{name}-beat", daemon=True)

    def start(self) -> None:
        self._heard_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """There is one more at most, if it is under way."""
        self._over.set()

    def close(self) -> None:
        self.stop()
        if self._thread.is_alive():
            self._thread.join()

    def _walk(self) -> None:
        trouble = ""
        while not self._over.wait(tenure.BEAT_SECONDS):
            if time.monotonic() - self._heard_at < STILL_SECONDS:
                trouble = self._tried(trouble)
            self._soon(self._hear)

    def _tried(self, told: str) -> str:
        """What went wrong, to be said once: `told` was."""
        try:
            self._beat()
        except Error as problem:
            if problem.message != told:
                LOGGER.warning("%s: %s", self._name, problem)
            return problem.message
        except Exception:
            LOGGER.exception("%s: a beat failed", self._name)
        return ""

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        if not self._over.is_set():  # else the session was ended, maybe, by who is closing
            self._told()
