"""The worker: what a handler is given, and what becomes of a message after it."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import mqueue
from mqueue.client.worker.load import load_app
from mqueue.client.worker.verdict import Reject, Retry, Rule, Verdict, after_failure
from tests.unit.workers import DEADLINE_SECONDS, Bench, run, until


class Order(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


@dataclass
class Plain:
    n: int


class Typed(TypedDict):
    n: int


# What a handler is given


@pytest.mark.parametrize(
    ("wanted", "payload", "value"),
    [
        (Order, {"n": 1}, Order(1)),
        (Model, {"n": 1}, Model(n=1)),
        (Plain, {"n": 1}, Plain(1)),
        (Typed, {"n": 1}, {"n": 1}),
        (dict, {"n": 1}, {"n": 1}),
        (list[Order], [{"n": 1}], [Order(1)]),
        (list[Model], [{"n": 1}], [Model(n=1)]),
        (Order | None, b"null", None),
        (int, 7, 7),
        (Any, {"n": [1]}, {"n": [1]}),
        (str, "söme", "söme"),
        (str, '{"n": 1}', '{"n": 1}'),
        (bytes, b"\xff\x00", b"\xff\x00"),
    ],
    ids=str,
)
@pytest.mark.parametrize("awaited", [True, False])
def test_the_payload_is_of_the_type_asked_for(wanted: Any, payload: Any, value: Any, awaited: bool) -> None:
    async def main(bench: Bench) -> None:
        given = []

        async def in_loop(one):
            given.append(one)

        def in_thread(one):
            given.append(one)

        handler = in_loop if awaited else in_thread
        handler.__annotations__["one"] = wanted
        assert bench.app.handler("orders")(handler) is handler
        await bench.q.publish("orders", payload)
        async with bench.working():
            await bench.until("orders", "acked")
        assert given == [value]
        assert type(given[0]) is type(value)

    run(main)


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [(Order, {"n": "one"}), (Model, {}), (Plain, b"{"), (dict, [1]), (str, b"\xff"), (int, b"")],
    ids=str,
)
def test_a_payload_of_another_type_is_rejected_and_told_once(
    wanted: Any, payload: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(bench: Bench) -> None:
        async def ship(order):
            raise AssertionError("never called")

        ship.__annotations__["order"] = wanted
        bench.app.handler("orders", retries=5)(ship)
        receipt = await bench.q.publish("orders", payload)
        async with bench.working():
            await bench.until("orders", "dead")
        [dead] = await bench.q.dlq("orders").messages()
        assert (dead.reason, dead.attempts) == ("rejected", 1)
        assert "payload of" in dead.error or "UnicodeDecodeError" in dead.error
        [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert (record.name, record.exc_info is not None) == ("mqueue.worker", True)
        assert str(receipt.id) in record.getMessage()
        assert bench.app.consumers()[0].failed == 1

    run(main)


def test_a_coroutine_gets_the_message_and_may_settle_it() -> None:
    async def main(bench: Bench) -> None:
        seen = []

        @bench.app.handler("orders")
        async def ship(m: mqueue.Message, *, order: Order, unused: int = 3) -> None:
            assert isinstance(m, mqueue.AsyncMessage)
            seen.append((order.n, m.attempt, m.key, unused))
            if order.n == 2:
                await m.reject("by hand")
                raise ValueError("after it was settled")

        await bench.q.publish_many("orders", [mqueue.Draft({"n": 1}, key="a"), {"n": 2}])
        async with bench.working():
            await bench.until("orders", "dead")
            await bench.until("orders", "acked")
        assert sorted(seen) == [(1, 1, b"a", 3), (2, 1, None, 3)]
        assert await bench.dead("orders") == [('{"n":2}', "rejected", "by hand")]

    run(main)


def test_a_plain_function_gets_a_message_of_its_own_thread_and_may_settle_it() -> None:
    async def main(bench: Bench) -> None:
        seen = []

        @bench.app.handler("orders")
        def ship(m: mqueue.Message) -> None:
            assert isinstance(m, mqueue.Message)
            assert threading.current_thread() is not threading.main_thread()
            m.extend("5m")
            with m:
                seen.append((m.text(), m.id, m.topic, m.offset, m.headers["a"], m.attempt))

        receipt = await bench.q.publish("orders", "hello", headers={"a": "b"})
        async with bench.working():
            await bench.until("orders", "acked")
        assert seen == [("hello", receipt.id, "orders", 0, "b", 1)]
        kinds = [event.kind for event in (await bench.q.trace(receipt)).events]
        assert kinds == ["PUBLISHED", "DELIVERED", "EXTENDED", "ACKNOWLEDGED"]

    run(main)


def test_objects_methods_and_functions_without_parameters_are_handlers() -> None:
    async def main(bench: Bench) -> None:
        seen = []

        class Ship:
            async def __call__(self, text: str) -> None:
                seen.append(f"object {text}")

            def method(self, text: str) -> None:
                seen.append(f"method {text}")

        def bare() -> None:
            seen.append("bare")

        bench.app.handler("a")(Ship())
        bench.app.handler("b")(Ship().method)
        bench.app.handler("c")(bare)
        bench.app.handler("d")(lambda: asyncio.sleep(0))
        for topic in "abcd":
            await bench.q.publish(topic, topic)
        async with bench.working():
            for topic in "abcd":
                await bench.until(topic, "acked")
        assert sorted(seen) == ["bare", "method b", "object a"]

    run(main)


# Handlers that are refused


def no_annotation(order): ...
def two_payloads(a: dict, b: str): ...
def two_messages(a: mqueue.Message, b: mqueue.Message): ...
def many(*orders: dict): ...
def named(**orders: dict): ...
def unknown(order: Nowhere): ...  # noqa: F821
def not_json(order: threading.Lock | threading.Thread): ...
def no_type(order: Bench): ...
def dead(m: mqueue.DeadMessage): ...
def async_message(m: mqueue.AsyncMessage): ...
def generator(order: dict):
    yield order


async def async_generator(order: dict):
    yield order


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_annotation, "has no annotation on 'order': annotate it with the type of the payload"),
        (two_payloads, "takes the payload twice, as 'a' and 'b'"),
        (two_messages, "takes the message twice, as 'a' and 'b'"),
        (many, r"takes \*orders"),
        (named, r"takes \*\*orders"),
        (unknown, "has an annotation that cannot be found: name 'Nowhere' is not defined"),
        (not_json, "as 'order', which JSON cannot be read as"),
        (no_type, "asks for <class .*Bench'> as 'order', which JSON cannot be read as"),
        (dead, "asks for a DeadMessage as 'm'"),
        (async_message, "is no `async def`, so 'm' is a mqueue.Message"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        ("ship", "'ship' is not callable"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_function_that_no_message_fits_is_refused_when_it_is_decorated(function: Any, why: str) -> None:
    app = mqueue.Worker("memory:")
    with pytest.raises(mqueue.Refused, match=f"^handler .*{why}") as caught:
        app.handler("orders")(function)
    assert caught.value.code == "bad_handler"
    with pytest.raises(mqueue.BadSetting, match="this worker has no handler"):
        app.run()


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"topic": "a b"}, mqueue.BadName, "topic name 'a b'"),
        ({"topic": []}, mqueue.Refused, "no topic is named"),
        ({"topic": 7}, mqueue.BadName, "topic name 7"),
        ({"group": ""}, mqueue.BadName, "group name ''"),
        ({"namespace": "/"}, mqueue.BadName, "namespace name '/'"),
        ({"concurrency": 0}, mqueue.Refused, "concurrency 0; it takes 1 to 1024"),
        ({"retries": -1}, mqueue.BadSetting, "retries -1; it takes 0 to"),
        ({"retries": True}, mqueue.BadSetting, "retries True"),
        ({"backoff": "soon"}, mqueue.BadTime, "backoff 'soon'"),
        ({"reject_on": "ValueError"}, mqueue.BadSetting, "reject_on 'ValueError'; it takes classes of exceptions"),
        ({"reject_on": (ValueError, KeyboardInterrupt)}, mqueue.BadSetting, "KeyboardInterrupt"),
        ({"timeout": 0}, mqueue.BadTime, "timeout 0; it takes more than 0"),
        ({"visibility": "10ms"}, mqueue.BadTime, "at least 1000 ms"),
        ({"visibility": "13h"}, mqueue.BadTime, "at most 43200000 ms"),
    ],
    ids=str,
)
def test_an_option_that_does_not_do_is_refused(options: Any, error: type[mqueue.Error], why: str) -> None:
    app = mqueue.Worker("memory:")
    with pytest.raises(error, match=why):
        app.handler(options.pop("topic", "orders"), **options)(lambda: None)


def test_one_handler_for_a_topic_and_group() -> None:
    app = mqueue.Worker("memory:")
    app.handler(["a", "b"])(lambda: None)
    app.handler("b", group="other")(lambda: None)
    app.handler("b", namespace="tenant")(lambda: None)
    with pytest.raises(mqueue.Refused, match=r"topic 'b', group 'default' has handler .* already"):
        app.handler(["b", "c"])(lambda: None)


def test_a_worker_takes_a_url_or_an_async_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    with mqueue.Broker() as q, pytest.raises(mqueue.BadSetting, match="it takes an AsyncBroker or an AsyncClient"):
        mqueue.Worker(queue=q)
    with pytest.raises(mqueue.BadSetting, match="a url or a queue, not both"):
        mqueue.Worker("memory:", queue=mqueue.AsyncBroker())
    with pytest.raises(mqueue.BadTime, match="drain 'x'"):
        mqueue.Worker("memory:", drain="x")
    with pytest.raises(mqueue.Refused, match="concurrency 2000"):
        mqueue.Worker("memory:", concurrency=2000)
    monkeypatch.delenv("MQUEUE_URL", raising=False)
    app = mqueue.Worker()
    app.handler("orders")(lambda: None)
    with pytest.raises(mqueue.BadSetting, match="MQUEUE_URL is not set"):
        app.run()


# What becomes of a message


@pytest.mark.parametrize("awaited", [True, False])
def test_it_returns_ack_it_raises_nack(awaited: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main(bench: Bench) -> None:
        def decide(text: str) -> None:
            if text == "bad":
                raise OSError("no disk")

        async def decide_async(text: str) -> None:
            decide(text)

        bench.app.handler("orders")(decide_async if awaited else decide)
        _, bad = await bench.q.publish_many("orders", ["good", "bad"])
        async with bench.working():
            await bench.until("orders", "acked")
            await bench.until("orders", "waiting")
            assert (await bench.q.explain(bad)).code == "waiting"
            await until(lambda: bench.app.consumers()[0].busy == 0)
            [liveness] = bench.app.consumers()
            assert (liveness.handled, liveness.failed) == (1, 1)
            assert (liveness.topic, liveness.group, liveness.concurrency) == ("orders", "default", 8)
            assert liveness.busy_since is None
            assert liveness.last_seen is not None
        [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert record.exc_info is not None
        assert str(bad.id) in record.getMessage()

    run(main)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("awaited", [True, False])
def test_a_handler_cannot_end_the_worker(raised: BaseException, awaited: bool) -> None:
    async def main(bench: Bench) -> None:
        def leave(text: str) -> None:
            if text == "leave":
                raise raised

        async def leave_async(text: str) -> None:
            leave(text)

        bench.app.handler("orders")(leave_async if awaited else leave)
        await bench.q.publish_many("orders", ["leave", "stay"])
        async with bench.working():
            await bench.until("orders", "waiting")
            await bench.until("orders", "acked")

    run(main)


def test_retries_back_off_and_then_reject() -> None:
    async def main(bench: Bench) -> None:
        attempts = []

        @bench.app.handler("orders", retries=2, backoff="10s")
        async def fail(m: mqueue.AsyncMessage) -> None:
            attempts.append(m.attempt)
            raise ValueError(f"attempt {m.attempt}")

        await bench.q.publish("orders", "x")
        async with bench.working():
            for least, most in (("7900ms", "4200ms"), ("15900ms", "8200ms")):
                await bench.until("orders", "waiting")
                seen = len(attempts)
                bench.clock.advance(least)
                await bench.q.receive("other", wait=0)
                assert await bench.count("orders", "waiting") == 1
                bench.clock.advance(most)
                await until(lambda seen=seen: len(attempts) > seen)
            await bench.until("orders", "dead")
        assert attempts == [1, 2, 3]
        assert await bench.dead("orders") == [("x", "rejected", "ValueError: attempt 3")]

    run(main)


def test_without_retries_of_its_own_a_handler_follows_the_topic() -> None:
    async def main(bench: Bench) -> None:
        await bench.q.configure("orders", max_retries=1, backoff="1s")

        @bench.app.handler("orders")
        async def fail() -> None:
            raise ValueError("no")

        await bench.q.publish("orders", "x")
        async with bench.working():
            await bench.until("orders", "waiting")
            bench.clock.advance("2s")
            await bench.until("orders", "dead")
        assert await bench.dead("orders") == [("x", "max_retries", "ValueError: no")]

    run(main)


def test_retry_reject_and_what_is_not_worth_retrying(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqueue.worker")

    async def main(bench: Bench) -> None:
        @bench.app.handler("orders", concurrency=1, retries=1, reject_on=(ValueError, mqueue.NotFound))
        async def decide(text: str) -> None:
            if text == "later":
                raise mqueue.Retry("too early", delay="1h")
            if text == "never":
                raise mqueue.Reject("unwanted")
            raise UnicodeError("bad letters")  # a ValueError

        later, _, _ = await bench.q.publish_many("orders", ["later", "never", "letters"])
        async with bench.working():
            await bench.until("orders", "dead", 2)
            explained = await bench.q.explain(later)
            assert explained.code == "waiting"
            bench.clock.advance("1h")
            await bench.until("orders", "dead", 3)  # a retry is an attempt like any other
        assert sorted(await bench.dead("orders")) == [
            ("later", "rejected", "too early"),
            ("letters", "rejected", "UnicodeError: bad letters"),
            ("never", "rejected", "unwanted"),
        ]
        told = [record.levelname for record in caplog.records if "attempt" in record.getMessage()]
        assert sorted(told) == ["ERROR", "INFO", "WARNING", "WARNING"]

    run(main)


@pytest.mark.parametrize(
    ("error", "attempt", "rule", "verdict"),
    [
        (ValueError("x"), 1, Rule(), Verdict("nack")),
        (ValueError("x"), 9, Rule(), Verdict("nack")),
        (ValueError("x"), 1, Rule(retries=0), Verdict("reject")),
        (ValueError("x"), 3, Rule(retries=3, backoff_ms=1000), Verdict("nack", 4400)),
        (ValueError("x"), 99, Rule(backoff_ms=1000, backoff_max_ms=5000), Verdict("nack", 5500)),
        (ValueError("x"), 1, Rule(reject_on=(ValueError,)), Verdict("reject")),
        (Retry(), 1, Rule(reject_on=(Exception,), backoff_ms=0), Verdict("nack", 0, "retry")),
        (Retry("y", delay=5), 1, Rule(backoff_ms=1), Verdict("nack", 5000, "y")),
        (Retry("y", delay=5), 2, Rule(retries=1), Verdict("reject", None, "y")),
        (Reject(), 1, Rule(), Verdict("reject", None, "reject")),
        (Reject("z"), 1, Rule(), Verdict("reject", None, "z")),
    ],
    ids=repr,
)
def test_the_verdict_after_a_failure(error: Exception, attempt: int, rule: Rule, verdict: Verdict) -> None:
    expected = verdict if verdict.error else Verdict(verdict.verb, verdict.delay_ms, error)
    assert after_failure(error, attempt, rule, 0.1) == expected


def test_a_delay_that_is_none_fails_as_any_other_error() -> None:
    with pytest.raises(mqueue.BadTime, match="delay 'soon'"):
        mqueue.Retry(delay="soon")


# Many at once


@pytest.mark.parametrize("awaited", [True, False])
def test_no_more_at_once_than_it_may(awaited: bool) -> None:
    async def main(bench: Bench) -> None:
        begun: list[str] = []
        gate, gate_async = threading.Event(), asyncio.Event()

        def hold(text: str) -> None:
            begun.append(text)
            gate.wait(DEADLINE_SECONDS)

        async def hold_async(text: str) -> None:
            begun.append(text)
            await gate_async.wait()

        bench.app.handler("orders", concurrency=3)(hold_async if awaited else hold)
        await bench.q.publish_many("orders", list("abcde"))
        async with bench.working():
            await until(lambda: len(begun) == 3)
            for _ in range(50):
                await asyncio.sleep(0)
            assert sorted(begun) == ["a", "b", "c"]
            assert await bench.count("orders", "leased") == 3
            [liveness] = bench.app.consumers()
            assert (liveness.busy, liveness.handled) == (3, 0)
            assert liveness.busy_since is not None
            gate.set()
            gate_async.set()
            await bench.until("orders", "acked", 5)
        assert sorted(begun) == list("abcde")

    run(main)


def test_threads_are_used_again() -> None:
    async def main(bench: Bench) -> None:
        threads = set()

        @bench.app.handler("orders", concurrency=2)
        def ship() -> None:
            threads.add(threading.current_thread())

        await bench.q.publish_many("orders", ["x"] * 100)
        async with bench.working():
            await bench.until("orders", "acked", 100)
        assert 1 <= len(threads) <= 2
        await until(lambda: not any(thread.is_alive() for thread in threads))

    run(main)


def test_several_handlers_topics_groups_and_namespaces() -> None:
    async def main(bench: Bench) -> None:
        seen: list[tuple[str, str]] = []

        @bench.app.handler(["a", "b"], group="mail")
        async def mail(text: str, m: mqueue.AsyncMessage) -> None:
            seen.append(("mail", f"{m.namespace}/{text}"))

        @bench.app.handler("a", group="push")
        def push(text: str) -> None:
            seen.append(("push", text))

        @bench.app.handler("a", group="mail", namespace="tenant")
        async def other(text: str, m: mqueue.AsyncMessage) -> None:
            seen.append(("other", f"{m.namespace}/{text}"))

        await bench.q.publish("a", "1")
        await bench.q.publish("b", "2")
        await bench.q.namespace("tenant").publish("a", "3")
        async with bench.working():
            await until(lambda: len(seen) == 4)
        assert sorted(seen) == [
            ("mail", "default/1"),
            ("mail", "default/2"),
            ("other", "tenant/3"),
            ("push", "1"),
        ]
        assert [one.topic for one in bench.app.consumers()] == ["a,b", "a", "a"]

    run(main)


@pytest.mark.parametrize(
    ("worker", "declared", "asked", "found"), [(None, None, None, 8), (3, None, None, 3), (3, 5, None, 5), (3, 5, 2, 2)]
)
def test_whose_concurrency_holds(worker: Any, declared: Any, asked: Any, found: int) -> None:
    async def main(bench: Bench) -> None:
        bench.app.handler("orders", concurrency=declared)(lambda: None)
        stop = asyncio.Event()
        task = asyncio.create_task(bench.app.serve(stop, concurrency=asked))
        await until(bench.app.consumers)
        with pytest.raises(mqueue.Refused, match="at work already"):
            await bench.app.serve()
        assert bench.app.consumers()[0].concurrency == found
        stop.set()
        await task

    run(main, concurrency=worker)


# By name


def test_a_worker_by_its_place(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mq_shop.py").write_text("import mqueue\napp = mqueue.Worker('memory:')\nother = 3\n")
    (tmp_path / "mq_broken.py").write_text("import mq_missing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/nonexistent")  # so that what is added to sys.path is taken away again
    assert isinstance(load_app("mq_shop:app"), mqueue.Worker)
    for place, why in (
        ("mq_shop", "is no place in a module; give module:name"),
        (":app", "is no place in a module"),
        ("mq_shop:", "is no place in a module"),
        ("mq-shop:app", "is no place in a module"),
        ("mq_nowhere:app", "there is no module 'mq_nowhere'"),
        ("mq_shop.below:app", "there is no module 'mq_shop.below'"),
        ("mq_shop:worker", "module 'mq_shop' has no 'worker'"),
        ("mq_shop:other", "'other' is a int, not a mqueue.Worker"),
    ):
        with pytest.raises(mqueue.BadSetting, match=why):
            load_app(place)
    with pytest.raises(ModuleNotFoundError, match="mq_missing"):
        load_app("mq_broken:app")
