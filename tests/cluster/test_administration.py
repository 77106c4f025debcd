"""Keys and quotas of a cluster: made at one node, they hold at all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqueue.config import Cluster, Config, Jwt, Metrics, Secret, Security
from mqueue.model.clock import SystemClock
from mqueue.server.placing.peers import Peers
from mqueue.server.security.tokens import issue
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until
from tests.integration.asking import Asking

SECRET = "a secret of a test, long enough for HS256"
PEPPER = "pepper of a test, long enough for BLAKE2b"


def security(pepper: str = PEPPER) -> Security:
    jwt = Jwt(secret=Secret(SECRET), issuer="mqueue", audience="mqueue", algorithms=("HS256",))
    return Security(auth=("jwt", "keys"), jwt=jwt, keys_pepper=Secret(pepper))


def config(database: str, pepper: str = PEPPER) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)), security=security(pepper))


def admin(url: str) -> Asking:
    now = SystemClock().now()
    proof = issue(SECRET, "HS256", subject="svc", scopes=["admin:*"], issuer="mqueue", audience="mqueue", now=now)
    return Asking(url, authorization=f"Bearer {proof}")


@pytest.fixture
def nodes(database: str) -> Iterator[list[RunningServer]]:
    with RunningServer(config(database)) as first, RunningServer(config(database)) as second:
        yield [first, second]


def knows(node: RunningServer, key: str) -> bool:
    return Asking(node.url, x_api_key=key)("GET", "/v1/topics").status == 200


def test_a_key_is_one_of_all_nodes_until_it_is_revoked_at_any(nodes: list[RunningServer]) -> None:
    first, second = nodes
    made = admin(first.url)("POST", "/v1/keys", {"name": "shop", "scopes": ["read:default"]})
    assert made.status == 201
    key = made.json["key"]
    wait_until(lambda: knows(second, key))
    assert [one["name"] for one in admin(second.url)("GET", "/v1/keys").json["keys"]] == ["shop"]
    assert admin(second.url)("POST", "/v1/keys", {"name": "shop", "scopes": ["read:default"]}).status == 409
    assert admin(second.url)("DELETE", "/v1/keys/shop").status == 204
    assert not knows(second, key)
    wait_until(lambda: not knows(first, key))


def test_who_is_not_told_looks_by_himself(nodes: list[RunningServer], monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(peers: Peers, service: object) -> None:
        pass

    monkeypatch.setattr(Peers, "tell", nothing)
    first, second = nodes
    key = admin(first.url)("POST", "/v1/keys", {"name": "shop", "scopes": ["read:default"]}).json["key"]
    wait_until(lambda: knows(second, key))
    admin(second.url)("DELETE", "/v1/keys/shop")
    wait_until(lambda: not knows(first, key))


def test_a_quota_holds_at_all_nodes_and_outlives_them(nodes: list[RunningServer], database: str) -> None:
    first, second = (admin(node.url) for node in nodes)
    assert first("PUT", "/v1/quotas/small", {"per_minute": 0}).json == {"namespace": "small", "per_minute": 0}
    wait_until(
        lambda: second("POST", "/v1/topics/t/messages?namespace=small", {"messages": [{"payload": "x"}]}).status == 429
    )
    assert second("GET", "/v1/quotas").json["quotas"] == [{"namespace": "small", "per_minute": 0}]
    for node in nodes:
        node.close()
    with RunningServer(config(database)) as third:
        after = admin(third.url)
        assert after("GET", "/v1/quotas").json["quotas"] == [{"namespace": "small", "per_minute": 0}]
        assert after("POST", "/v1/topics/t/messages?namespace=small", {"messages": [{"payload": "x"}]}).status == 429
        assert after("DELETE", "/v1/quotas/small").status == 204
        after.publish("t", "x", namespace="small")


def test_a_node_with_another_pepper_does_not_start(database: str) -> None:
    with RunningServer(config(database)) as first:
        admin(first.url)("POST", "/v1/keys", {"name": "shop", "scopes": ["read:default"]})
    with pytest.raises(Exception, match="the pepper is another one"):
        RunningServer(config(database, "another-" + PEPPER))


def test_while_the_first_server_is_away_keys_hold_and_none_can_be_made() -> None:
    with PostgresServer() as server, RunningServer(config(server.create("mine"))) as node:
        ask = admin(node.url)
        key = ask("POST", "/v1/keys", {"name": "shop", "scopes": ["read:default"]}).json["key"]
        server.stop()
        refused = ask("POST", "/v1/keys", {"name": "mill", "scopes": ["read:default"]})
        assert (refused.status, refused.error) == (503, "shard_down")
        assert ask("PUT", "/v1/quotas/small", {"per_minute": 1}).error == "shard_down"
        assert [one["name"] for one in ask("GET", "/v1/keys").json["keys"]] == ["shop"]
        assert Asking(node.url, x_api_key=key)("GET", "/v1/quotas").status == 403, "known, and not an admin"
        server.start()
        wait_until(lambda: ask("DELETE", "/v1/keys/shop").status == 204)
