"""Who may call over SQS: signatures are checked where keys are configured, and rights are asked for each queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mqueue.config import Config
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.sqs import client, refused
from tests.integration.test_security_http import security, token


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer(Config(security=security())) as server:
        yield server


def signing(server: RunningServer, name: str, *scopes: str) -> Any:
    """A client that signs with the secret of a new key."""
    made = Asking(server.url, Authorization=f"Bearer {token('admin:*')}")(
        "POST", "/v1/keys", {"name": name, "scopes": list(scopes)}
    ).json
    return client(server.url, name, made["secret_access_key"])


def test_who_signs_is_let_in(server: RunningServer) -> None:
    sqs = signing(server, "all", "*:*")
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="grüße \U0001f600")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_key_of_one_namespace_is_at_home_there(server: RunningServer) -> None:
    sqs = signing(server, "tenant", "*:tenant-a")
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    assert url == f"{server.url}/tenant-a/orders"
    assert sqs.list_queues()["QueueUrls"] == [url]
    with refused("AccessDenied"):
        sqs.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId="000000000000")


def test_rights_are_those_of_the_key(server: RunningServer) -> None:
    admin = signing(server, "admin", "*:shop")
    url = admin.create_queue(QueueName="orders")["QueueUrl"]
    writer, reader = signing(server, "writer", "write:shop/orders"), signing(server, "reader", "read:shop/orders")
    writer.send_message(QueueUrl=url, MessageBody="x")
    [message] = reader.receive_message(QueueUrl=url)["Messages"]
    denied = [
        lambda: writer.receive_message(QueueUrl=url),
        lambda: writer.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]),
        lambda: writer.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        ),
        lambda: writer.list_queues(),
        lambda: reader.send_message(QueueUrl=url, MessageBody="x"),
        lambda: reader.purge_queue(QueueUrl=url),
        lambda: reader.delete_queue(QueueUrl=url),
        lambda: reader.create_queue(QueueName="others"),
        lambda: reader.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"}),
        lambda: reader.tag_queue(QueueUrl=url, Tags={"a": "b"}),
        lambda: reader.get_queue_url(QueueName="others"),
        lambda: reader.start_message_move_task(SourceArn="arn:aws:sqs:us-east-1:shop:orders"),
    ]
    for call in denied:
        with refused("AccessDenied"):
            call()
    reader.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_wrong_signatures_learn_nothing(server: RunningServer) -> None:
    sqs = signing(server, "known", "*:*")
    url = sqs.create_queue(QueueName="secrets")["QueueUrl"]
    sentences = set()
    for key, secret in (("known", "wrong"), ("unknown", "wrong"), ("known", "")):
        stranger = client(server.url, key, secret or "x" * 43)
        with refused("InvalidClientTokenId") as caught:
            stranger.send_message(QueueUrl=url, MessageBody="x")
        sentences.add(caught.value.response["Error"]["Message"])
    assert len(sentences) == 1
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"] == {
        "ApproximateNumberOfMessages": "0"
    }


def test_a_clock_that_is_off_is_told(server: RunningServer, monkeypatch) -> None:
    sqs = signing(server, "late", "*:*")
    sqs.list_queues()
    ahead = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: ahead)
    for known in (sqs, client(server.url, "nobody", "x")):
        with refused("RequestExpired") as caught:
            known.list_queues()
        assert "clocks may differ by 15 minutes" in caught.value.response["Error"]["Message"]


def test_who_signs_may_call_the_url_of_a_queue(server: RunningServer) -> None:
    sqs = signing(server, "php", "*:*")
    url = sqs.create_queue(QueueName="by-path")["QueueUrl"]
    there = client(url, "php", sqs._request_signer._credentials.secret_key)
    there.send_message(QueueUrl=url, MessageBody="x")
    assert [each["Body"] for each in sqs.receive_message(QueueUrl=url)["Messages"]] == ["x"]


def test_a_revoked_key_signs_nothing_more(server: RunningServer) -> None:
    sqs = signing(server, "short-lived", "*:*")
    sqs.list_queues()
    Asking(server.url, Authorization=f"Bearer {token('admin:*')}")("DELETE", "/v1/keys/short-lived")
    with refused("InvalidClientTokenId"):
        sqs.list_queues()


def test_a_token_will_do_as_well(server: RunningServer) -> None:
    ask = Asking(server.url, Authorization=f"Bearer {token('*:tenant-b')}", X_Amz_Target="AmazonSQS.CreateQueue")
    answer = ask("POST", "/", {"QueueName": "orders"})
    assert (answer.status, answer.json["QueueUrl"]) == (200, f"{server.url}/tenant-b/orders")


def test_a_signature_opens_no_other_door(server: RunningServer) -> None:
    """Of other routes nobody looks at the body before who calls is known."""
    sqs = signing(server, "signer", "*:*")
    taken: dict[str, str] = {}
    sqs.meta.events.register("before-send", lambda request, **_: taken.update(request.headers.items()))
    sqs.list_queues()
    headers = {
        name.replace("-", "_"): value.decode() if isinstance(value, bytes) else value
        for name, value in taken.items()
        if name.lower() not in ("content-length", "expect")
    }
    assert Asking(server.url, **headers)("GET", "/v1/topics").status in (401, 403)
