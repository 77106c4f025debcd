"""Servers that clients of RabbitMQ connect to, and what tests of them share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from msgspec.structs import replace
from pika.adapters.blocking_connection import BlockingChannel

from mqueue.config import Address, Config
from mqueue.testing.server import RunningServer

PATIENCE_SECONDS = 120.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def config(directory: Path | None = None) -> Config:
    """In memory, or on disk."""
    plain = Config()
    data = plain.data if directory is None else replace(plain.data, dir=str(directory))
    return replace(plain, server=replace(plain.server, amqp=Address("127.0.0.1", 0)), data=data)


@contextmanager
def serving(directory: Path | None = None) -> Iterator[RunningServer]:
    with RunningServer(config(directory), memory=directory is None) as server:
        yield server


def port_of(server: RunningServer) -> int:
    return server.addresses["amqp"].port


def parameters(port: int, vhost: str = "/", **more: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, vhost, blocked_connection_timeout=PATIENCE_SECONDS, **more)


@contextmanager
def connected(port: int, vhost: str = "/", **more: Any) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(parameters(port, vhost, **more))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def take(channel: BlockingChannel, queue: str, count: int, ack: bool = True) -> list[tuple[Any, Any, bytes]]:
    """The next messages, by a consumer."""
    found: list[tuple[Any, Any, bytes]] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE_SECONDS):
        assert method is not None, f"{len(found)} of {count} messages of {queue} came"
        found.append((method, properties, body))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def eventually(connection: pika.BlockingConnection, done: Callable[[], bool]) -> None:
    """Until something is so; the connection is served meanwhile."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        connection.process_data_events(0.01)
