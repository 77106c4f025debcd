"""What callers try who mean no good: reaching past their rights, hanging on, sending more than anybody needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue.config import Config
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.test_security_http import security, token


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Open to everybody."""
    with RunningServer() as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with RunningServer(Config(security=security())) as running:
        yield running


def known(guarded: RunningServer, *scopes: str) -> Asking:
    return Asking(guarded.url, authorization=f"Bearer {token(*scopes)}", x_mqueue_namespace="team")


# Rights


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_message_of_another_topic_is_not_settled_by_its_id(guarded: RunningServer, verb: str, fenced: bool) -> None:
    owner, other = known(guarded, "*:team"), known(guarded, "*:team/orders")
    owner.publish("vault", "1")
    [taken] = owner("GET", "/dequeue?topic=vault&namespace=team").json
    named = {"id": taken["id"], "namespace": "team", **({"lease": taken["lease"]} if fenced else {})}
    assert other("POST", f"/{verb}", {**named, "topic": "orders"}).status in (404, 409)
    assert other("POST", f"/{verb}", {**named, "topic": "vault"}).status == 403
    assert owner("POST", f"/{verb}", {**named, "topic": "vault"}).status == 200
    owner("POST", "/v1/topics/vault/purge")


def test_dead_letters_do_not_open_a_topic_that_is_somebody_elses(guarded: RunningServer) -> None:
    owner, other = known(guarded, "*:team"), known(guarded, "*:team/lure")
    owner.publish("safe", "secret")
    refused = other("PATCH", "/v1/topics/lure", {"dlq": "safe"})
    assert (refused.status, refused.error) == (403, "forbidden")
    assert other("PATCH", "/v1/topics/lure", {"dlq": "lure.dlq"}).status == 200
    assert owner("PATCH", "/v1/topics/lure", {"dlq": "safe"}).status == 200


def test_a_part_of_a_transaction_is_not_replaced_by_who_may_not_publish_it(guarded: RunningServer) -> None:
    owner, other = known(guarded, "write:team/a"), known(guarded, "write:team/b")
    body = {"messages": [{"payload": "1"}]}
    assert owner("POST", "/v1/transactions/theirs/stage?topic=a", body).status == 200
    assert other("POST", "/v1/transactions/theirs/stage?topic=b", body).status == 403
    committed = owner("POST", "/v1/transactions/theirs/commit")
    assert (committed.status, committed.json["topics"]) == (200, ["a"])


@pytest.mark.parametrize(
    "path", ["/topic/asked/consume?consumerID=c", "/dequeue?topic=asked", "/v1/topics/asked/stream"]
)
def test_to_ask_for_the_head_of_messages_takes_none(server: RunningServer, path: str) -> None:
    ask = Asking(server.url)
    ask.publish("asked", "1")
    answer = ask("HEAD", path)
    assert answer.status == 405
    assert [each["payload"] for each in ask("POST", "/v1/topics/asked/receive", {}).json["messages"]] == ["1"]
    ask("POST", "/v1/topics/asked/purge")


def test_a_picture_on_another_site_takes_no_messages(server: RunningServer) -> None:
    ask = Asking(server.url)
    ask.publish("pictured", "1")
    path = "/topic/pictured/consume?consumerID=c"
    for site in ("cross-site", "same-site"):
        assert ask("GET", path, sec_fetch_site=site, sec_fetch_mode="no-cors").error == "cross_origin"
    assert ask("GET", "/docs", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert len(ask("GET", path, sec_fetch_site="same-origin").json["messages"]) == 1
