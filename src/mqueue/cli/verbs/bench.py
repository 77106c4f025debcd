"""A quick look at how fast a server is, from here: publish, receive, ack. Real numbers are in docs/benchmarks.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated
from uuid import uuid4

import typer

from mqueue.cli.progress import progress
from mqueue.cli.session import Queue, Session
from mqueue.cli.verb import RUN, verb

COLUMNS = ("what", "messages", "seconds", "per_second", "mb_per_second")


def add(app: typer.Typer) -> None:
    verb(app, "bench", RUN)(bench)


def bench(
    session: Session,
    messages: Annotated[int, typer.Option("--messages", "-m", min=1, max=10_000_000, help="How many.")] = 10_000,
    size: Annotated[int, typer.Option("--size", "-s", min=0, max=1024 * 1024, help="Bytes of each.")] = 100,
    batch: Annotated[int, typer.Option("--batch", "-b", min=1, max=10_000, help="Messages of one call.")] = 1000,
) -> None:
    """Measure publish, receive and ack, one call after the other, in a topic made for it and deleted afterwards."""
    queue, topic = session.queue, f"bench-{uuid4().hex}"
    payload = b"x" * size
    try:
        records = [
            _timed("publish", messages, size, batch, lambda room: _publish(queue, topic, payload, room)),
            _timed("receive and ack", messages, size, batch, lambda room: _receive(queue, topic, room)),
        ]
    finally:
        if topic in queue.topics():
            queue.delete_topic(topic)
    session.printer.rows(COLUMNS, records)


def _timed(what: str, messages: int, size: int, batch: int, step: Callable[[int], int]) -> dict[str, object]:
    done = 0
    began = time.perf_counter()
    with progress(what, messages) as tick:
        while done < messages and (more := step(min(batch, messages - done))):
            done += more
            tick(more)
    seconds = max(time.perf_counter() - began, 1e-9)
    rate = done / seconds
    return {"what": what, "messages": done, "seconds": seconds, "per_second": rate, "mb_per_second": rate * size / 1e6}


def _publish(queue: Queue, topic: str, payload: bytes, room: int) -> int:
    return len(queue.publish_many(topic, [payload] * room))


def _receive(queue: Queue, topic: str, room: int) -> int:
    messages = queue.receive(topic, room)
    return queue.ack(messages).settled
