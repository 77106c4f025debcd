"""Threads that wait for a server, so that the loop of an estate need not. Each kind of work has its own: what is slow
holds up nothing but its like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Errands:
    def __init__(self, name: str, threads: int = 1) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"mqueue-{name}")

    async def __call__(self, call: Callable[..., T], *args: Any) -> T:
        """Something that waits for the server, done by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    def close(self) -> None:
        """What was begun is finished; nobody waits for the rest any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)
