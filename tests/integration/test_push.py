"""Messages that are pushed: server-sent events and WebSockets, settled on the way, never more than asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from mqueue.config import Config, Security
from mqueue.testing.server import RunningServer

DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def url() -> Any:
    with RunningServer() as server:
        yield server.url


def run(work: Callable[[aiohttp.ClientSession], Awaitable[None]], url: str) -> None:
    async def with_session() -> None:
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(DEADLINE_SECONDS):
            await work(session)

    asyncio.run(with_session())


async def publish(session: aiohttp.ClientSession, topic: str, *payloads: str) -> list[str]:
    body = {"messages": [{"payload": payload} for payload in payloads]}
    async with session.post(f"/v1/topics/{topic}/messages", json=body) as answer:
        assert answer.status == 200
        return [receipt["id"] for receipt in (await answer.json())["receipts"]]


async def settle(session: aiohttp.ClientSession, verb: str, lease: str, **body: Any) -> dict[str, Any]:
    async with session.post(f"/v1/leases/{lease}/{verb}", json=body) as answer:
        return await answer.json()


async def stats(session: aiohttp.ClientSession, topic: str) -> dict[str, Any]:
    async with session.get(f"/v1/topics/{topic}/stats") as answer:
        return await answer.json()


async def until(session: aiohttp.ClientSession, topic: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the numbers of a topic are so; the test's own deadline ends it."""
    while not holds(await stats(session, topic)):
        await asyncio.sleep(0.01)


class Events:
    """A stream of server-sent events, message by message."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> dict[str, Any]:
        while True:
            kind, data = await self._event()
            if kind == "message":
                return json.loads(data)

    async def ends(self) -> str:
        """The kind of the last event."""
        last = ""
        while not self._answer.content.at_eof():
            kind, _ = await self._event()
            last = kind or last
        return last

    async def _event(self) -> tuple[str, str]:
        kind = data = ""
        async for raw in self._answer.content:
            line = raw.decode().rstrip("\n")
            if not line:
                break
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            data = value if name == "data" else data
        return kind, data


@asynccontextmanager
async def events(session: aiohttp.ClientSession, topic: str, **query: Any) -> AsyncIterator[Events]:
    async with session.get(f"/v1/topics/{topic}/stream", params=query, timeout=aiohttp.ClientTimeout()) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield Events(answer)


def test_events_come_as_they_are_published_and_are_settled_by_their_lease(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "sse") as stream:
            [first] = await publish(session, "sse", "one")
            message = await stream.next()
            assert (message["id"], message["payload"], message["attempt"]) == (first, "one", 1)
            assert (await settle(session, "ack", message["lease"], ids=[first]))["settled"] == 1
            await publish(session, "sse", "two")
            assert (await stream.next())["payload"] == "two"

    run(work, url)


def test_never_more_than_prefetch_is_unsettled(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        await publish(session, "few", *"abcde")
        async with events(session, "few", prefetch=2) as stream:
            held = [await stream.next(), await stream.next()]
            assert [message["payload"] for message in held] == ["a", "b"]
            assert (await stats(session, "few"))["leased"] == 2
            await settle(session, "ack", held[0]["lease"], ids=[held[0]["id"]])
            assert (await stream.next())["payload"] == "c"
            assert (await stats(session, "few"))["leased"] == 2

    run(work, url)


def test_what_is_unsettled_when_the_consumer_leaves_is_given_back(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        await publish(session, "left", "x")
        async with events(session, "left") as stream:
            await stream.next()
        await until(session, "left", lambda now: now["ready"] == 1)
        async with events(session, "left") as stream:
            assert (await stream.next())["attempt"] == 1  # a delivery that was given back does not count

    run(work, url)


def test_acked_automatically_is_at_most_once(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        await publish(session, "auto", "x")
        async with events(session, "auto", ack="auto") as stream:
            assert "lease" not in await stream.next()
        assert (await stats(session, "auto"))["acked"] == 1

    run(work, url)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("prefetch=0", "bad_limit"),
        ("prefetch=many", "bad_query"),
        ("ack=perhaps", "bad_query"),
        ("group=a/b", "bad_name"),
        ("visibility=soon", "bad_time"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(url, query: str, code: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        path = f"/v1/topics/t/stream?{query}"
        async with session.get(path) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, code)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(path)
        assert caught.value.status == 400

    run(work, url)


def test_a_server_that_stops_ends_its_streams() -> None:
    server = RunningServer()

    async def work(session: aiohttp.ClientSession) -> None:
        async with events(session, "ending") as stream, session.ws_connect("/v1/topics/ending/stream") as socket:
            stopping = asyncio.create_task(asyncio.to_thread(server.close))
            assert await stream.ends() == "end"
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
            await stopping

    run(work, server.url)


def test_a_socket_gets_leases_and_settles_them(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/topics/ws/stream?prefetch=2") as socket:
            first, second, third = await publish(session, "ws", "a", "b", "c")
            lease = await socket.receive_json()
            assert [message["payload"] for message in lease["messages"]] == ["a", "b"]
            assert 0 < lease["remaining_ms"] <= 30_000
            await socket.send_json({"ack": [first], "seq": 1})
            told = [await socket.receive_json(), await socket.receive_json()]
            [answer] = [one for one in told if "seq" in one]
            [more] = [one for one in told if "messages" in one]
            assert answer == {"seq": 1, "settled": 1}
            assert [message["id"] for message in more["messages"]] == [third]
            await socket.send_json({"ack": [first, second], "seq": 2})
            assert (await socket.receive_json())["settled"] == 2  # a repeated ack is answered as the first was
            await socket.send_json({"reject": [third], "error": "broken", "seq": 3})
            assert (await socket.receive_json()) == {"seq": 3, "settled": 1}
        async with session.get("/v1/topics/ws/dlq") as answer:
            [dead] = (await answer.json())["messages"]
            assert (dead["payload"], dead["error"]) == ("c", "broken")

    run(work, url)


def test_what_follows_is_published_with_the_ack(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/topics/steps/stream") as socket:
            [id] = await publish(session, "steps", "a")
            await socket.receive_json()
            await socket.send_json({"ack": [id], "publish": [{"topic": "next", "payload": "b"}]})
            answer = await socket.receive_json()
            assert (answer["settled"], answer["receipts"][0]["topic"]) == (1, "next")
        assert (await stats(session, "next"))["ready"] == 1

    run(work, url)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("{", "bad_json"),
        ("[]", "bad_body"),
        ('{"ack": ["1"], "nack": ["1"]}', "bad_body"),
        ('{"eat": ["1"]}', "bad_body"),
        ('{"ack": ["one"]}', "bad_id"),
        ('{"ack": ["1"]}', "lease_lost"),
        ('{"extend": ["1"], "visibility": "soon"}', "bad_time"),
    ],
)
def test_a_wrong_command_is_answered_and_the_socket_stays(url, command: str, code: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/topics/strange/stream") as socket:
            await socket.send_str(command)
            assert (await socket.receive_json())["error"]["code"] == code
            await socket.send_json({"ack": [], "seq": 5})
            assert (await socket.receive_json()) == {"seq": 5, "settled": 0}

    run(work, url)


def test_pages_of_other_sites_are_turned_away(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect("/v1/topics/t/stream", headers={"Origin": "https://evil.example"})
        assert caught.value.status == 403
        body = {"messages": [{"payload": "x"}]}
        headers = {"Origin": "https://evil.example"}
        async with session.post("/v1/topics/origins/messages", json=body, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (403, "cross_origin")
        own = {"Origin": url}
        async with session.post("/v1/topics/origins/messages", json=body, headers=own) as answer:
            assert answer.status == 200

    run(work, url)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]:80"]
)
def test_a_server_of_this_machine_answers_to_no_other_name(url, host: str) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.get("/v1/topics", headers={"Host": host}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (403, "cross_origin")
        for own in ("localhost", "LocalHost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"):
            async with session.get("/v1/topics", headers={"Host": own}) as answer:
                assert answer.status == 200, own

    run(work, url)


def test_whoever_is_public_on_purpose_has_any_name() -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        async with session.get("/v1/topics", headers={"Host": "queue.example"}) as answer:
            assert answer.status == 200

    with RunningServer(Config(security=Security(public_bind=True))) as server:
        run(work, server.url)


def test_a_path_without_push_takes_no_socket(url) -> None:
    async def work(session: aiohttp.ClientSession) -> None:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect("/v1/topics")
        assert caught.value.status == 400

    run(work, url)
