"""Keys and quotas over HTTP, on a server that takes keys: shown once, hold at once, and outlive the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqueue.config import Config, Data, Jwt, Secret, Security
from mqueue.server.security.tokens import issue
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

SECRET = "a secret of a test, long enough for HS256"
PEPPER = "pepper of a test, long enough for BLAKE2b"


def config(folder: Path) -> Config:
    jwt = Jwt(secret=Secret(SECRET), algorithms=("HS256",))
    security = Security(auth=("jwt", "keys"), jwt=jwt, keys_pepper=Secret(PEPPER))
    return Config(data=Data(dir=str(folder)), security=security)


def admin(server: RunningServer, clock: ManualClock) -> Asking:
    token = issue(SECRET, "HS256", subject="root", scopes=["*:*"], issuer="mqueue", audience="mqueue", now=clock.now())
    return Asking(server.url, Authorization=f"Bearer {token}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_keys_and_quotas_outlive_the_server(tmp_path: Path, clock: ManualClock) -> None:
    with RunningServer(config(tmp_path), clock=clock, memory=False) as server:
        root = admin(server, clock)
        made = root("POST", "/v1/keys", {"name": "shop", "scopes": ["write:default", "read:default"]})
        assert (made.status, made.json["name"]) == (201, "shop")
        assert made.headers["cache-control"] == "no-store"
        key = made.json["key"]
        gone = root("POST", "/v1/keys", {"name": "old", "scopes": ["write:default"]}).json["key"]
        assert root("DELETE", "/v1/keys/old").status == 204
        assert root("PUT", "/v1/quotas/default", {"per_minute": 2}).status == 200
        assert root("PUT", "/v1/topics/orders", {"partitions": 2}).status == 200
    with RunningServer(config(tmp_path), clock=clock, memory=False) as server:
        root = admin(server, clock)
        shop = Asking(server.url, X_Api_Key=key)
        assert len(shop.publish("orders", "a", "b")) == 2
        assert shop("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "c"}]}).error == "quota_exceeded"
        assert Asking(server.url, X_Api_Key=gone)("GET", "/v1/topics").status == 401
        assert shop("PUT", "/v1/quotas/default", {"per_minute": 100}).status == 403
        assert root("GET", "/v1/topics/orders").json["settings"]["partitions"] == 2
        listed = root("GET", "/v1/keys")
        assert [each["name"] for each in listed.json["keys"]] == ["old", "shop"]
        assert [each["revoked_at"] is None for each in listed.json["keys"]] == [False, True]
        assert key.encode() not in listed.body
        assert root("GET", "/v1/keys?limit=1").json["next"] == "old"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "a/b", "scopes": ["read:default"]}, 400),
        ({"name": "shop", "scopes": ["own:default"]}, 400),
        ({"name": "shop", "scopes": ["read:default"], "expires_at": "2000-01-01"}, 400),
        ({"name": "shop", "scopes": ["read:default"], "expires_at": 10**20}, 400),
        ({"name": "shop"}, 400),
        ({"name": "taken", "scopes": ["read:default"]}, 409),
    ],
)
def test_a_bad_key_is_refused(tmp_path: Path, clock: ManualClock, body: object, status: int) -> None:
    with RunningServer(config(tmp_path), clock=clock) as server:
        root = admin(server, clock)
        root("POST", "/v1/keys", {"name": "taken", "scopes": ["read:default"]})
        assert root("POST", "/v1/keys", body).status == status
        assert [each["name"] for each in root("GET", "/v1/keys").json["keys"]] == ["taken"]
        assert root("DELETE", "/v1/keys/nobody").status == 404
