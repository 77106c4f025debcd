"""Message move tasks: what lies in a dead-letter queue goes back to where it died, or to another queue.

A task is written down in a label of the queue it empties, so every node can list and cancel it:

    sqs.move.<started, ms>     {"status","moved","total","at","destination","rate","reason"}, written by who works on it
    sqs.cancel.<started, ms>   somebody wants it to end: a label of its own, so that neither overwrites the other

One node works on it: it receives, publishes with an idempotency key made from the id, and acks; what is moved twice
after a crash is stored once. A task whose node has not written for a while has failed, and can be started again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.message import AsyncMessage
from mqueue.model.errors import Error, NotFound
from mqueue.model.message import Draft
from mqueue.model.names import is_dlq
from mqueue.server.http.call import Call
from mqueue.server.http.service import Service
from mqueue.server.http.sqs.carrying import SOURCE, carry, far_sources
from mqueue.server.http.sqs.errors import Fault
from mqueue.server.http.sqs.naming import Place, place_of_arn
from mqueue.server.http.sqs.queues import calls_of
from mqueue.server.security.principal import Principal
from mqueue.wire import json_sqs as wire
from mqueue.wire.story import STORY

LOGGER = logging.getLogger("mqueue.server")
MOVE = "sqs.move."
CANCEL = "sqs.cancel."
KEPT = 10
"""So many tasks of a queue are remembered."""
SILENT_MS_MAX = 60_000
"""Who has not written for so long works no more."""
_RATE_MAX = 500
_STEP = 100
_BEAT_MS = 2_000


class Task(Struct, omit_defaults=True):
    """As it is written down."""

    status: str
    at: int
    """When its node wrote last."""
    total: int
    moved: int = 0
    destination: str | None = None
    rate: int | None = None
    reason: str | None = None

    def seen(self, now: int, cancelled: bool) -> Task:
        """As it is by now."""
        if self.status == "RUNNING" and now - self.at > SILENT_MS_MAX:
            self.status, self.reason = "FAILED", "the server that moved the messages has stopped; start it again"
        elif self.status == "RUNNING" and cancelled:
            self.status = "CANCELLING"
        return self


class _Handle(Struct, array_like=True):
    started: int
    source: str


_TASK = msgspec.json.Decoder(Task)
_HANDLE = msgspec.json.Decoder(_Handle)


async def start(call: Call, asked: wire.MoveIn) -> wire.MoveOut:
    source = place_of_arn(asked.source_arn)
    calls = calls_of(call, source, "manage")
    labels = await _labels(calls, source)
    if not is_dlq(source.name) and not any(name.startswith(SOURCE) for name in labels):
        raise Fault("InvalidParameterValue", f"{source.arn} is the dead-letter queue of no other queue")
    await _check(call, calls, asked, source)
    await carry(calls, source, far_sources(labels))
    now = call.service.clock.now()
    tasks = _tasks(labels, now)
    if any(task.status in ("RUNNING", "CANCELLING") for task in tasks.values()):
        raise Fault("UnsupportedOperation", f"messages of {source.arn} are being moved already")
    started = max([now, *(number + 1 for number in tasks)])
    stats = await calls.stats(source.name)
    group = stats.groups.get("default")
    total = stats.ready if group is None else group.ready
    task = Task("RUNNING", now, total, 0, asked.destination_arn, asked.max_number_of_messages_per_second)
    old = sorted(tasks)[: max(0, len(tasks) - KEPT + 1)]
    dropped = {f"{kind}{number}": None for number in old for kind in (MOVE, CANCEL)}
    await calls.configure(source.name, labels={**dropped, **_noted(started, task)})
    _set_out(call.service, Mover(call.service, source, started, task, call.principal))
    return wire.MoveOut(_handle(started, source))


async def _check(call: Call, calls: AsyncBroker, asked: wire.MoveIn, source: Place) -> None:
    rate = asked.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= _RATE_MAX:
        raise Fault("InvalidParameterValue", f"MaxNumberOfMessagesPerSecond {rate}; it takes 1 to {_RATE_MAX}")
    if asked.destination_arn is not None:
        target = place_of_arn(asked.destination_arn)
        if target.namespace != source.namespace or target.name == source.name:
            raise Fault("InvalidParameterValue", f"{target.arn} is not another queue of the same account")
        call.demand("publish", target.namespace, target.name)
        await _labels(calls, target)


async def listed(call: Call, asked: wire.MovesIn) -> wire.MovesOut:
    source = place_of_arn(asked.source_arn)
    calls = calls_of(call, source, "read")
    most = 1 if asked.max_results is None else asked.max_results
    if not 1 <= most <= KEPT:
        raise Fault("InvalidParameterValue", f"MaxResults {most}; it takes 1 to {KEPT}")
    tasks = _tasks(await _labels(calls, source), call.service.clock.now())
    return wire.MovesOut([_shown(number, tasks[number], source) for number in sorted(tasks, reverse=True)[:most]])


async def cancel(call: Call, asked: wire.CancelIn) -> wire.CancelledOut:
    try:
        handle = _HANDLE.decode(base64.urlsafe_b64decode(asked.task_handle.encode()))
    except (msgspec.MsgspecError, ValueError):
        raise Fault("ResourceNotFoundException", "there is no such task", 404) from None
    source = place_of_arn(handle.source)
    calls = calls_of(call, source, "manage")
    task = _tasks(await _labels(calls, source), call.service.clock.now()).get(handle.started)
    if task is None or task.status != "RUNNING":
        raise Fault("ResourceNotFoundException", "there is no such task, or it does not run any more", 404)
    await calls.configure(source.name, labels={f"{CANCEL}{handle.started}": ""})
    return wire.CancelledOut(task.moved)


class Mover:
    """One task at work."""

    def __init__(self, service: Service, source: Place, started: int, task: Task, principal: Principal) -> None:
        self._service = service
        self._calls = service.calls(source.namespace)
        self._source = source
        self._started = started
        self._task = task
        self._principal = principal

    async def run(self) -> None:
        """To its end: all that was there is moved, somebody cancelled it, or it cannot be done."""
        task = self._task
        try:
            while task.status == "RUNNING":
                if not await self._step():
                    task.status = "COMPLETED"
                elif await self._is_cancelled():
                    task.status = "CANCELLED"
        except Error as error:
            task.status, task.reason = "FAILED", error.message[:500]
        await self._note()

    async def _step(self) -> bool:
        """Some messages; whether there was something to move."""
        task = self._task
        limit = min(_STEP, task.rate or _STEP, task.total - task.moved)
        messages = await self._calls.receive(self._source.name, limit) if limit > 0 else []
        if not messages:
            return False
        try:
            await self._publish(messages)
        except Error:
            await self._calls.release(messages)
            raise
        await self._calls.ack(messages)
        task.moved += len(messages)
        if task.rate is not None:
            await asyncio.sleep(len(messages) / task.rate)
        return True

    async def _publish(self, messages: Sequence[AsyncMessage]) -> None:
        targets: dict[str, list[Draft]] = {}
        for message in messages:
            targets.setdefault(self._target(message), []).append(_draft(message))
        for name in targets:
            await self._calls.settings(name)  # one that was deleted is not made anew: it would be another queue
        for name, drafts in targets.items():
            await self._calls.publish_many(name, drafts)

    def _target(self, message: AsyncMessage) -> str:
        if self._task.destination is not None:
            return place_of_arn(self._task.destination).name
        origin = message.headers.get("x-origin-topic")
        if not isinstance(origin, str):
            raise NotFound(f"message {message.id} does not tell where it died; give a DestinationArn")
        self._principal.demand("publish", self._source.namespace, origin)
        return origin

    async def _is_cancelled(self) -> bool:
        """Looked up, and written down how far it is, every now and then."""
        now = self._service.clock.now()
        if now - self._task.at < _BEAT_MS and self._task.rate is None:
            return False
        if f"{CANCEL}{self._started}" in await _labels(self._calls, self._source):
            return True
        await self._note()
        return False

    async def _note(self) -> None:
        self._task.at = self._service.clock.now()
        await self._calls.configure(self._source.name, labels=_noted(self._started, self._task))


def _set_out(service: Service, mover: Mover) -> None:
    async def work() -> None:
        try:
            await mover.run()
        except Error as error:  # the queue is gone, or nobody can write down how it went
            LOGGER.warning("a message move task ended: %s", error)

    service.errand(lambda node: work())


def _draft(message: AsyncMessage) -> Draft:
    return Draft(
        message.payload,
        key=message.key,
        headers={name: value for name, value in message.headers.items() if name not in STORY},
        priority=message.priority,
        idempotency_key=f"sqs-move {message.id}",
        fairness_key=message.fairness_key,
    )


async def _labels(calls: AsyncBroker, place: Place) -> dict[str, str]:
    try:
        found: dict[str, Any] = await calls.settings(place.name)
    except NotFound:
        raise Fault("ResourceNotFoundException", f"there is no queue {place.arn}", 404) from None
    labels: dict[str, str] = found["labels"]
    return labels


def _tasks(labels: dict[str, str], now: int) -> dict[int, Task]:
    """By when they were started."""
    found: dict[int, Task] = {}
    for name, text in labels.items():
        number = name.removeprefix(MOVE)
        if number != name and number.isdecimal():
            found[int(number)] = _TASK.decode(text).seen(now, f"{CANCEL}{number}" in labels)
    return found


def _noted(started: int, task: Task) -> dict[str, str | None]:
    return {f"{MOVE}{started}": msgspec.json.encode(task).decode()}


def _handle(started: int, source: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Handle(started, source.arn))).decode()


def _shown(started: int, task: Task, source: Place) -> wire.MoveShownOut:
    return wire.MoveShownOut(
        task.status,
        source.arn,
        started,
        task.moved,
        _handle(started, source) if task.status == "RUNNING" else None,
        task.destination,
        task.rate,
        task.total,
        task.reason,
    )
