"""What a cluster is measured against: a queue with a row for each message, taken with SKIP LOCKED.

Written as one would write it today: batches are one statement, a partial index finds what is free, every statement is
prepared and durable when it returns. It has no server between: those who ask it talk to PostgreSQL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import psycopg

_TABLE = """
create table if not exists jobs (
  id bigint generated always as identity primary key, priority int not null default 5, payload bytea not null,
  attempts int not null default 0, leased_until timestamptz not null default '-infinity');
create index if not exists jobs_free on jobs (priority, id);
"""
_PUBLISH = "insert into jobs (payload) select unnest(%b::bytea[])"
_RECEIVE = """
update jobs set leased_until = now() + interval '30 s', attempts = attempts + 1 where id in (
  select id from jobs where leased_until < now() order by priority, id limit %b for update skip locked)
returning id, payload
"""
_ACK = "delete from jobs where id = any(%b::bigint[])"


class RowQueue:
    """So many connections, each with a thread: publish a batch, receive one, ack it, again and again."""

    def __init__(self, url: str, workers: int) -> None:
        self._links = [psycopg.connect(url, autocommit=True, prepare_threshold=0) for _ in range(workers)]
        self._links[0].execute(_TABLE, prepare=False)
        self._threads = ThreadPoolExecutor(workers)

    def close(self) -> None:
        self._threads.shutdown()
        for link in self._links:
            link.close()

    def rate(self, payloads: Sequence[bytes], seconds: float) -> float:
        """Messages published, received and acked in a second."""
        return self._rate(lambda link: _cycle(link, payloads), len(payloads), seconds)

    def publish_rate(self, payloads: Sequence[bytes], seconds: float) -> float:
        return self._rate(lambda link: link.execute(_PUBLISH, (list(payloads),)), len(payloads), seconds)

    def _rate(self, turn: Callable[[psycopg.Connection], object], count: int, seconds: float) -> float:
        begin = threading.Barrier(len(self._links))
        started = perf_counter()

        def work(link: psycopg.Connection) -> int:
            begin.wait()
            turns = 0
            while not turns or perf_counter() - started < seconds:
                turn(link)
                turns += 1
            return turns

        done = sum(self._threads.map(work, self._links))
        return done * count / (perf_counter() - started)


def _cycle(link: psycopg.Connection, payloads: Sequence[bytes]) -> None:
    link.execute(_PUBLISH, (list(payloads),), binary=True)
    found = link.execute(_RECEIVE, (len(payloads),), binary=True).fetchall()
    link.execute(_ACK, ([id for id, _ in found],), binary=True)
