"""A client that knows several addresses: which of them is asked, and when another one is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import mqueue
from mqueue.client.address import URLS_MAX, address_of
from mqueue.client.line import Line, Request
from mqueue.testing.server import RunningServer
from tests.integration.scripted import CLOSE, Scripted, answer, refusal
from tests.integration.terminal import Terminal

TOPICS = answer(200, {"topics": ["t"], "next": None})
RECEIPT = {"id": "1", "topic": "t", "partition": 0, "offset": 0, "duplicate": False}
PUBLISHED = answer(200, {"receipts": [RECEIPT], "durability": "memory"})
STOPPING = refusal(503, "stopping", Retry_After="1")


@contextmanager
def servers(*acts: list[Any] | None) -> Iterator[list[Scripted]]:
    """One for each list of what it does; None: nobody listens there."""
    with ExitStack() as stack:
        yield [stack.enter_context(Scripted(one or [], listening=one is not None)) for one in acts]


def client(nodes: list[Scripted], **settings: Any) -> mqueue.Client:
    """Begins at the first."""
    made: Any = mqueue.Client([node.url for node in nodes], timeout="5m", **settings)
    made._core._home.window.line._turn = 0
    return made  # type: ignore[no-any-return]


def test_who_is_not_there_is_passed_over_and_not_asked_again() -> None:
    with servers(None, [PUBLISHED, TOPICS]) as nodes, client(nodes) as q:
        assert q.publish("t", b"x").id == 1
        assert q.topics() == ["t"]
        assert len(nodes[1].seen) == 2


def test_who_stops_is_left_at_once_and_the_next_is_kept_to() -> None:
    with servers([STOPPING], [PUBLISHED, TOPICS]) as nodes, client(nodes) as q:
        assert q.publish("t", b"x").id == 1
        assert q.topics() == ["t"]
        assert [len(node.seen) for node in nodes] == [1, 2]


def test_a_publish_whose_answer_is_lost_is_repeated_nowhere() -> None:
    with servers([CLOSE], [PUBLISHED]) as nodes, client(nodes) as q:
        with pytest.raises(mqueue.Unavailable) as caught:
            q.publish("t", b"x")
        assert (caught.value.code, caught.value.applied) == ("line_broken", None)
        assert nodes[1].seen == []


def test_what_may_be_repeated_is_repeated_elsewhere() -> None:
    with servers([CLOSE], [PUBLISHED]) as nodes, client(nodes) as q:
        assert q.publish("t", b"x", idempotency_key="k").id == 1
        assert [len(node.seen) for node in nodes] == [1, 1]


def test_who_is_busy_is_not_left() -> None:
    """Another node would have to ask the same shard."""
    with servers([refusal(503, "shard_down", Retry_After="0"), PUBLISHED], []) as nodes, client(nodes) as q:
        assert q.publish("t", b"x").id == 1
        assert [len(node.seen) for node in nodes] == [2, 0]


def test_without_retry_nothing_is_tried_elsewhere() -> None:
    with servers(None, [PUBLISHED]) as nodes, client(nodes, retry=False) as q:
        with pytest.raises(mqueue.Unavailable, match="cannot be reached"):
            q.publish("t", b"x")
        assert nodes[1].seen == []


def test_all_are_away() -> None:
    with servers(None, None) as nodes:
        q = mqueue.Client([node.url for node in nodes], timeout="300ms")
        with q, pytest.raises(mqueue.Unavailable) as caught:
            q.topics()
        assert (caught.value.code, caught.value.applied) == ("unreachable", False)


def test_clients_begin_at_different_ones() -> None:
    async def ask(urls: str, chance: float) -> None:
        line = Line(address_of(urls, None, "", "5m", None, None, "json", True), lambda: chance)
        assert (await line.send(Request("GET", "/v1/topics"))).status == 200
        await line.close()

    with servers([TOPICS], [TOPICS]) as nodes:
        for chance in (0.0, 0.99):
            asyncio.run(ask(",".join(node.url for node in nodes), chance))
        assert [len(node.seen) for node in nodes] == [1, 1]


def test_one_text_with_commas_names_several() -> None:
    with mqueue.Client("http://a:1, http://b:2/,http://a:1") as q:
        assert "http://a:1,http://b:2" in repr(q)


@pytest.mark.parametrize("words", [["topics"], ["keys", "list"]])
def test_the_command_line_takes_several(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with servers(None) as [away], RunningServer() as server:
        mqueue.Client(server.url).publish("orders", b"x")
        done = Terminal(monkeypatch, tmp_path).run(*words, "--url", f"{away.url},{server.url}")
        assert (done.code, done.err) == (0, "")


def test_a_worker_takes_several() -> None:
    done: list[bytes] = []
    with servers(None) as [away], RunningServer() as server:
        app = mqueue.Worker(f"{away.url},{server.url}")

        @app.handler("orders")
        def handle(payload: bytes) -> None:
            done.append(payload)
            app.stop()

        mqueue.Client(server.url).publish("orders", b"x")
        app.run()
    assert done == [b"x"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "it takes http or https"),
        ([], "0 urls; it takes 1 to 64"),
        ("http://a:1,", "it takes http or https"),
        (["http://a:1", 7], "url is int"),
        ({"http://a:1": 1}, "url is dict"),
        ("http://a:1,https://b:2", "they have to be the same"),
        ([f"http://a:{port}" for port in range(1, URLS_MAX + 2)], "65 urls"),
        ("http://a:1,http://u:secret@b:2", "no user"),
    ],
)
def test_what_names_none(given: Any, said: str) -> None:
    make: Callable[[], object] = lambda: mqueue.Client(given)  # noqa: E731
    with pytest.raises(mqueue.BadSetting, match=said) as caught:
        make()
    assert "secret" not in str(caught.value)
