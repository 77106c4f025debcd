"""Pytest fixtures for programs that use mqueue:

    def test_orders(broker, manual_clock):
        broker.publish("orders", b"1", delay="5m")
        manual_clock.advance("5m")
        assert broker.receive("orders")

Installing mqueue registers them. Every pytest run imports this file, so the broker is imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqueue import AsyncBroker, Broker
    from mqueue.testing import ManualClock, PostgresServer, RedisServer
    from mqueue.testing.server import RunningServer


@pytest.fixture
def manual_clock() -> ManualClock:
    """The clock behind `broker` and `async_broker`: `manual_clock.advance("5m")`."""
    from mqueue.testing import ManualClock

    return ManualClock()


@pytest.fixture
def broker(manual_clock: ManualClock) -> Iterator[Broker]:
    """A broker in memory whose time stands still until `manual_clock` is advanced."""
    from mqueue import Broker

    with Broker(clock=manual_clock) as broker:
        yield broker


@pytest.fixture
def async_broker(manual_clock: ManualClock) -> Iterator[AsyncBroker]:
    """The same for event loops. It belongs to no loop: it is closed after the test, whatever runs the test's loop."""
    from mqueue import AsyncBroker

    broker = AsyncBroker(clock=manual_clock)
    yield broker
    closing = broker.close()
    try:
        closing.send(None)  # in memory it completes at once, without a loop
    except StopIteration:
        return
    raise AssertionError("closing a broker in memory waits for nothing")


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server in memory on a free port of this machine, with the machine's clock: `server.url`."""
    from mqueue.testing.server import RunningServer

    with RunningServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests, started by the first to ask: `postgres_server.create("orders")` is a URL.

    It waits for no disk: what is committed is there after a kill, not after a power cut.
    """
    from mqueue.assembly.postgres import UNSYNCED
    from mqueue.testing import PostgresServer

    with PostgresServer(settings=UNSYNCED) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server for all tests, started by the first to ask: `redis_server.url()`, `redis_server.flush()`."""
    from mqueue.testing import RedisServer

    with RedisServer() as server:
        yield server
