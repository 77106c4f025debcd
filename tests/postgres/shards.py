"""What tests of statements need: sheets, a node that owns, other threads, and statements that are held up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg

from mqueue.log.postgres.appends import Sheet
from mqueue.log.postgres.catalog import make_topic
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.owning import beat, own

R = TypeVar("R")
DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
LONG_MS = 600_000
DEADLINE_SECONDS = 120
_IDS = count(1, 4096)


def sheet(topic: int, partition: int = 0, count: int = 3, **other: Any) -> Sheet:
    base_id = other.pop("base_id", None) or next(_IDS)
    given = {"vshard": 4, "map_epoch": 1, "size": 10 * count, "head": b"head", "body": b"body"} | other
    return Sheet(topic=topic, partition=partition, count=count, base_id=base_id, **given)


def new_topic(link: Link, name: str, vshard: int, **other: Any) -> int:
    made = make_topic(link, "default", name, vshard, b"settings", 1000, **other)
    assert made is not None
    return made[0].id


def owner_of(link: Link, *vshards: int, node: int = 1) -> tuple[UUID, dict[int, int]]:
    """A node that owns virtual shards, and the epochs."""
    owner = uuid4()
    assert beat(link, owner, node, f"node{node}:80", LONG_MS)
    return owner, own(link, owner, vshards)


def end_session(link: Link, owner: UUID) -> None:
    """As if it had not been renewed for too long."""
    link.call("update mqueue.sessions set until = clock_timestamp() where owner = %b", (owner,))


def frames_in(link: Link) -> int:
    return int(link.call("select count(*) from mqueue.frames")[0][0])


def in_thread(job: Callable[[], R]) -> Future[R]:
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def together(jobs: Sequence[Callable[[], R]]) -> list[R]:
    """Begin them at once; their results."""
    barrier = threading.Barrier(len(jobs))

    def held(job: Callable[[], R]) -> Callable[[], R]:
        def run() -> R:
            barrier.wait(DEADLINE_SECONDS)
            return job()

        return run

    futures = [in_thread(held(job)) for job in jobs]
    return [future.result(DEADLINE_SECONDS) for future in futures]


@contextmanager
def open_transaction(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that somebody forgets to end; what it did is committed in the end."""
    with psycopg.connect(url) as connection:
        yield connection


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(DEADLINE_SECONDS * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to pass")


def waits(looker: Link, waiting: Link) -> None:
    """Come back when a statement of `waiting` waits for a lock."""
    wait_until(
        lambda: bool(
            looker.call(
                "select 1 from pg_stat_activity where application_name = %b::text and wait_event_type = 'Lock'",
                (f"mqueue:{waiting.name}",),
            )
        )
    )
