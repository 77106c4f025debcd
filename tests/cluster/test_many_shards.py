"""All 1024 virtual shards at once, with a topic on each: one node delivers all of them, another takes all over, a third
gets them handed over. Prints what it took (`-s`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mqueue
from mqueue.log.postgres import owning
from mqueue.log.postgres.link import Link
from mqueue.policy.routing import VIRTUAL_SHARDS, virtual_shard
from mqueue.testing import NodeServer, PostgresServer
from tests.cluster.chaos.watching import Use, use_of
from tests.cluster.patience import wait_until

MESSAGES = 3
DOUBT = "everything owned there is forgotten"
WORKERS = 8


def topics() -> list[str]:
    """One for each virtual shard."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < VIRTUAL_SHARDS:
        name = f"t{number}"
        found.setdefault(virtual_shard("default", name), name)
        number += 1
    return list(found.values())


def told(what: str, seconds: float, use: Use) -> None:
    print(f"{what}: {seconds:.1f} s; {use.memory_mb:.0f} MB, {use.files} files, {use.threads} threads", file=sys.stderr)


@pytest.fixture
def node(database: str, tmp_path: Path) -> Iterator[NodeServer]:
    with NodeServer({"cluster.databaseUrls": [database]}, tmp_path / "first") as node:
        yield node


def owned(link: Link, node: NodeServer) -> int:
    return sum(address == node.url for _, _, _, address, _ in owning.owners(link))


def received(node: NodeServer, names: list[str], acked: bool) -> dict[str, bytes]:
    """From each topic one message, acked or given back."""

    def one(name: str) -> bytes:
        (message,) = client.receive(name, wait="60s")
        if acked:
            message.ack()
        else:
            message.release()
        return bytes(message.payload)

    with mqueue.Client(node.url, timeout="120s") as client, ThreadPoolExecutor(WORKERS) as threads:
        return dict(zip(names, threads.map(one, names), strict=True))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_one_node_delivers_from_all_virtual_shards_and_another_follows(
    node: NodeServer, database: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    names = topics()
    link = Link(database, "test")
    try:
        begun = time.monotonic()
        with mqueue.Client(node.url, timeout="120s") as client, ThreadPoolExecutor(WORKERS) as threads:
            drafts = [b"%d" % number for number in range(MESSAGES)]
            list(threads.map(lambda name: client.publish_many(name, drafts), names))
        told(f"{VIRTUAL_SHARDS} topics published to", time.monotonic() - begun, use_of(node))
        begun = time.monotonic()
        assert set(received(node, names, acked=True).values()) == {b"0"}
        told("all delivered and acked", time.monotonic() - begun, use_of(node))
        assert owned(link, node) == VIRTUAL_SHARDS
        begun = time.monotonic()
        node.kill()
        with NodeServer({"cluster.databaseUrls": [database]}, tmp_path / "second") as second:
            told("another has started after kill -9", time.monotonic() - begun, use_of(second))
            wait_until(lambda: owned(link, second) == VIRTUAL_SHARDS)
            told("all of them owned by another", time.monotonic() - begun, use_of(second))
            assert set(received(second, names, acked=True).values()) == {b"1"}
            told("all of them delivered by another", time.monotonic() - begun, use_of(second))
            assert DOUBT not in second.log.read_text(), "its beat was late"
            with NodeServer({"cluster.databaseUrls": [database]}, tmp_path / "third") as third:
                wait_until(lambda: owned(link, third) == VIRTUAL_SHARDS // 2)
                begun = time.monotonic()
                second.stop()
                told("told to stop, with half of them", time.monotonic() - begun, use_of(third))
                wait_until(lambda: owned(link, third) == VIRTUAL_SHARDS)
                assert set(received(third, names, acked=True).values()) == {b"2"}
                told("all of them delivered after that", time.monotonic() - begun, use_of(third))
                assert DOUBT not in third.log.read_text()
    finally:
        link.close()
