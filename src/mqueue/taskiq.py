"""A broker for Taskiq: tasks are messages of a topic, workers are consumers of a group.

    broker = MqueueBroker("http://127.0.0.1:8080")

    @broker.task(priority="high")
    async def ship(order: int) -> None: ...

    await ship.kicker().with_labels(delay="5m").kiq(7)

Stands on the calls that users have, so it works with a server, a directory or in memory. A task is acked when Taskiq
says so, and until then its lease is kept; a worker that dies gives back what it had. Does not know what a task does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from mqueue.assembly.connect import connect_async
from mqueue.broker.message import AsyncMessage
from mqueue.model.errors import Closed, LeaseLost
from mqueue.model.times import Duration

LOGGER = logging.getLogger("mqueue")
HEEDED = ("delay", "fairness_key", "key", "priority", "ttl")
"""Labels of a task that say how it is published; the others are the task's own."""


class MqueueBroker(AsyncBroker):
    """`url` and further settings as those of `mqueue.connect_async`; `prefetch`: so many tasks a worker holds."""

    def __init__(
        self,
        url: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "default",
        prefetch: int = 100,
        visibility: Duration | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._url, self._settings = url, settings
        self._topic, self._group = topic, group
        self._prefetch, self._visibility = prefetch, visibility
        self._queue: Any = None
        """An `AsyncBroker` or `AsyncClient` of ours, while it runs."""

    async def startup(self) -> None:
        if self._queue is None:
            self._queue = await connect_async(self._url, **self._settings)
        await super().startup()

    async def shutdown(self) -> None:
        await super().shutdown()
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Durable on return."""
        told = {name: _value(name, message.labels[name]) for name in HEEDED if message.labels.get(name) is not None}
        headers = {"task": message.task_name, "task-id": message.task_id}
        await self._running().publish(self._topic, message.message, headers=headers, **told)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks without end, each under a lease that is kept until it is acked."""
        asked = {"group": self._group, "prefetch": self._prefetch, "visibility": self._visibility}
        async for message in self._running().consume(self._topic, **asked):
            yield AckableMessage(data=message.payload, ack=_acking(message))

    def _running(self) -> Any:
        if self._queue is None:
            raise Closed("the broker does not run; await startup() first")
        return self._queue


def _acking(message: AsyncMessage) -> Callable[[], Any]:
    async def ack() -> None:
        try:
            await message.ack()
        except LeaseLost as error:  # the worker stood still for too long: somebody else has the task by now
            LOGGER.warning("a task was done, and will be done again: %s", error)

    return ack


def _value(name: str, given: Any) -> Any:
    """Taskiq makes text of the labels of a task on their way: here numbers are numbers again."""
    if name in ("key", "fairness_key"):
        return str(given)
    if isinstance(given, str):
        try:
            return int(given) if name == "priority" else float(given)
        except ValueError:  # a lane by its name, a duration with its unit
            return given
    return given
