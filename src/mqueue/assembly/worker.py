"""`mqueue.Worker`: a worker that connects by URL, as `connect_async` does, or uses a queue that is at hand."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from inspect import iscoroutinefunction
from typing import Any, cast

from mqueue.assembly.connect import connect_async, is_remote
from mqueue.client.worker.app import App
from mqueue.client.worker.queue import Queue
from mqueue.model.clock import Clock
from mqueue.model.errors import BadSetting
from mqueue.model.names import check_consumer
from mqueue.model.times import Duration


class Worker(App):
    """Calls handlers for messages and settles by what comes of it. `url`, or `MQUEUE_URL`, is looked at when it runs.

    `name`: what it is called in traces, host and process unless given. `queue`: an `AsyncBroker` or `AsyncClient` to be
    used instead of a url; it is not closed. `drain`: how long handlers may go on once it was told to stop. `assigned`:
    handlers are members of assigned groups, each with partitions of its own; `member`: an id that keeps them over a
    restart. `telemetry`: as of a client; each message that a handler is called for is a span.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int | None = None,
        name: str | None = None,
        drain: Duration = "30s",
        queue: Queue | None = None,
        clock: Clock | None = None,
        assigned: bool = False,
        member: str | None = None,
        telemetry: Any = False,
    ) -> None:
        super().__init__(
            _opening(url, name, queue, telemetry),
            concurrency=concurrency,
            drain=drain,
            clock=clock,
            assigned=assigned,
            member=member,
            telemetry=telemetry,
        )


def _opening(
    url: str | None, name: str | None, queue: Queue | None, telemetry: Any
) -> Callable[[], AbstractAsyncContextManager[Queue]]:
    if queue is not None:
        if url is not None:
            raise BadSetting("a worker takes a url or a queue, not both")
        if not iscoroutinefunction(getattr(queue, "receive", None)):
            raise BadSetting(f"queue {queue!r:.80}; it takes an AsyncBroker or an AsyncClient")
        return lambda: nullcontext(queue)
    if name is not None:
        check_consumer(name)

    def opening() -> AbstractAsyncContextManager[Queue]:
        settings: dict[str, Any] = {"name": name or _host_and_process()}
        if telemetry is not False and is_remote(url):  # an embedded broker makes no calls that could be spans
            settings["telemetry"] = telemetry
        return cast(AbstractAsyncContextManager[Queue], connect_async(url, **settings))

    return opening


def _host_and_process() -> str:
    return f"{socket.gethostname()[:200]}-{os.getpid()}"
