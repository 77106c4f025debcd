"""Threads that publish, read tables and scan at the same time: nothing is torn, nothing is lost, nobody hangs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mqueue

COUNT = 6_000


def run_all(*works: Callable[[], Any]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive(), "a thread hangs"
    assert not errors, errors


def test_tables_and_scans_of_a_topic_that_is_published_to() -> None:
    q = mqueue.Broker()
    done: list[bytes] = []

    def publish(who: int) -> None:
        for number in range(COUNT):
            q.publish("t", b"%d-%d" % (who, number))

    def consume() -> None:
        while len(done) < 2 * COUNT:
            lease = q.receive_arrow("t", limit=50, wait="1s")
            done.extend(lease.table["payload"].to_pylist())
            assert lease.table.num_rows == len(lease) == lease.ack().settled

    def scan() -> None:
        while len(done) < 2 * COUNT:
            for batch in q.scan_arrow("t"):
                batch.validate(full=True)

    run_all(lambda: publish(0), lambda: publish(1), consume, scan)
    wanted = sorted(b"%d-%d" % (who, number) for who in range(2) for number in range(COUNT))
    assert sorted(done) == wanted
    assert sorted(m.payload for m in q.scan("t")) == wanted
    late: list[bytes] = []
    while messages := q.receive("t", limit=1000, group="late"):
        late += [m.payload for m in messages]
        q.ack(messages)
    assert sorted(late) == wanted


@pytest.fixture
def _little_garbage() -> Iterator[None]:
    """The collector looks at nothing that was there before: behind a thousand other tests it takes its time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_little_garbage")
def test_a_consumer_that_the_garbage_collector_ends_blocks_nobody() -> None:
    q = mqueue.Broker()
    q.publish_many("t", [b"x"] * 200)

    class Loop:
        """Refers to itself, so only the collector can end its generator."""

        def __init__(self) -> None:
            self.me = self
            self.messages = q.consume("t", prefetch=1)
            next(self.messages)

    def work() -> None:
        for _ in range(100):
            Loop()
            gc.collect()

    run_all(work)
    loop = Loop()
    with q._engine.lock:  # the collector may come while somebody holds the lock
        del loop
        gc.collect()
    assert q.stats("t").leased == 0
    assert len(q.receive("t", limit=1000)) == 200
