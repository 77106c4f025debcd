"""The routes that manage: topics, groups, schedules, cursors, the whole server.

What they do is the broker's; here it is shown that they reach it, say what came of it, and refuse what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue.broker.numbers import GroupStats
from mqueue.model.settings import Settings, describe
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.json_manage import GroupOut, StatsOut, TopicSettings
from tests.integration.asking import Asking


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ask(clock: ManualClock) -> Iterator[Asking]:
    with RunningServer(clock=clock) as server:
        yield Asking(server.url)


# Topics


def test_a_topic_is_made_changed_shown_and_deleted(ask: Asking) -> None:
    made = ask("PUT", "/v1/topics/orders", {"partitions": 3, "backoff": "2s"})
    assert made.status == 200
    assert made.json["topic"] == "orders"
    assert made.json["namespace"] == "default"
    assert made.json["settings"]["partitions"] == 3
    assert made.json["settings"]["backoff"] == 2.0
    changed = ask("PATCH", "/v1/topics/orders", {"retention": {"hours": 1}, "dlq": "graveyard", "max_retries": None})
    assert changed.json == ask("GET", "/v1/topics/orders").json
    assert changed.json["settings"]["partitions"] == 3
    assert changed.json["settings"]["retention"] == {"hours": 1.0}
    assert changed.json["settings"]["dlq"] == "graveyard"
    assert changed.json["settings"]["max_retries"] is None
    assert ask("DELETE", "/v1/topics/orders").status == 204
    assert ask("GET", "/v1/topics/orders").error == "not_found"
    assert ask("DELETE", "/v1/topics/orders").status == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad_json"),
        (b"[]", "bad_body"),
        ({"partitions": 0}, "bad_setting"),
        ({"partitions": "many"}, "bad_setting"),
        ({"nonsense": 1}, "bad_setting"),
        ({"topic": "t"}, "bad_setting"),
        ({"self": 1}, "bad_setting"),
        ({"retention": {"days": 1}}, "bad_setting"),
        ({"backoff": "soon"}, "bad_setting"),
    ],
)
def test_a_bad_setting_is_refused_and_makes_no_topic(ask: Asking, body: object, code: str) -> None:
    answer = ask("PUT", "/v1/topics/orders", body)
    assert (answer.status, answer.error) == (400, code)
    assert ask("GET", "/v1/topics").json["topics"] == []


def test_all_settings_and_numbers_have_their_place_in_the_json() -> None:
    assert list(TopicSettings.__struct_fields__) == list(describe(Settings()))
    assert GroupOut.__struct_fields__ == ("group", *GroupStats.__struct_fields__)


def test_topics_come_in_pages(ask: Asking) -> None:
    for name in "cab":
        ask("PUT", f"/v1/topics/{name}", {})
    assert ask("GET", "/v1/topics").json == {"topics": ["a", "b", "c"], "next": None}
    first = ask("GET", "/v1/topics?limit=2").json
    assert first == {"topics": ["a", "b"], "next": "b"}
    assert ask("GET", f"/v1/topics?limit=2&after={first['next']}").json == {"topics": ["c"], "next": None}
    assert ask("GET", "/v1/topics?limit=3").json["next"] is None
    for limit in ("0", "10001", "x", "-1", ""):
        assert ask("GET", f"/v1/topics?limit={limit}").status == 400


def test_namespaces_are_apart(ask: Asking) -> None:
    ask("PUT", "/v1/topics/orders?namespace=tenant-a", {})
    assert ask("GET", "/v1/topics").json["topics"] == []
    assert ask("GET", "/v1/topics", x_mqueue_namespace="tenant-a").json["topics"] == ["orders"]
    assert ask("GET", "/v1/topics?namespace=tenant-b", x_mqueue_namespace="tenant-a").error == "bad_query"
    assert ask("GET", "/v1/topics?namespace=a%2Fb").error == "bad_name"


def test_purge_stats_and_partitions(ask: Asking) -> None:
    ask("PUT", "/v1/topics/orders", {"partitions": 2})
    ask.publish("orders", {"payload": "a", "key": "k"}, {"payload": "b", "key": "k"}, {"payload": "c", "key": "k"})
    stats = ask("GET", "/v1/topics/orders/stats").json
    assert (stats["published"], stats["ready"], stats["partitions"], stats["groups"]) == (3, 3, 2, {})
    spans = ask("GET", "/v1/topics/orders/partitions").json["partitions"]
    assert [span["partition"] for span in spans] == [0, 1]
    assert sorted((span["start"], span["end"], span["messages"]) for span in spans) == [(0, 0, 0), (0, 3, 3)]
    assert ask("POST", "/v1/topics/orders/purge").json == {"purged": 3}
    assert ask("GET", "/v1/topics/orders/stats").json["ready"] == 0
    for path in ("purge", "stats", "partitions", "groups", "scheduled", "cursors"):
        method = "POST" if path == "purge" else "GET"
        assert ask(method, f"/v1/topics/nowhere/{path}").error == "not_found"


# Groups


def test_a_group_is_made_shown_moved_and_deleted(ask: Asking) -> None:
    ask.publish("orders", "a", "b")
    made = ask("PUT", "/v1/topics/orders/groups/g", {"start": "latest"})
    assert made.status == 201
    assert (made.json["group"], made.json["ready"]) == ("g", 0)
    assert ask("PUT", "/v1/topics/orders/groups/g", {}).error == "group_exists"
    assert ask("POST", "/v1/topics/orders/groups/g/seek", {"to": "earliest"}).status == 204
    assert ask("GET", "/v1/topics/orders/groups/g").json["ready"] == 2
    assert ask("POST", "/v1/topics/orders/groups/g/seek", {"to": 1}).status == 204
    assert ask("GET", "/v1/topics/orders/groups").json["groups"][0]["ready"] == 1
    assert ask("POST", "/v1/topics/orders/groups/g/seek", {"to": "2000-01-01T00:00:00Z"}).status == 204
    assert ask("GET", "/v1/topics/orders/groups/g").json["ready"] == 2
    assert ask("DELETE", "/v1/topics/orders/groups/g").status == 204
    assert ask("GET", "/v1/topics/orders/groups/g").error == "not_found"
    assert ask("GET", "/v1/topics/orders/groups").json == {"groups": [], "next": None}


@pytest.mark.parametrize("to", [-1, "yesterday", None, 1.5, True, {}])
def test_a_bad_position_is_refused(ask: Asking, to: object) -> None:
    ask("PUT", "/v1/topics/orders/groups/g", {})
    assert ask("POST", "/v1/topics/orders/groups/g/seek", {"to": to}).status == 400
    assert ask("PUT", "/v1/topics/orders/groups/h", {"start": to}).status == 400
    assert [each["group"] for each in ask("GET", "/v1/topics/orders/groups").json["groups"]] == ["g"]


def test_groups_come_in_pages(ask: Asking) -> None:
    for name in "cab":
        ask("PUT", f"/v1/topics/orders/groups/{name}", {})
    first = ask("GET", "/v1/topics/orders/groups?limit=2").json
    assert ([each["group"] for each in first["groups"]], first["next"]) == (["a", "b"], "b")
    rest = ask("GET", "/v1/topics/orders/groups?limit=2&after=b").json
    assert ([each["group"] for each in rest["groups"]], rest["next"]) == (["c"], None)


# Schedules


def test_what_is_scheduled_is_listed_moved_and_cancelled(ask: Asking, clock: ManualClock) -> None:
    late, soon = ask.publish("orders", {"payload": "late", "delay": "2h"}, {"payload": "soon", "delay": "1h"})
    listed = ask("GET", "/v1/topics/orders/scheduled").json["messages"]
    assert [message["id"] for message in listed] == [soon, late]
    assert listed[0]["payload"] == "soon"
    assert ask("PATCH", f"/v1/messages/{soon}", {"delay": "3h"}).status == 204
    [first] = ask("GET", "/v1/topics/orders/scheduled?limit=1").json["messages"]
    assert first["id"] == late
    at = clock.now() + 60_000
    assert ask("PATCH", f"/v1/messages/{soon}", {"deliver_at": at}).status == 204
    assert ask("DELETE", f"/v1/messages/{late}").status == 204
    assert [message["id"] for message in ask("GET", "/v1/topics/orders/scheduled").json["messages"]] == [soon]
    clock.advance("1m")
    for method, body in (("DELETE", None), ("PATCH", {"delay": "1h"})):
        answer = ask(method, f"/v1/messages/{soon}", body)
        assert (answer.status, answer.error) == (409, "not_scheduled")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("x", {"delay": 1}, 400, "bad_id"),
        ("-1", {"delay": 1}, 400, "bad_id"),
        ("1" * 20, {"delay": 1}, 400, "bad_id"),
        ("7", {"delay": 1}, 404, "not_found"),
        ("7?namespace=other", {"delay": 1}, 404, "not_found"),
        ("ID", {}, 400, "bad_time"),
        ("ID", {"delay": 1, "deliver_at": "2099-01-01"}, 400, "bad_time"),
        ("ID", {"deliver_at": 10**30}, 400, "bad_time"),
        ("ID", {"deliver_at": "soon"}, 400, "bad_time"),
        ("ID", {"later": 1}, 400, "bad_body"),
    ],
)
def test_a_bad_reschedule_is_refused(ask: Asking, path: str, body: object, status: int, code: str) -> None:
    [id] = ask.publish("orders", {"payload": "x", "delay": "1h"})
    before = ask("GET", "/v1/topics/orders/scheduled").json
    answer = ask("PATCH", f"/v1/messages/{path.replace('ID', id)}", body)
    assert (answer.status, answer.error) == (status, code)
    assert ask("GET", "/v1/topics/orders/scheduled").json == before


# Cursors


def test_a_cursor_is_made_moved_renewed_and_deleted(ask: Asking, clock: ManualClock) -> None:
    ask.publish("orders", "a", "b", "c")
    made = ask("PUT", "/v1/topics/orders/cursors/archive")
    assert made.status == 200
    assert made.json["offsets"] == {"0": 0}
    moved = ask("PUT", "/v1/topics/orders/cursors/archive", {"offsets": {"0": 2}, "ttl": "1h"}).json
    clock.advance("30m")
    renewed = ask("PUT", "/v1/topics/orders/cursors/archive", {"ttl": "1h"}).json
    assert renewed["offsets"] == moved["offsets"] == {"0": 2}
    assert renewed["made_at"] == made.json["made_at"]
    assert renewed["expires_at"] > moved["expires_at"]
    assert ask("GET", "/v1/topics/orders/cursors").json == {"cursors": [renewed]}
    assert ask("GET", "/v1/topics/orders/cursors/archive").json == renewed
    clock.advance("1h")
    assert ask("GET", "/v1/topics/orders/cursors/archive").error == "not_found"
    ask("PUT", "/v1/topics/orders/cursors/archive")
    assert ask("DELETE", "/v1/topics/orders/cursors/archive").status == 204
    assert ask("DELETE", "/v1/topics/orders/cursors/archive").status == 404


@pytest.mark.parametrize(
    "body",
    [{"offsets": {"x": 1}}, {"offsets": {"7": 1}}, {"offsets": {"0": -1}}, {"ttl": "0s"}, {"ttl": "x"}, {"a": 1}],
)
def test_a_bad_cursor_is_refused(ask: Asking, body: object) -> None:
    ask.publish("orders", "a")
    assert ask("PUT", "/v1/topics/orders/cursors/archive", body).status == 400
    assert ask("GET", "/v1/topics/orders/cursors").json == {"cursors": []}


# The whole server


def test_namespaces_are_counted(ask: Asking) -> None:
    ask.publish("orders", "a")
    ask.publish("orders", "a", "b", namespace="tenant-a")
    ask("PUT", "/v1/topics/returns?namespace=tenant-a", {})
    found = ask("GET", "/v1/namespaces").json
    assert found["namespaces"] == [{"namespace": "default", "topics": 1}, {"namespace": "tenant-a", "topics": 2}]
    whole = ask("GET", "/v1/stats").json
    assert (whole["topics"], whole["published"]) == (3, 3)
    assert set(whole) == set(StatsOut.__struct_fields__)
    one = ask("GET", "/v1/stats?namespace=tenant-a").json
    assert (one["topics"], one["published"]) == (2, 2)
    assert ask("GET", "/v1/stats", x_mqueue_namespace="default").json["published"] == 1
    assert ask("GET", "/v1/stats?namespace=nobody").json["topics"] == 0


def test_a_quota_holds_as_soon_as_it_is_set_and_no_longer_than_it_is(ask: Asking) -> None:
    assert ask("PUT", "/v1/quotas/default", {"per_minute": 2}).json == {"namespace": "default", "per_minute": 2}
    assert ask("GET", "/v1/quotas").json["quotas"] == [{"namespace": "default", "per_minute": 2}]
    ask.publish("orders", "a", "b")
    refused = ask("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "c"}]})
    assert (refused.status, refused.error) == (429, "quota_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert ask("DELETE", "/v1/quotas/default").status == 204
    assert ask("GET", "/v1/quotas").json["quotas"] == []
    ask.publish("orders", "c")
    assert ask("GET", "/v1/topics/orders/stats").json["published"] == 3


@pytest.mark.parametrize("body", [{}, {"per_minute": -1}, {"per_minute": "x"}, {"per_minute": 1.5}, {"a": 1}])
def test_a_bad_quota_is_refused(ask: Asking, body: object) -> None:
    assert ask("PUT", "/v1/quotas/tenant-a", body).status == 400
    assert ask("PUT", "/v1/quotas/a%2Fb", {"per_minute": 1}).error == "bad_name"
    assert ask("GET", "/v1/quotas").json["quotas"] == []


def test_where_keys_are_not_taken_none_is_made(ask: Asking) -> None:
    assert ask("POST", "/v1/keys", {"name": "shop", "scopes": ["read:a"]}).error == "keys_off"
    assert ask("DELETE", "/v1/keys/shop").error == "keys_off"
    assert ask("GET", "/v1/keys").json == {"keys": [], "next": None}


# Routes


@pytest.mark.parametrize("path", ["/v1/topics/%ff/stats", "/v1/topics/%c3%28", "/v1/topics//stats", "/v1/no", "//"])
def test_a_path_that_leads_nowhere_is_said_so(ask: Asking, path: str) -> None:
    answer = ask("GET", path)
    assert answer.status in (400, 404)
    assert answer.error in ("bad_name", "no_route", "not_found")


def test_a_method_that_is_not_for_a_path_names_those_that_are(ask: Asking) -> None:
    answer = ask("POST", "/v1/topics/orders")
    assert (answer.status, answer.error) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, PATCH, PUT"
