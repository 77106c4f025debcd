"""Messages over SQS, with boto3 as it is released: sent, received, deleted, hidden, shown again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

import mqueue
from mqueue.server.http.sqs import receiving
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.sqs import Queue, client, refused

_NUMBERS = count()


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def server(clock: ManualClock) -> Iterator[RunningServer]:
    with RunningServer(clock=clock) as server:
        yield server


@pytest.fixture(scope="module")
def sqs(server: RunningServer) -> Any:
    return client(server.url)


@pytest.fixture
def queue(sqs: Any) -> Queue:
    return Queue(sqs, f"queue-{next(_NUMBERS)}")


def test_what_is_sent_is_received_and_deleted(queue: Queue) -> None:
    sent = queue.send("grüße, 東京 \U0001f600")
    [message] = queue.receive()
    assert message["Body"] == "grüße, 東京 \U0001f600"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert queue.receive() == []
    queue.delete(message)
    assert queue.attribute("ApproximateNumberOfMessagesNotVisible") == "0"


def test_message_attributes_come_back_with_their_types(queue: Queue) -> None:
    given = {
        "city": {"DataType": "String", "StringValue": "東京"},
        "amount": {"DataType": "Number.eur", "StringValue": "-12.50"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        "text.like": {"DataType": "Binary.png", "BinaryValue": b"plain"},
    }
    sent = queue.send("x", MessageAttributes=given)
    [message] = queue.receive(MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize(
    ("kind", "digest"),
    [("Number", "235c5c510d26fb653d073faed50ae77c"), ("Number.java.lang.Long", "2e2e4876d8e0bd6b8c2c8f556831c349")],
)
def test_the_checksum_of_attributes_is_that_of_other_servers(queue: Queue, kind: str, digest: str) -> None:
    sent = queue.send("x", MessageAttributes={"timestamp": {"DataType": kind, "StringValue": "1493147359900"}})
    assert sent["MD5OfMessageAttributes"] == digest


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ([], set()),
        (["a.b"], {"a.b"}),
        (["a.*"], {"a.b", "a.c"}),
        ([".*"], {"a.b", "a.c", "d"}),
        (["d", "nothing"], {"d"}),
    ],
)
def test_attributes_come_as_they_are_asked_for(queue: Queue, asked: list[str], given: set[str]) -> None:
    value = {"DataType": "String", "StringValue": "x"}
    queue.send("x", MessageAttributes={"a.b": value, "a.c": value, "d": value})
    [message] = queue.receive(MessageAttributeNames=asked, MessageSystemAttributeNames=["SentTimestamp"])
    assert set(message.get("MessageAttributes", {})) == given
    assert set(message["Attributes"]) == {"SentTimestamp"}


def test_attributes_named_like_our_headers_are_attributes(sqs: Any, queue: Queue) -> None:
    """Also of a message that dies, whose story is told in headers of these names."""
    given = {
        "x-error": {"DataType": "String", "StringValue": "mine"},
        "x-origin-topic": {"DataType": "Number", "StringValue": "7"},
        "content-type": {"DataType": "String", "StringValue": "text/plain"},
    }
    dead = Queue(sqs, f"dead-{next(_NUMBERS)}")
    queue.bury_in(dead, 1)
    sent = queue.send("x", MessageAttributes=given)
    [message] = queue.receive(MessageAttributeNames=["All"])
    assert (message["MessageAttributes"], message["MD5OfMessageAttributes"]) == (given, sent["MD5OfMessageAttributes"])
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]
    queue.change(message, 0)
    [message] = dead.receive(MessageAttributeNames=["x-*", "x-error", "x-origin-topic", "content-type"])
    assert message["MessageAttributes"] == given
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn


@pytest.mark.parametrize("types", [b'{"a":"\xff"}', b"\xff", '{"a":7}', '["a"]', "[" * 5000])
def test_types_that_somebody_else_wrote_are_none(server: RunningServer, queue: Queue, types: str | bytes) -> None:
    queue.send("before")
    with mqueue.Client(server.url) as q:
        q.publish(queue.url.rpartition("/")[2], b"x", headers={"sqs:types": types, "a": "b"})
    queue.send("after")
    messages = queue.receive(MessageAttributeNames=["All"])
    assert [message["Body"] for message in messages] == ["before", "x", "after"]
    assert messages[1]["MessageAttributes"] == {"a": {"DataType": "String", "StringValue": "b"}}


def test_what_cannot_be_shown_goes_to_others(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(payload: bytes) -> str:
        raise ArithmeticError(payload)

    queue.send("x")
    with monkeypatch.context() as broken, refused("ServiceUnavailable"):
        broken.setattr(receiving, "md5", fails)
        queue.receive()
    [message] = queue.receive()
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_call_to_the_url_of_the_queue(server: RunningServer, queue: Queue) -> None:
    """As the SDKs of some languages do."""
    path = queue.url.removeprefix(server.url)
    ask = Asking(server.url, X_Amz_Target="AmazonSQS.SendMessage")
    answer = ask("POST", path, {"QueueUrl": queue.url, "MessageBody": "x"})
    assert (answer.status, queue.bodies()) == (200, ["x"])
    assert Asking(server.url)("POST", path, {}).status == 404


def test_a_trace_header_travels(queue: Queue) -> None:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    sent = queue.send("x", MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}})
    assert sent["MD5OfMessageSystemAttributes"]
    [message] = queue.receive(MessageAttributeNames=["All"])
    assert message["Attributes"]["AWSTraceHeader"] == trace
    assert "MessageAttributes" not in message


def test_a_batch_is_sent_and_deleted_as_one(queue: Queue) -> None:
    sent = queue.send_batch(*(f"message {number}" for number in range(10)))
    assert "Failed" not in sent
    found = queue.receive()
    assert [message["Body"] for message in found] == [f"message {number}" for number in range(10)]
    entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(found)]
    done = queue.sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    assert {one["Id"] for one in done["Successful"]} == {str(number) for number in range(10)}


def test_a_wrong_entry_keeps_no_other_from_being_sent(queue: Queue) -> None:
    sent = queue.send_batch("good", "\x00", "fine")
    assert [one["Id"] for one in sent["Successful"]] == ["0", "2"]
    [failed] = sent["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("1", "InvalidMessageContents", True)
    assert queue.bodies() == ["good", "fine"]


def test_a_limit_of_ours_keeps_no_other_entry_from_being_sent(queue: Queue) -> None:
    """Attributes are headers, and those may have 64 KiB."""
    wide = {"wide": {"DataType": "String", "StringValue": "x" * 65_536}}
    with refused("InvalidParameterValue"):
        queue.send("x", MessageAttributes=wide)
    entries = [{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "2", "MessageAttributes": wide}]
    done = queue.sqs.send_message_batch(QueueUrl=queue.url, Entries=[*entries, {"Id": "c", "MessageBody": "3"}])
    assert [one["Id"] for one in done["Successful"]] == ["a", "c"]
    [failed] = done["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("b", "InvalidParameterValue", True)
    assert "65536 are allowed" in failed["Message"]
    assert queue.bodies() == ["1", "3"]


def test_what_is_not_deleted_comes_back(queue: Queue, clock: ManualClock) -> None:
    queue.send("x")
    [first] = queue.receive(VisibilityTimeout=10)
    clock.advance("9s")
    assert queue.receive() == []
    clock.advance("2s")
    [second] = queue.receive()
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert first["ReceiptHandle"] != second["ReceiptHandle"]


def test_a_receipt_that_is_over_deletes_nothing(queue: Queue, clock: ManualClock) -> None:
    """Once somebody else has received the message: also if he has lost it, too."""
    queue.send("x")
    [first] = queue.receive(VisibilityTimeout=1)
    clock.advance("2s")
    [second] = queue.receive(VisibilityTimeout=1)
    with refused("ReceiptHandleIsInvalid"):
        queue.delete(first)
    clock.advance("2s")
    with refused("ReceiptHandleIsInvalid"):
        queue.delete(first)
    queue.delete(second)
    queue.delete(second)
    clock.advance("1h")
    queue.delete(second)  # it is deleted, whoever says so how late
    queue.delete(first)


def test_who_comes_late_deletes_what_nobody_has_received_since(queue: Queue, clock: ManualClock) -> None:
    queue.send_batch(*"abc")
    entries = [
        {"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"]} for each in queue.receive(VisibilityTimeout=1)
    ]
    clock.advance("2s")
    [again] = queue.receive(1)
    assert again["Body"] == "a"
    done = queue.sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [one["Id"] for one in done["Successful"]] == ["b", "c"]
    assert [(one["Id"], one["Code"]) for one in done["Failed"]] == [("a", "ReceiptHandleIsInvalid")]
    queue.change(again, 0)
    queue.delete(again)
    clock.advance("1h")
    assert queue.receive() == []
    assert queue.attribute("ApproximateNumberOfMessages") == "0"


def test_who_comes_late_to_a_fifo_queue_deletes_nothing(sqs: Any, clock: ManualClock) -> None:
    """As with Amazon: the next of the group may have gone out."""
    queue = Queue(sqs, f"queue-{next(_NUMBERS)}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    queue.send("x", MessageGroupId="g")
    [message] = queue.receive(VisibilityTimeout=1)
    clock.advance("2s")
    with refused("ReceiptHandleIsInvalid"):
        queue.delete(message)
    assert queue.bodies() == ["x"]


def test_visibility_is_changed(queue: Queue, clock: ManualClock) -> None:
    queue.send("x")
    [message] = queue.receive(VisibilityTimeout=10)
    queue.change(message, 3600)
    clock.advance("59m")
    assert queue.receive() == []
    queue.change(message, 0)
    [again] = queue.receive()
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    with refused("MessageNotInflight"):
        queue.change(message, 10)
    entries = [
        {"Id": "good", "ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "over", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "long", "ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeout": 50_000},
        {"Id": "bad", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60},
    ]
    done = queue.sqs.change_message_visibility_batch(QueueUrl=queue.url, Entries=entries)
    assert [one["Id"] for one in done["Successful"]] == ["good"]
    assert {one["Id"]: one["Code"].rpartition(".")[2] for one in done["Failed"]} == {
        "over": "MessageNotInflight",
        "long": "InvalidParameterValue",
        "bad": "ReceiptHandleIsInvalid",
    }


def test_a_receive_that_hides_nothing(queue: Queue) -> None:
    queue.send("x")
    assert queue.bodies(VisibilityTimeout=0) == ["x"]
    assert queue.bodies(VisibilityTimeout=0) == ["x"]
    queue.set(VisibilityTimeout="0")
    assert queue.bodies() == ["x"]
    assert (queue.bodies(), queue.attribute("VisibilityTimeout")) == (["x"], "0")
    queue.set(VisibilityTimeout="30")
    assert (queue.bodies(), queue.bodies()) == (["x"], [])


def test_delays(queue: Queue, clock: ManualClock) -> None:
    queue.send("later", DelaySeconds=900)
    queue.send("now", DelaySeconds=0)
    assert queue.attribute("ApproximateNumberOfMessagesDelayed") == "1"
    assert queue.bodies(VisibilityTimeout=3600) == ["now"]
    clock.advance("15m")
    assert queue.bodies(VisibilityTimeout=3600) == ["later"]
    queue.set(DelaySeconds="60")
    queue.send("by the queue")
    queue.send("at once", DelaySeconds=0)
    assert queue.bodies(VisibilityTimeout=3600) == ["at once"]
    clock.advance("61s")
    assert queue.bodies() == ["by the queue"]


def test_who_waits_gets_what_comes(server: RunningServer, queue: Queue) -> None:
    with ThreadPoolExecutor(1) as thread, mqueue.Client(server.url) as q:
        waiting = thread.submit(queue.bodies, WaitTimeSeconds=20)
        q.publish(queue.url.rpartition("/")[2], b"from elsewhere")
        assert waiting.result(120) == ["from elsewhere"]


def test_messages_of_others_are_messages(server: RunningServer, queue: Queue) -> None:
    name = queue.url.rpartition("/")[2]
    with mqueue.Client(server.url) as q:
        q.publish(name, b"\xff\x00", headers={"a": "b", "not:one": "x"}, priority="high")
        q.publish(name, "text", key="k")
        [raw, text] = queue.receive(MessageAttributeNames=["All"])
        assert raw["Body"] == "/wA="
        assert {key: one["StringValue"] for key, one in raw["MessageAttributes"].items()} == {
            "a": "b",
            "sqs-base64": "true",
        }
        assert (text["Body"], text["Attributes"]["MessageGroupId"]) == ("text", "k")
        queue.send("answer", MessageAttributes={"n": {"DataType": "Number", "StringValue": "7"}})
        [answer] = q.receive(name)
        assert (answer.payload, answer.headers["n"]) == (b"answer", "7")


def test_messages_run_out(queue: Queue, clock: ManualClock) -> None:
    queue.set(MessageRetentionPeriod="60")
    queue.send("x")
    clock.advance("61s")
    assert queue.receive() == []


def test_groups_of_a_standard_queue_take_turns(queue: Queue) -> None:
    for number in range(8):
        queue.send(f"noisy {number}", MessageGroupId="noisy/neighbour")
    queue.send("quiet", MessageGroupId="quiet")
    first = queue.receive(limit=2)
    assert {message["Body"] for message in first} == {"noisy 0", "quiet"}
    assert {message["Attributes"]["MessageGroupId"] for message in first} == {"noisy/neighbour", "quiet"}


def test_the_dead_go_where_the_policy_says(sqs: Any, queue: Queue, clock: ManualClock) -> None:
    dead = Queue(sqs, f"dead-{next(_NUMBERS)}")
    queue.bury_in(dead, 2)
    queue.send("poison", MessageAttributes={"n": {"DataType": "Number", "StringValue": "7"}})
    for _ in range(2):
        assert queue.bodies() == ["poison"]
        clock.advance("31s")
    assert queue.receive() == []
    [message] = dead.receive(MessageAttributeNames=["All"])
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn
    assert message["MessageAttributes"] == {"n": {"DataType": "Number", "StringValue": "7"}}


def test_sizes(queue: Queue) -> None:
    largest = "x" * 1024 * 1024
    queue.send(largest)
    assert queue.bodies() == [largest]
    with refused("InvalidParameterValue"):
        queue.send(largest + "x")
    with refused("BatchRequestTooLong"):
        queue.send_batch("x" * 600_000, "x" * 600_000)
    queue.set(MaximumMessageSize="1024")
    value = {"DataType": "String", "StringValue": "x" * 1000}
    with refused("InvalidParameterValue"):
        queue.send("x" * 100, MessageAttributes={"a": value})
    assert queue.receive() == []


def test_actions_are_counted_apart(server: RunningServer, queue: Queue) -> None:
    queue.send("x")
    page = Asking(server.url)("GET", "/metrics").body.decode()
    assert 'mqueue_http_requests_total{method="POST",route="/AmazonSQS.SendMessage",status="200"}' in page
