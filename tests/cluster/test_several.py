"""Receiving from several topics: one that cannot be served takes nothing from the others, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import mqueue
from mqueue.cluster.crossing import Crossing
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.model.errors import Unavailable
from mqueue.policy.routing import virtual_shard
from mqueue.server.placing import placing
from mqueue.server.placing.placing import Placing
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

GOOD, BAD = "t0", "t1"
assert virtual_shard("default", GOOD) != virtual_shard("default", BAD)
PATIENCE_SECONDS = 20


@pytest.fixture
def node(database: str) -> Iterator[RunningServer]:
    with RunningServer(Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))) as node:
        yield node


@pytest.fixture
def client(node: RunningServer) -> Iterator[mqueue.Client]:
    with mqueue.Client(node.url, retry=False) as client:
        yield client


def troubled(monkeypatch: pytest.MonkeyPatch, trouble: Callable[[], Awaitable[None]]) -> None:
    """Whoever asks for one of the two topics gets into trouble."""
    ask = Placing._at_owner

    async def asked(self: Placing, call: Any, route: Any, vshard: int, *more: Any, **named: Any) -> Any:
        if route.path == "/v1/receive" and vshard == virtual_shard("default", BAD):
            await trouble()
        return await ask(self, call, route, vshard, *more, **named)

    monkeypatch.setattr(Placing, "_at_owner", asked)


async def nobody() -> None:
    raise Unavailable("nobody delivers", code="not_owner")


async def silence() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("trouble", [nobody, silence])
def test_a_topic_in_trouble_takes_nothing_from_the_others(
    client: mqueue.Client, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[], Awaitable[None]]
) -> None:
    """Whichever is asked first: every message is seen, at its first attempt, and with most of its lease left."""
    troubled(monkeypatch, trouble)
    client.configure(GOOD, max_retries=0)
    for number in range(4):
        client.publish(GOOD, str(number))
        begun = time.monotonic()
        [message] = client.receive([GOOD, BAD], visibility="2s", limit=10)
        assert (message.payload, message.attempt) == (str(number).encode(), 1)
        assert time.monotonic() - begun < 10
        message.ack()
    assert (client.stats(GOOD).dead, client.stats(GOOD).acked) == (0, 4)


def test_who_waits_for_several_gets_what_comes_to_one_of_them(
    client: mqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubled(monkeypatch, nobody)
    client.publish(GOOD, "later", delay="1s")
    [message] = client.receive([GOOD, BAD], wait="60s")
    assert message.payload == b"later"


def test_who_gets_nothing_is_told_why(client: mqueue.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time in which somebody may have been found."""
    troubled(monkeypatch, nobody)
    monkeypatch.setattr(placing, "_PATIENCE_SECONDS", 0.3)
    with pytest.raises(mqueue.Unavailable) as told:
        client.receive([GOOD, BAD])
    assert told.value.code == "not_owner"


def test_what_is_wrong_is_said_before_anything_is_leased(client: mqueue.Client, node: RunningServer) -> None:
    client.publish(GOOD, "x")
    ask = Asking(node.url)
    assert ask("POST", "/v1/receive", {"topics": [GOOD, "no/name"]}).status == 400
    assert ask("POST", "/v1/receive", {"topics": [GOOD, BAD], "limit": 0}).status == 400
    assert ask("POST", "/v1/receive", {"topics": [f"t{number}" for number in range(257)]}).status == 413
    assert client.stats(GOOD).leased == 0


def test_the_limit_is_that_of_all_together(client: mqueue.Client) -> None:
    for topic in (GOOD, BAD):
        client.publish_many(topic, [b"x"] * 3)
    found = client.receive([GOOD, BAD], limit=4)
    assert len(found) == 4
    assert len({message.topic for message in found}) == 2


def test_who_leaves_while_another_topic_is_asked_gives_back_what_he_got(
    client: mqueue.Client, node: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is an answer, in the middle of a round: no attempt is used up."""
    asked = threading.Event()

    async def note() -> None:
        asked.set()
        await asyncio.sleep(60)

    troubled(monkeypatch, note)
    monkeypatch.setattr("mqueue.server.placing.several._MORE_SECONDS", 60)
    client.publish(GOOD, "x")
    leave(node, asked)
    monkeypatch.undo()
    [message] = client.receive(GOOD, wait="60s")
    assert message.attempt == 1


def leave(node: RunningServer, when: threading.Event) -> None:
    """Somebody asks for both topics, and is gone when something has happened."""
    body = json.dumps({"topics": [GOOD, BAD], "visibility": "1h", "limit": 10}).encode()
    there = urlsplit(node.url)
    with socket.create_connection((there.hostname, there.port)) as line:
        line.sendall(
            b"POST /v1/receive HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert when.wait(PATIENCE_SECONDS)


def test_what_is_done_for_somebody_who_has_left_is_undone() -> None:
    """Also if it was done before the other loop heard of that: each way, once."""
    asyncio.run(leaving())


async def leaving() -> None:
    there = asyncio.new_event_loop()
    thread = threading.Thread(target=there.run_forever)
    thread.start()
    crossing, done, undone = Crossing(there), list[int](), list[int]()

    async def work(number: int) -> int:
        await asyncio.sleep(0.0005 * (number % 4))
        done.append(number)
        return number

    async def undo(number: int) -> None:
        undone.append(number)

    try:
        for number in range(400):
            task = asyncio.ensure_future(crossing.run(work(number), undo))
            await asyncio.sleep(0.0003 * (number % 5))
            task.cancel()
            [outcome] = await asyncio.gather(task, return_exceptions=True)
            if outcome == number:
                done.remove(number)
        await asyncio.sleep(0.1)
    finally:
        there.call_soon_threadsafe(there.stop)
        thread.join()
        there.close()
    assert sorted(undone) == sorted(done)
