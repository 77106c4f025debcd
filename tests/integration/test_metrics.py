"""Metrics: what is shown is what happened, it is bounded, and the page that documents it knows all of it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

import mqueue
from mqueue.config import Address, Config, Data, Jwt, Metrics, NamespaceQuotas, Secret, Security, Server
from mqueue.server.metrics.requests import SECONDS, Requests
from mqueue.server.metrics.snapshot import GROUPS_MAX, Gathered
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
AT_ONCE = Metrics(interval_ms=0)
SECRET = Secret("a secret of a test, long enough for HS256")

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers(ask: Asking) -> Numbers:
    """Every sample by its name and labels."""
    answer = ask("GET", "/metrics")
    assert answer.status == 200
    families = text_string_to_metric_families(answer.body.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def of(found: Numbers, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def settle(ask: Asking, topic: str, verb: str, limit: int = 1) -> None:
    lease = ask("POST", f"/v1/topics/{topic}/receive", {"limit": limit}).json["lease"]
    assert ask("POST", f"/v1/leases/{lease}/{verb}", {}).status == 200


def test_what_happens_to_messages_is_counted_by_topic() -> None:
    clock = ManualClock()
    with RunningServer(Config(metrics=AT_ONCE), clock) as server:
        ask = Asking(server.url)
        ask.publish("orders", *[f"{n}" for n in range(10)], {"payload": "later", "delay": "1h"})
        for verb in ("ack", "nack", "reject", "release"):
            settle(ask, "orders", verb)
        assert ask("POST", "/v1/topics/orders/receive", {}).json["lease"]
        clock.advance("500ms")
        found = numbers(ask)
        seen = {name: of(found, f"mqueue_topic_{name}", namespace="default", topic="orders") for name in (
            "published_total", "delivered_total", "acked_total", "nacked_total", "rejected_total", "released_total",
            "dead_total", "depth", "ready", "waiting", "scheduled", "leased", "oldest_ready_seconds")}  # fmt: skip
        assert seen == {
            "published_total": 11,
            "delivered_total": 5,
            "acked_total": 1,
            "nacked_total": 1,
            "rejected_total": 1,
            "released_total": 1,
            "dead_total": 1,
            "depth": 9,
            "ready": 6,
            "waiting": 1,
            "scheduled": 1,
            "leased": 1,
            "oldest_ready_seconds": 0.5,
        }
        assert of(found, "mqueue_group_lag", namespace="default", topic="orders", group="default") == 8
        assert of(found, "mqueue_leases") == 1
        assert of(found, "mqueue_topics") == 2  # the dead have theirs
        assert of(found, "mqueue_ready") == 1


def test_a_lease_that_runs_out_is_counted_apart() -> None:
    clock = ManualClock()
    with RunningServer(Config(metrics=AT_ONCE), clock) as server:
        ask = Asking(server.url)
        ask.publish("orders", "a", "b", "c")
        ask("POST", "/v1/topics/orders/receive", {"limit": 2, "visibility": "10s"})
        clock.advance("11s")
        assert len(ask("POST", "/v1/topics/orders/receive", {"limit": 5}).json["messages"]) == 3
        found = numbers(ask)
        assert of(found, "mqueue_topic_timed_out_total", namespace="default", topic="orders") == 2
        assert of(found, "mqueue_topic_nacked_total", namespace="default", topic="orders") == 0


def test_how_long_calls_and_messages_take_is_spread_out() -> None:
    """A message is as old as the clock says; what is tried again, or not handed out at all, does not count."""
    clock = ManualClock()
    with RunningServer(Config(metrics=AT_ONCE), clock) as server:
        ask = Asking(server.url)
        ask.publish("orders", "a")
        ask.publish("orders", "b")
        assert ask("POST", "/v1/topics/orders/messages", b"{").status == 400
        ask("POST", "/v1/topics/empty/receive", {})
        clock.advance("20s")
        settle(ask, "orders", "nack", 2)
        clock.advance("1m")
        settle(ask, "orders", "ack", 2)
        found = numbers(ask)
    assert of(found, "mqueue_publish_seconds_count") == 2
    assert of(found, "mqueue_settle_seconds_count") == 2
    assert of(found, "mqueue_deliver_seconds_count") == 1
    assert of(found, "mqueue_deliver_seconds_sum") == 20.0
    assert of(found, "mqueue_deliver_seconds_bucket", le="10.0") == 0
    assert of(found, "mqueue_deliver_seconds_bucket", le="30.0") == 1


def test_requests_are_counted_by_route_and_status(server: RunningServer) -> None:
    ask = Asking(server.url)
    ask.publish("orders", "x", "y")
    assert ask("POST", "/v1/topics/orders/messages", b"{").status == 400
    assert ask("GET", "/nowhere").status == 404
    found = numbers(ask)
    route = {"method": "POST", "route": "/v1/topics/{topic}/messages"}
    assert of(found, "mqueue_http_requests_total", status="200", **route) == 1
    assert of(found, "mqueue_http_requests_total", status="400", **route) == 1
    assert of(found, "mqueue_http_requests_total", status="404", method="", route="") == 1
    assert of(found, "mqueue_http_request_seconds_count", **route) == 2
    assert of(found, "mqueue_http_received_bytes_total", **route) > 1
    assert of(found, "mqueue_http_requests_in_flight") == 1  # the one that asks
    assert of(found, "mqueue_http_connections") >= 1


def test_refusals_are_counted() -> None:
    jwt = Jwt(SECRET, algorithms=("HS256",))
    config = Config(security=Security(auth=("jwt",), jwt=jwt), metrics=replace(AT_ONCE, public=True))
    with RunningServer(config) as server:
        ask = Asking(server.url)
        assert ask("GET", "/v1/topics").status == 401
        assert of(numbers(ask), "mqueue_refusals_total", reason="unauthorized") == 1


def test_metrics_take_the_right_to_manage_the_server_unless_they_are_public() -> None:
    jwt = Jwt(SECRET, algorithms=("HS256",))
    with RunningServer(Config(security=Security(auth=("jwt",), jwt=jwt))) as server:
        assert Asking(server.url)("GET", "/metrics").status == 401
        assert Asking(server.url)("GET", "/health").status == 200


def test_metrics_that_are_off_are_not_found() -> None:
    with RunningServer(Config(metrics=Metrics(enabled=False))) as server:
        answer = Asking(server.url)("GET", "/metrics")
        assert (answer.status, answer.error) == (404, "metrics_off")


def test_messages_over_a_quota_are_counted() -> None:
    with RunningServer(Config(metrics=AT_ONCE, quotas=NamespaceQuotas(None, {"default": 2}))) as server:
        ask = Asking(server.url)
        body = {"messages": [{"payload": "x"}] * 3}
        assert ask("POST", "/v1/topics/orders/messages", body).status == 429
        assert of(numbers(ask), "mqueue_quota_refused_messages_total") == 3


def test_topics_beyond_the_limit_are_added_up() -> None:
    with RunningServer(Config(metrics=replace(AT_ONCE, topics_max=2))) as server:
        ask = Asking(server.url)
        for number in range(5):
            ask.publish(f"t{number}", "x")
        found = numbers(ask)
        topics = {dict(labels)["topic"] for name, labels in found if name == "mqueue_topic_published_total"}
        assert topics == {"t0", "t1", "_other"}
        assert of(found, "mqueue_topic_published_total", namespace="_other", topic="_other") == 3
        assert of(found, "mqueue_topics") == 5


def test_groups_of_topics_beyond_the_limit_are_seen_by_alarms() -> None:
    clock = ManualClock()
    with RunningServer(Config(metrics=replace(AT_ONCE, topics_max=1)), clock) as server:
        ask = Asking(server.url)
        ask.publish("first", "x")
        for topic in ("second", "third"):
            assert ask("PUT", f"/v1/topics/{topic}/groups/g", {"start": "earliest"}).status in (200, 201)
            ask.publish(topic, "x", "y")
            clock.advance("1h")
        found = numbers(ask)
        other = {"namespace": "_other", "topic": "_other", "group": "_other"}
        assert of(found, "mqueue_group_oldest_ready_seconds", **other) == 7200
        assert of(found, "mqueue_group_lag", **other) == 4
        assert of(found, "mqueue_group_blocked_keys", **other) == 0


def test_groups_of_topics_that_several_nodes_counted() -> None:
    parts = [Gathered(1) for _ in range(2)]
    for part in parts:
        with mqueue.Broker() as q:
            for topic in ("a", "b"):
                q.create_group(topic, "g", start="earliest")
                q.publish(topic, b"x")
            asyncio.run(part.add_all(q))
    first, other = Gathered.joined(1, parts).rows
    assert [(group.name, group.depth) for group in first.groups] == [("g", 1)]
    assert [(group.name, group.depth) for group in other.groups] == [("_other", 3)]


def test_groups_beyond_the_limit_are_added_up() -> None:
    with RunningServer(Config(metrics=AT_ONCE)) as server:
        ask = Asking(server.url)
        ask.publish("orders", "x", "y")
        for number in range(GROUPS_MAX + 3):
            answer = ask("PUT", f"/v1/topics/orders/groups/g{number}", {"start": "earliest"})
            assert answer.status in (200, 201)
        found = numbers(ask)
        groups = [dict(labels)["group"] for name, labels in found if name == "mqueue_group_lag"]
        assert len(groups) == GROUPS_MAX + 1
        assert of(found, "mqueue_group_lag", namespace="default", topic="orders", group="_other") == 6


def test_two_servers_of_one_process_do_not_mix() -> None:
    with RunningServer(Config(metrics=AT_ONCE)) as one, RunningServer(Config(metrics=AT_ONCE)) as other:
        Asking(one.url).publish("orders", "x")
        assert of(numbers(Asking(one.url)), "mqueue_topics") == 1
        assert of(numbers(Asking(other.url)), "mqueue_topics") == 0


def test_numbers_that_are_young_enough_are_not_counted_again() -> None:
    clock = ManualClock()
    with RunningServer(Config(metrics=Metrics(interval_ms=1000)), clock) as server:
        ask = Asking(server.url)
        assert of(numbers(ask), "mqueue_topics") == 0
        ask.publish("orders", "x")
        assert of(numbers(ask), "mqueue_topics") == 0
        clock.advance("1s")
        assert of(numbers(ask), "mqueue_topics") == 1


def test_every_metric_is_on_the_page_and_the_page_has_no_other(tmp_path: Path) -> None:
    """On disk, so that the numbers of the disk are there; a topic with a group, so that theirs are."""
    listeners = Server(grpc=Address("127.0.0.1", 0))
    config = Config(data=Data(dir=str(tmp_path / "data")), metrics=AT_ONCE, server=listeners)
    with RunningServer(config, memory=False) as server:
        ask = Asking(server.url)
        ask.publish("orders", "x")
        settle(ask, "orders", "ack")
        text = ask("GET", "/metrics").body.decode()
        found = numbers(ask)
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE mqueue_")}
    alone = PAGE.read_text(encoding="utf-8").partition("### Metrics of a node")[0]
    told = set(re.findall(r"^\| `(mqueue_\w+)` \|", alone, re.MULTILINE))
    assert shown == {name for name in told if not name.startswith("mqueue_telemetry_")}  # those are only with telemetry
    assert of(found, "mqueue_commit_sync_seconds_count") >= 1
    assert of(found, "mqueue_commit_bytes_sum") >= 1
    assert of(found, "mqueue_log_segments") >= 1
    assert of(found, "mqueue_disk_free_bytes") > 0


@pytest.mark.parametrize("value", [0.0, SECONDS[0], 0.3, 1e9])
def test_a_value_is_in_every_bucket_from_its_own_on(value: float) -> None:
    requests = Requests([("GET", "/x")])
    requests.tallies["GET", "/x"].add(200, value, 1, 2)
    buckets = requests.tallies["GET", "/x"].seconds.cumulative()
    assert [count for _, count in buckets] == [int(float(bound) >= value) for bound, _ in buckets]
