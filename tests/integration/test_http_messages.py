"""Messages over HTTP as JSON: publish, receive, settle, look; and what is answered to those who get it wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from mqueue.config import Config
from mqueue.model.limits import Limits
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Answered, Asking

PATIENCE_SECONDS = 120
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock("2026-03-01")


@pytest.fixture
def ask(clock: ManualClock) -> Iterator[Asking]:
    with RunningServer(clock=clock) as server:
        yield Asking(server.url)


def publish(ask: Asking, *messages: dict[str, Any], topic: str = "orders", **headers: str) -> Answered:
    return ask("POST", f"/v1/topics/{topic}/messages", {"messages": list(messages)}, **headers)


def receive(ask: Asking, topic: str = "orders", **asked: Any) -> dict[str, Any]:
    answer = ask("POST", f"/v1/topics/{topic}/receive", asked)
    assert answer.status == 200, answer
    return dict(answer.json)


def settle(ask: Asking, lease: str, verb: str, **asked: Any) -> Answered:
    return ask("POST", f"/v1/leases/{lease}/{verb}", asked or None)


def payloads(messages: list[dict[str, Any]]) -> list[str]:
    return [message["payload"] for message in messages]


class TestPublish:
    def test_receipts_come_in_the_order_of_the_messages(self, ask: Asking) -> None:
        answer = publish(ask, {"payload": "a"}, {"payload": "b"})
        assert answer.status == 200
        first, second = answer.json["receipts"]
        assert answer.json["durability"] == "memory"
        assert (first["topic"], first["partition"], first["offset"], first["duplicate"]) == ("orders", 0, 0, False)
        assert second["offset"] == 1
        assert int(second["id"]) == int(first["id"]) + 1

    @pytest.mark.parametrize("count", [1, 2, 127, 128, 1000, 4097, 10_000])
    def test_calls_of_every_size_are_stored_whole(self, ask: Asking, count: int) -> None:
        ask.publish("orders", "before")
        answer = publish(ask, *({"payload": f"{number} ü"} for number in range(count)))
        assert [receipt["offset"] for receipt in answer.json["receipts"]] == list(range(1, count + 1))
        found = receive(ask, limit=10_000)["messages"]
        assert payloads(found)[: count + 1] == ["before", *(f"{number} ü" for number in range(min(count, 9_999)))]
        assert [message["id"] for message in found[1:]] == [r["id"] for r in answer.json["receipts"]][: len(found) - 1]

    def test_everything_a_message_can_have_arrives(self, ask: Asking) -> None:
        sent = {
            "payload_base64": "/wA=",
            "key_base64": "/w==",
            "headers": {"a": "b"},
            "headers_base64": {"raw": "/w=="},
            "priority": "high",
            "ttl": "1h",
            "idempotency_key": "once",
            "fairness_key": "fair",
        }
        assert publish(ask, sent).status == 200
        [message] = receive(ask)["messages"]
        for name in ("payload_base64", "key_base64", "headers", "headers_base64", "idempotency_key", "fairness_key"):
            assert message[name] == sent[name]
        assert (message["priority"], message["attempt"], message["namespace"]) == (25, 1, "default")
        assert message["published_at"] == "2026-03-01T00:00:00.000Z"
        assert message["expires_at"] == "2026-03-01T01:00:00.000Z"
        assert "payload" not in message

    def test_what_is_absent_is_left_out(self, ask: Asking) -> None:
        ask.publish("orders", "plain")
        [message] = receive(ask)["messages"]
        assert set(message) == {
            *("id", "namespace", "topic", "partition", "offset", "published_at", "deliver_at", "priority", "attempt"),
            "payload",
        }

    def test_a_json_payload_keeps_its_text_and_says_what_it_is(self, ask: Asking) -> None:
        body = b'{"messages":[{"payload_json":{"n": 1.50, "u": "\\u00fc"}}]}'
        assert ask("POST", "/v1/topics/orders/messages", body).status == 200
        [message] = receive(ask)["messages"]
        assert message["payload"] == '{"n": 1.50, "u": "\\u00fc"}'
        assert message["headers"] == {"content-type": "application/json"}

    def test_the_content_type_of_a_request_does_not_matter(self, ask: Asking) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
            assert publish(ask, {"payload": "a"}, content_type=kind).status == 200

    def test_a_repeated_idempotency_key_stores_nothing(self, ask: Asking) -> None:
        message = {"payload": "a", "idempotency_key": "k"}
        [first] = publish(ask, message).json["receipts"]
        [second] = publish(ask, message).json["receipts"]
        assert (second["id"], first["duplicate"], second["duplicate"]) == (first["id"], False, True)
        answer = publish(ask, {"payload": "b", "idempotency_key": "k"})
        assert (answer.status, answer.error) == (409, "conflict")

    def test_delays_and_times(self, ask: Asking, clock: ManualClock) -> None:
        soon = clock.now() + 60_000
        assert publish(
            ask,
            {"payload": "a", "delay": "30s"},
            {"payload": "b", "deliver_at": "2026-03-01T00:00:45Z"},
            {"payload": "c", "deliver_at": soon},
            {"payload": "d", "delay": 90},
        )
        assert receive(ask, limit=10)["messages"] == []
        clock.advance("60s")
        assert payloads(receive(ask, limit=10)["messages"]) == ["a", "b", "c"]

    def test_several_topics_in_one_call(self, ask: Asking) -> None:
        body = {"messages": [{"payload": "1", "topic": "a"}, {"payload": "2", "topic": "b"}]}
        answer = ask("POST", "/v1/messages", body)
        assert [receipt["topic"] for receipt in answer.json["receipts"]] == ["a", "b"]
        assert payloads(receive(ask, "b")["messages"]) == ["2"]
        none = ask("POST", "/v1/messages", {"messages": [{"payload": "1", "topic": "c"}, {"payload": "2"}]})
        assert (none.status, none.error) == (400, "no_topic")
        assert ask("GET", "/v1/topics").json["topics"] == ["a", "b"]

    def test_a_topic_route_is_for_its_topic(self, ask: Asking) -> None:
        assert publish(ask, {"payload": "a", "topic": "orders"}).status == 200
        answer = publish(ask, {"payload": "a", "topic": "secrets"})
        assert (answer.status, answer.error) == (400, "bad_body")
        assert ask("GET", "/v1/topics").json["topics"] == ["orders"]

    def test_the_trace_of_a_request_is_put_on_its_messages(self, ask: Asking) -> None:
        publish(ask, {"payload": "a"}, traceparent=TRACEPARENT, tracestate="vendor=1")
        publish(ask, {"payload": "b", "headers": {"traceparent": "own"}}, traceparent=TRACEPARENT)
        publish(ask, {"payload": "c"}, traceparent="nonsense")
        traced, own, not_traced = receive(ask, limit=3)["messages"]
        assert traced["headers"] == {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
        assert own["headers"] == {"traceparent": "own"}
        assert "headers" not in not_traced

    def test_namespaces_are_apart(self, ask: Asking) -> None:
        assert ask.publish("orders", "theirs", namespace="tenant-a")
        assert receive(ask)["messages"] == []
        answer = ask("POST", "/v1/topics/orders/receive", x_mqueue_namespace="tenant-a")
        assert payloads(answer.json["messages"]) == ["theirs"]
        both = ask("GET", "/v1/topics/orders/peek?namespace=a", x_mqueue_namespace="b")
        assert (both.status, both.error) == (400, "bad_query")


BAD_BODIES = {
    b"": "bad_body",
    b"{": "bad_json",
    b"\xff\xfe": "bad_json",
    b"null": "bad_body",
    b"[]": "bad_body",
    b"[" * 100_000: "bad_body",
    b'{"messages":[{"payload_json":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}": "bad_json",
    b'{"messages":[]}': "empty",
    b'{"messages":[{}]}': "bad_payload",
    b'{"messages":[{"payload":"a","payload_base64":"YQ=="}]}': "bad_payload",
    b'{"messages":[{"payload":1}]}': "bad_body",
    b'{"messages":[{"payload":"\\ud800"}]}': "bad_json",
    b'{"messages":[{"payload_json":NaN}]}': "bad_json",
    b'{"messages":[{"payload_base64":"%%"}]}': "bad_base64",
    b'{"messages":[{"payload_base64":"YQ"}]}': "bad_base64",
    b'{"messages":[{"payload":"a","keys":"b"}]}': "bad_body",
    b'{"messages":[{"payload":"a","key":"b","key_base64":"Yg=="}]}': "bad_key",
    b'{"messages":[{"payload":"a","headers":{"a":1}}]}': "bad_body",
    b'{"messages":[{"payload":"a","headers":{"a":"1"},"headers_base64":{"a":"YQ=="}}]}': "bad_header",
    b'{"messages":[{"payload":"a","priority":"urgent"}]}': "bad_priority",
    b'{"messages":[{"payload":"a","priority":1e400}]}': "bad_body",
    b'{"messages":[{"payload":"a","delay":-1}]}': "bad_time",
    b'{"messages":[{"payload":"a","delay":1e400}]}': "bad_body",
    b'{"messages":[{"payload":"a","delay":1e300}]}': "bad_time",
    b'{"messages":[{"payload":"a","deliver_at":99999999999999999999}]}': "bad_time",
    b'{"messages":[{"payload":"a","deliver_at":true}]}': "bad_body",
    b'{"messages":[{"payload":"a","ttl":"soon"}]}': "bad_time",
    b'{"messages":[{"payload":"a","idempotency_key":""}]}': "bad_key",
    b'{"messages":[{"payload":"a"},{"payload":"a","fairness_key":"a b"}]}': "bad_name",
    b'{"messages":[{"payload":"a"}],"durability":"forever"}': "bad_setting",
    b'{"messages":[{"payload":"a"}]}trailing': "bad_json",
}


class TestBadInput:
    @pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
    def test_a_bad_body_is_refused_and_stores_nothing(self, ask: Asking, body: bytes) -> None:
        answer = ask("POST", "/v1/topics/orders/messages", body)
        assert (answer.status, answer.error) == (400, BAD_BODIES[body]), answer.json
        assert answer.json["error"]["retryable"] is False
        assert ask("GET", "/v1/topics").json["topics"] == []

    def test_the_place_of_what_is_wrong_is_named(self, ask: Asking) -> None:
        answer = ask("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "a"}, {"payload": 7}]})
        assert "$.messages[1].payload" in answer.json["error"]["message"]

    @pytest.mark.parametrize("topic", ["a%20b", "%ff", "%2F", "a%00b", "x" * 250, "%E2%80%AE"])
    def test_bad_names_are_refused(self, ask: Asking, topic: str) -> None:
        answer = publish(ask, {"payload": "a"}, topic=topic)
        assert (answer.status, answer.error) == (400, "bad_name")
        assert ask("GET", "/v1/topics").json["topics"] == []

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            ({"limit": 0}, "bad_limit"),
            ({"limit": 10_001}, "bad_limit"),
            ({"limit": "1"}, "bad_body"),
            ({"wait": "61s"}, "bad_time"),
            ({"wait": "bogus"}, "bad_time"),
            ({"wait": -1}, "bad_time"),
            ({"visibility": 0}, "bad_time"),
            ({"mode": "exactly_once"}, "bad_setting"),
            ({"group": "a b"}, "bad_name"),
            ({"groups": "a"}, "bad_body"),
        ],
    )
    def test_a_bad_receive_leases_nothing(self, ask: Asking, asked: dict[str, Any], code: str) -> None:
        ask.publish("orders", "a")
        answer = ask("POST", "/v1/topics/orders/receive", asked)
        assert (answer.status, answer.error) == (400, code)
        assert ask("GET", "/v1/topics/orders/stats").json["leased"] == 0

    def test_limits_are_those_of_the_configuration(self) -> None:
        limits = Limits(payload_bytes_max=10, call_messages_max=200, call_bytes_max=1000)
        with RunningServer(replace(Config(), limits=limits)) as server:
            ask = Asking(server.url)
            assert publish(ask, {"payload": "x" * 11}).error == "payload_too_large"
            for count in (201, 1000):
                assert publish(ask, *[{"payload": "x"}] * count).error == "too_many"
            for count in (101, 200):
                answer = publish(ask, *[{"payload": "x" * 10}] * count)
                assert (answer.status, answer.error) == (413, "call_too_large")
            assert ask("GET", "/v1/topics").json["topics"] == []

    def test_unknown_routes_and_methods(self, ask: Asking) -> None:
        assert ask("GET", "/v2/nothing").error == "no_route"
        assert ask("GET", "/v1/topics/orders/messages/").status == 404
        wrong = ask("DELETE", "/v1/topics/orders/messages")
        assert (wrong.status, wrong.error) == (405, "method_not_allowed")


class TestReceive:
    def test_a_lease_says_how_long_it_lasts(self, ask: Asking) -> None:
        ask.publish("orders", "a")
        lease = receive(ask, visibility="10s")
        assert len(lease["lease"]) == 32
        assert (lease["topic"], lease["remaining_ms"]) == ("orders", 10_000)
        assert lease["deadline"] == "2026-03-01T00:00:10.000Z"

    def test_nothing_there(self, ask: Asking) -> None:
        assert receive(ask) == {"topic": "orders", "lease": None, "deadline": None, "remaining_ms": 0, "messages": []}

    def test_an_empty_body_asks_for_one_message(self, ask: Asking) -> None:
        ask.publish("orders", "a", "b")
        assert payloads(ask("POST", "/v1/topics/orders/receive").json["messages"]) == ["a"]

    def test_at_most_once_has_no_lease(self, ask: Asking) -> None:
        ask.publish("orders", "a")
        lease = receive(ask, mode="at_most_once")
        assert (lease["lease"], payloads(lease["messages"])) == (None, ["a"])
        assert ask("GET", "/v1/topics/orders/stats").json["acked"] == 1

    def test_what_would_not_fit_an_answer_is_given_back(self, ask: Asking) -> None:
        for part in range(5):
            publish(ask, *({"payload": f"{part}.{number}" + "x" * 1_000_000} for number in range(8)))
        answers = [ask("POST", "/v1/topics/orders/receive", {"limit": 10_000}) for _ in range(2)]
        assert len(answers[0].body) < 40 * 1024 * 1024
        first, second = (answer.json["messages"] for answer in answers)
        names = [message["payload"][:3] for message in (*first, *second)]
        assert names == [f"{part}.{number}" for part in range(5) for number in range(8)]
        assert {message["attempt"] for message in second} == {1}
        settled = settle(ask, answers[0].json["lease"], "ack")
        assert settled.json["settled"] == len(first)

    def test_several_topics_have_a_lease_each(self, ask: Asking) -> None:
        ask.publish("a", "1")
        ask.publish("b", "2")
        leases = ask("POST", "/v1/receive", {"topics": ["a", "b", "a", "none"], "limit": 5}).json["leases"]
        assert sorted((lease["topic"], *payloads(lease["messages"])) for lease in leases) == [("a", "1"), ("b", "2")]
        assert leases[0]["lease"] != leases[1]["lease"]
        assert ask("POST", "/v1/receive", {"topics": []}).error == "no_topic"

    def test_a_waiting_call_gets_what_comes(self, ask: Asking, clock: ManualClock) -> None:
        found: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: found.append(receive(ask, wait="60s")))
        waiting.start()
        ask.publish("orders", "a")
        waiting.join(PATIENCE_SECONDS)
        assert payloads(found[0]["messages"]) == ["a"]

    def test_the_name_of_a_consumer_is_told(self, ask: Asking) -> None:
        [id] = ask.publish("orders", "a")
        ask("POST", "/v1/topics/orders/receive", x_mqueue_consumer="shop-1")
        told = ask("GET", f"/v1/messages/{id}/explain").json
        assert (told["code"], told["by"]) == ("leased", "shop-1")


class TestSettle:
    def test_the_whole_lease(self, ask: Asking) -> None:
        ask.publish("orders", "a", "b")
        lease = receive(ask, limit=2)["lease"]
        assert settle(ask, lease, "ack").json == {"settled": 2, "lost": []}
        assert ask("GET", "/v1/topics/orders/stats").json["acked"] == 2

    def test_some_of_it_and_strangers(self, ask: Asking) -> None:
        first, second, third = ask.publish("orders", "a", "b", "c")
        lease = receive(ask, limit=2)["lease"]
        assert settle(ask, lease, "ack", ids=[first, third]).json == {"settled": 1, "lost": [third]}
        lost = settle(ask, lease, "ack", ids=[third])
        assert (lost.status, lost.error, lost.json["error"]["lost"]) == (409, "lease_lost", [third])
        assert settle(ask, lease, "ack", ids=[second]).json["settled"] == 1

    def test_every_verb(self, ask: Asking, clock: ManualClock) -> None:
        ids = ask.publish("orders", "a", "b", "c", "d")
        lease = receive(ask, limit=4)["lease"]
        assert settle(ask, lease, "nack", ids=ids[:1], delay="5s", error="no stock").json["settled"] == 1
        assert settle(ask, lease, "reject", ids=ids[1:2], error="broken").json["settled"] == 1
        assert settle(ask, lease, "release", ids=ids[2:3]).json["settled"] == 1
        assert settle(ask, lease, "extend", ids=ids[3:], visibility="1h").json["settled"] == 1
        clock.advance("31s")
        again = receive(ask, limit=4)
        assert sorted((m["payload"], m["attempt"]) for m in again["messages"]) == [("a", 2), ("c", 1)]
        stats = ask("GET", "/v1/topics/orders/stats").json
        assert (stats["leased"], stats["dead"]) == (3, 1)

    def test_a_repeated_call_answers_as_the_first_did(self, ask: Asking) -> None:
        [id] = ask.publish("orders", "a")
        lease = receive(ask)["lease"]
        asked = {"ids": [id], "publish": [{"payload": "next", "topic": "shipping"}]}
        first = settle(ask, lease, "ack", **asked)
        assert [receipt["topic"] for receipt in first.json["receipts"]] == ["shipping"]
        assert settle(ask, lease, "ack", **asked).json == first.json
        assert payloads(receive(ask, "shipping", limit=10)["messages"]) == ["next"]

    def test_a_lease_that_ran_out_settles_nothing(self, ask: Asking, clock: ManualClock) -> None:
        ask.publish("orders", "a")
        lease = receive(ask, visibility="1s")["lease"]
        clock.advance("2s")
        assert settle(ask, lease, "ack").error == "lease_lost"
        assert payloads(receive(ask)["messages"]) == ["a"]

    @pytest.mark.parametrize("token", ["0" * 32, "f" * 32, "zz", "0" * 31, "%00", "x" * 5000])
    def test_tokens_that_never_were(self, ask: Asking, token: str) -> None:
        for verb, asked in (("ack", {}), ("extend", {"visibility": "1s"}), ("nack", {"ids": ["1"]})):
            answer = settle(ask, token, verb, **asked)
            assert (answer.status, answer.error) == (409, "lease_lost")

    def test_a_token_counts_in_its_namespace_only(self, ask: Asking) -> None:
        ask.publish("orders", "a")
        lease = receive(ask)["lease"]
        other = ask("POST", f"/v1/leases/{lease}/ack?namespace=tenant-a")
        assert (other.status, other.error) == (409, "lease_lost")
        assert settle(ask, lease, "ack").json["settled"] == 1

    @pytest.mark.parametrize(
        ("verb", "asked", "code"),
        [
            ("ack", {"ids": [1]}, "bad_body"),
            ("ack", {"ids": ["one"]}, "bad_id"),
            ("ack", {"ids": ["9" * 30]}, "bad_id"),
            ("ack", {"delay": "1s"}, "bad_body"),
            ("ack", {"visibility": "1s"}, "bad_body"),
            ("nack", {"delay": "never"}, "bad_time"),
            ("extend", {}, "bad_body"),
            ("extend", {"visibility": "13h"}, "bad_time"),
            ("extend", {"visibility": "1s", "publish": [{"payload": "a", "topic": "b"}]}, "bad_body"),
            ("ack", {"publish": [{"payload": "a"}]}, "no_topic"),
            ("ack", {"publish": [{"payload": "a", "topic": "a b"}]}, "bad_name"),
            ("ack", {"everything": True}, "bad_body"),
        ],
    )
    def test_a_bad_call_settles_nothing(self, ask: Asking, verb: str, asked: dict[str, Any], code: str) -> None:
        ask.publish("orders", "a")
        lease = receive(ask)["lease"]
        answer = settle(ask, lease, verb, **asked)
        assert (answer.status, answer.error) == (400, code)
        assert ask("GET", "/v1/topics/orders/stats").json["leased"] == 1
        assert ask("GET", "/v1/topics").json["topics"] == ["orders"]


class TestLook:
    def test_peek_leases_nothing(self, ask: Asking) -> None:
        ask.publish("orders", "a", {"payload": "b", "priority": "high"}, "c")
        found = ask("GET", "/v1/topics/orders/peek?limit=2").json["messages"]
        assert [(message["payload"], message["attempt"]) for message in found] == [("b", 0), ("a", 0)]
        assert ask("GET", "/v1/topics/orders/stats").json["leased"] == 0
        assert ask("GET", "/v1/topics/none/peek").status == 404

    def test_a_scan_goes_on_where_it_ended(self, ask: Asking) -> None:
        ask("PUT", "/v1/topics/orders", {"partitions": 3})
        for number in range(20):
            ask.publish("orders", *({"payload": f"{number}-{part}", "key": str(part)} for part in range(5)))
        found, cursor = [], ""
        while cursor is not None:
            page = ask("GET", f"/v1/topics/orders/messages?limit=7&cursor={cursor}").json
            assert 0 < len(page["messages"]) <= 7
            found += [(message["partition"], message["offset"]) for message in page["messages"]]
            cursor = page["next"]
        assert found == sorted(set(found))
        assert len(found) == 100

    def test_a_scan_ends_though_somebody_keeps_publishing(self, ask: Asking, clock: ManualClock) -> None:
        ask.publish("orders", "a", "b", "c")
        clock.advance("1s")
        first = ask("GET", "/v1/topics/orders/messages?limit=2").json
        clock.advance("1s")
        ask.publish("orders", "d")
        second = ask("GET", f"/v1/topics/orders/messages?limit=2&cursor={first['next']}").json
        assert (payloads(second["messages"]), second["next"]) == (["c"], None)

    def test_by_offset_and_by_time(self, ask: Asking, clock: ManualClock) -> None:
        for name in ("a", "b", "c", "d"):
            ask.publish("orders", name)
            clock.advance("1m")

        def scan(query: str) -> list[str]:
            return payloads(ask("GET", f"/v1/topics/orders/messages?{query}").json["messages"])

        assert scan("") == ["a", "b", "c", "d"]
        assert scan("start_offset=1&stop_offset=3") == ["b", "c"]
        assert scan("start_time=2026-03-01T00:01:00Z&stop_time=2026-03-01T00:02:00Z") == ["b"]
        assert scan(f"start_time={clock.now() - 120_000}") == ["c", "d"]
        assert scan("start_time=latest") == []
        assert scan("partition=0&limit=1") == ["a"]

    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("start_offset=-1", "bad_position"),
            ("start_offset=x", "bad_query"),
            ("start_offset=1&start_time=2026-01-01", "bad_query"),
            ("start_time=yesterday", "bad_time"),
            ("start_time=" + "9" * 40, "bad_time"),
            ("stop_time=" + "9" * 18, "bad_time"),
            ("limit=0", "bad_limit"),
            ("limit=10001", "bad_limit"),
            ("limit=" + "9" * 5000, "bad_query"),
            ("cursor=1", "bad_position"),
            ("cursor=1.2.x", "bad_position"),
            ("cursor=0.0.9999999999999999999", "bad_position"),
            ("columns=some", "bad_query"),
            ("limit=1&limit=2", "bad_query"),
            ("limit=%ff", "bad_query"),
            ("partition=7", "not_found"),
        ],
    )
    def test_a_bad_scan(self, ask: Asking, query: str, code: str) -> None:
        ask.publish("orders", "a")
        answer = ask("GET", f"/v1/topics/orders/messages?{query}")
        assert answer.error == code
        assert answer.status in (400, 404)

    def test_a_hostile_cursor_reads_nothing_it_should_not(self, ask: Asking) -> None:
        ask.publish("orders", "a")
        for cursor in ("99.0.0", "0.9999999999999999999.1", "0.0.0"):
            page = ask("GET", f"/v1/topics/orders/messages?cursor={cursor}")
            assert page.json == {"messages": [], "next": None}

    def test_pages_are_bounded_by_bytes(self, ask: Asking) -> None:
        for _ in range(5):
            publish(ask, *[{"payload": "x" * 1_000_000}] * 8)
        first = ask("GET", "/v1/topics/orders/messages?limit=10000")
        assert len(first.body) < 40 * 1024 * 1024
        second = ask("GET", f"/v1/topics/orders/messages?limit=10000&cursor={first.json['next']}").json
        assert len(first.json["messages"]) + len(second["messages"]) == 40
        assert second["next"] is None

    def test_one_message_and_its_life(self, ask: Asking, clock: ManualClock) -> None:
        [id] = ask.publish("orders", {"payload": "a", "key": "k"})
        found = ask("GET", f"/v1/messages/{id}").json
        assert (found["id"], found["key"], found["attempt"]) == (id, "k", 0)
        assert ask("GET", f"/v1/messages/{id}/explain").json["code"]
        clock.advance("1s")
        lease = receive(ask)["lease"]
        clock.advance("1s")
        settle(ask, lease, "ack")
        told = ask("GET", f"/v1/messages/{id}/trace").json
        assert [event["kind"] for event in told["events"]] == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]
        assert (told["id"], told["attempts"], told["latency_ms"]) == (id, 1, 2000)
        assert told["text"].startswith(f"message {id} in orders")
        assert ask("GET", f"/v1/messages/{id}?namespace=other").status == 404
        for path in ("/v1/messages/1", "/v1/messages/1/trace", "/v1/messages/1/explain"):
            assert ask("GET", path).status == 404
        assert ask("GET", "/v1/messages/one").error == "bad_id"


def test_what_was_answered_is_there_after_a_restart(tmp_path) -> None:
    config = Config()
    config = replace(config, data=replace(config.data, dir=str(tmp_path / "data")))
    with RunningServer(config, memory=False) as server:
        ask = Asking(server.url)
        answer = publish(ask, *({"payload": str(number)} for number in range(300)))
        assert answer.json["durability"] == "fsync"
        lease = receive(ask, limit=100, visibility="1h")
        settle(ask, lease["lease"], "ack", ids=[message["id"] for message in lease["messages"][:50]])
    with RunningServer(config, memory=False) as server:
        ask = Asking(server.url)
        rest = [message["id"] for message in lease["messages"][50:]]
        assert settle(ask, lease["lease"], "ack", ids=rest).json["settled"] == 50
        found = receive(ask, limit=1000)["messages"]
        assert payloads(found) == [str(number) for number in range(100, 300)]
        assert json.loads(ask("GET", "/v1/topics/orders/stats").body)["acked"] == 100
