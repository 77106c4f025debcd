"""Whether a server lives, whether it takes messages, and what is written about its calls."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqueue.config import Config, Data, Jwt, Secret, Security
from mqueue.log.segments.disk import RealDisk
from mqueue.log.segments.log import SegmentLog
from mqueue.server import logs
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.test_security_http import SECRET, token


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged, at every level."""
    stream = io.StringIO()
    logs.set_up("debug", "json", [SECRET], stream)
    yield stream
    logs.take_down()


def lines(stream: io.StringIO, logger: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["logger"] == logger]


def test_a_server_that_is_well(server: RunningServer) -> None:
    ask = Asking(server.url)
    for path in ("/health", "/livez", "/readyz"):
        answer = ask("GET", path)
        assert (answer.status, answer.body) == (200, b"OK")
        assert answer.headers["content-type"].startswith("text/plain")
        assert ask("HEAD", path).status == 200
        assert ask("POST", path).status == 405


def test_a_full_disk_is_not_ready_but_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningServer(Config(data=Data(dir=str(tmp_path / "data"))), memory=False) as server:
        ask = Asking(server.url)
        ask.publish("orders", "x")
        with monkeypatch.context() as patch:
            patch.setattr(SegmentLog, "full", property(lambda self: "the disk is full: no room"))
            answer = ask("GET", "/readyz")
            assert (answer.status, answer.body) == (503, b"the disk is full: no room")
            assert ask("GET", "/livez").status == 200
            assert ask("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "x"}]}).status == 507
        assert ask("GET", "/readyz").status == 200


def test_a_failed_disk_is_neither_ready_nor_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RunningServer(Config(data=Data(dir=str(tmp_path / "data"))), memory=False)
    try:
        ask = Asking(server.url)
        ask.publish("orders", "x")

        def fail(self: RealDisk, file: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(RealDisk, "sync", fail)
        answer = ask("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "x"}]})
        assert (answer.status, answer.error) == (503, "poisoned")
        for path in ("/livez", "/readyz"):
            answer = ask("GET", path)
            assert answer.status == 503
            assert b"failed to sync" in answer.body
        assert ask("GET", "/health").body == b"OK"
        assert b"mqueue_ready 0.0" in ask("GET", "/metrics").body
    finally:
        with pytest.raises(Exception, match="failed to sync"):
            server.close()


def test_each_call_is_a_line_for_those_who_want_to_see_it(written: io.StringIO) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with RunningServer() as server:
        ask = Asking(server.url)
        ask("GET", "/v1/topics?secret=canary", X_Request_Id="call-7", traceparent=f"00-{trace}-b7ad6b7169203331-01")
        ask("GET", "/v1/topics", X_Request_Id="two words\tand more")
    first, second = lines(written, "mqueue.access")
    assert first["ms"] >= 0  # type: ignore[operator]
    shown = {name: first[name] for name in ("request", "trace", "method", "route", "status", "peer", "subject", "via")}
    assert shown == {
        "request": "call-7",
        "trace": trace,
        "method": "GET",
        "route": "/v1/topics",
        "status": 200,
        "peer": "127.0.0.1",
        "subject": "anybody",
        "via": "open",
    }
    assert second["request"] == "1"
    assert "trace" not in second
    assert "canary" not in written.getvalue()


def test_refusals_and_what_was_managed_are_in_the_audit(written: io.StringIO) -> None:
    security = Security(auth=("jwt",), jwt=Jwt(Secret(SECRET), algorithms=("HS256",)))
    with RunningServer(Config(security=security)) as server:
        good, poor = token("admin:team"), token("read:team")
        Asking(server.url)("GET", "/v1/topics", Authorization=f"Bearer {good}x")
        Asking(server.url)("PUT", "/v1/topics/t?namespace=team", {}, Authorization=f"Bearer {poor}")
        Asking(server.url)("PUT", "/v1/topics/t?namespace=team", {}, Authorization=f"Bearer {good}")
        Asking(server.url)("GET", "/v1/topics/t?namespace=team", Authorization=f"Bearer {good}")
    seen = lines(written, "mqueue.audit")
    assert [(line.get("who", ""), line["what"], line["outcome"]) for line in seen] == [
        ("", "enter", "refused"),
        ("svc", "PUT /v1/topics/t", "refused"),
        ("svc", "PUT /v1/topics/t", "changed"),
    ]
    assert (seen[2]["namespace"], seen[2]["topic"], seen[2]["peer"]) == ("team", "t", "127.0.0.1")
    for secret in (good, poor, SECRET):
        assert secret not in written.getvalue()


def test_no_secret_and_no_payload_is_ever_written(written: io.StringIO) -> None:
    security = Security(auth=("jwt",), jwt=Jwt(Secret(SECRET), algorithms=("HS256",)))
    canary = "payload-canary-4711"
    with RunningServer(Config(security=security)) as server:
        right = token("admin:*")
        ask = Asking(server.url, Authorization=f"Bearer {right}")
        ask.publish("orders", canary)
        ask("POST", "/v1/topics/orders/messages", f'{{"messages": ["{canary}"'.encode())
        ask("POST", "/v1/topics/orders/receive", {})
        ask("GET", f"/v1/topics/{right}")
        ask("GET", f"/{right}?token={right}", X_Request_Id=right)
        Asking(server.url, X_Api_Key=f"mq_{canary}")("GET", "/v1/topics")
    assert canary not in written.getvalue()
    assert right not in written.getvalue()
    assert right.rpartition(".")[2] not in written.getvalue()
