"""What a reader tells of what is parked, where somebody decides whose turn it is."""

from __future__ import annotations

from typing import Protocol

from mqueue.heart.runs import Run


class Watcher(Protocol):
    """Who decides whose turn it is, and so has to know what is parked: see `turns`."""

    def park(self, run: Run) -> None: ...

    def offer(self, run: Run) -> None: ...

    def release(self, run: Run, count: int) -> None: ...

    def lost(self, run: Run, count: int) -> None: ...
