"""The command lines that other queues of this kind give their users: each works here as it is printed there.

Run with the real curl, over http and over https with a certificate made at the start, with and without a token.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from msgspec.structs import replace

from mqueue.config import Config, Jwt, Secret, Security, Tls
from mqueue.testing.server import RunningServer

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: make setup-system"),
]

SECRET = "a secret that is long enough for HS256, and not in use anywhere"
DEADLINE_SECONDS = 120

Curl = Callable[..., Any]


def _config(tls: bool, auth: bool) -> Config:
    security = Security(tls=Tls(self_signed=tls))
    if auth:
        security = replace(security, auth=("jwt",), jwt=Jwt(secret=Secret(SECRET), algorithms=("HS256",)))
    return Config(security=security)


def _token() -> str:
    now = int(time.time())
    claims = {"iss": "mqueue", "aud": "mqueue", "sub": "someone", "iat": now, "exp": now + 3600}
    return jwt.encode({**claims, "scope": "*:default"}, SECRET, "HS256")


@pytest.fixture(scope="module", params=["http", "https", "http with a token", "https with a token"])
def curl(request) -> Iterator[Curl]:
    """`curl(path, *arguments)`: what the server answers, from JSON where it is JSON."""
    tls, auth = "https" in request.param, "token" in request.param
    with RunningServer(_config(tls, auth)) as server:
        always = ["curl", "--silent", "--show-error", "--insecure", "--max-time", str(DEADLINE_SECONDS)]
        if auth:
            always += ["-H", f"Authorization: Bearer {_token()}"]

        def call(path: str, *arguments: str) -> Any:
            command = [*always, *arguments, server.url + path]
            done = subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout) if done.stdout[:1] in (b"{", b"[") else done.stdout.decode()

        assert server.url.startswith("https:" if tls else "http:")
        yield call


def test_the_server_is_well(curl) -> None:
    assert curl("/health") == "OK"


def test_enqueue_dequeue_ack(curl) -> None:
    message = """[{
    "namespace": "default",
    "topic": "test-topic",
    "priority": 1,
    "payload": "SGVsbG8gV29ybGQ=",
    "deliver_after": "2024-01-01T12:00:00Z"
  }]"""
    queued = curl("/enqueue", "-X", "POST", "-H", "Content-Type: application/json", "-d", message)
    [id] = queued["ids"]
    [taken] = curl("/dequeue?namespace=default&topic=test-topic&limit=1")
    assert (taken["id"], taken["namespace"], taken["topic"], taken["priority"]) == (id, "default", "test-topic", 1)
    assert base64.b64decode(taken["payload"]) == b"Hello World"
    assert taken["attempt"] == 1
    done = {"id": id, "namespace": "default", "topic": "test-topic"}
    assert curl("/ack", "-X", "POST", "-d", json.dumps(done)) == {"status": "ok"}
    assert curl("/dequeue?namespace=default&topic=test-topic&limit=1") == []


def test_one_message_needs_no_list_and_a_failed_one_dies_in_the_end(curl) -> None:
    message = {"topic": "mail", "payload": "aGk=", "idempotency_key": "m-1"}
    [id] = curl("/enqueue", "-d", json.dumps(message))["ids"]
    assert curl("/enqueue", "-d", json.dumps(message))["ids"] == [id]
    assert curl("/v1/topics/mail", "-X", "PATCH", "-d", '{"max_retries": 0}')["settings"]["max_retries"] == 0
    [taken] = curl("/dequeue?topic=mail")
    done = {"id": id, "topic": "mail", "lease": taken["lease"]}
    assert curl("/nack", "-d", json.dumps(done)) == {"status": "ok"}
    [dead] = curl("/dlq?topic=mail&limit=5")
    assert base64.b64decode(dead["payload"]) == b"hi"
    assert "lease" not in dead


def test_an_ack_without_a_lease_settles_what_dequeue_handed_out_and_nothing_else(curl) -> None:
    [id] = curl("/enqueue", "-d", json.dumps({"topic": "held", "payload": "eA=="}))["ids"]
    lease = curl("/v1/topics/held/receive", "-d", "{}")
    assert lease["messages"][0]["id"] == str(id)
    done = json.dumps({"id": id, "topic": "held"})
    assert curl("/ack", "-d", done)["error"]["code"] == "lease_lost"
    assert curl(f"/v1/leases/{lease['lease']}/release", "-d", "{}")["settled"] == 1
    assert len(curl("/dequeue?topic=held")) == 1
    assert curl("/ack", "-d", done) == {"status": "ok"}


def test_publish_with_a_key_and_a_delay(curl) -> None:
    body = """{
    "key": "order-123",
    "value": "eyJvcmRlcl9pZCI6MTIzfQ==",
    "delay": "5m"
  }"""
    path = "/v1/topics/delayed-orders/publish"
    placed = curl(path, "-X", "POST", "-H", "Content-Type: application/json", "-d", body)
    assert placed["partition"] == placed["offset"] == 0
    [waiting] = curl("/v1/topics/delayed-orders/scheduled")["messages"]
    assert (waiting["id"], waiting["key"], waiting["payload"]) == (placed["id"], "order-123", '{"order_id":123}')


def test_texts_with_priorities_and_offsets(curl) -> None:
    def publish(text: str, priority: str) -> Any:
        body = json.dumps({"message": text, "priority": priority}, ensure_ascii=False)
        return curl("/topic/orders/publish", "-X", "POST", "-H", "Content-Type: application/json", "-d", body)

    assert publish("🧊 Normal order", "low")["offset"] == 0
    assert publish("🔥 Urgent refund", "high")["offset"] == 1
    first = curl("/topic/orders/consume?consumerID=worker1&batch=1")["messages"]
    assert [message["message"] for message in first] == ["🔥 Urgent refund"]
    peeked = curl("/topic/orders/peek?offset=0&batch=5")["messages"]
    assert [(message["offset"], message["message"]) for message in peeked] == [
        (0, "🧊 Normal order"),
        (1, "🔥 Urgent refund"),
    ]
    second = curl("/topic/orders/consume?consumerID=worker1&batch=5")["messages"]
    assert [message["message"] for message in second] == ["🧊 Normal order"]
    assert curl("/topic/orders/consume?consumerID=worker1&batch=5")["messages"] == []
    assert len(curl("/topic/orders/consume?consumerID=worker2&batch=5")["messages"]) == 2
    assert "orders" in curl("/topics")["topics"]
    assert curl("/topics/orders/partitions")["partitions"] == [{"partition": 0, "messages": 2, "start": 0, "end": 2}]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/enqueue", "[{]", "bad_json"),
        ("/enqueue", '[{"topic": "t", "payload": "***"}]', "bad_base64"),
        ("/enqueue", '[{"topic": "t", "payload": "eA==", "colour": "red"}]', "bad_body"),
        (
            "/enqueue",
            '[{"topic":"t","payload":"eA==","namespace":"default"},{"topic":"t","payload":"eA==","namespace":"b"}]',
            "several_namespaces",
        ),
        ("/enqueue", "[]", "empty"),
        ("/ack", '{"id": 1, "topic": "nowhere"}', "not_found"),
        ("/ack", '{"topic": "nowhere"}', "bad_body"),
        ("/topic/t/publish", '{"message": 5}', "bad_body"),
        ("/topic/t/publish", '{"message": "x", "priority": "soon"}', "bad_priority"),
        ("/v1/topics/t/publish", '{"value": "eA==", "delay": "later"}', "bad_time"),
    ],
)
def test_what_is_wrong_is_refused_by_name(curl, path: str, body: str, code: str) -> None:
    assert curl(path, "-d", body)["error"]["code"] == code
    assert "t" not in curl("/topics")["topics"]
