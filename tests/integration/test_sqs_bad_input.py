"""What is wrong is told with the codes of SQS, and changes nothing; what is no SQS at all, in our own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqueue.testing.server import RunningServer
from tests.integration.asking import Answered, Asking
from tests.integration.sqs import Queue, client, refused


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as server:
        yield server


@pytest.fixture(scope="module")
def queue(server: RunningServer) -> Queue:
    return Queue(client(server.url), "bad-input")


def asked(server: RunningServer, action: str, body: Any) -> Answered:
    return Asking(server.url, X_Amz_Target=f"AmazonSQS.{action}")("POST", "/", body)


def code(answer: Answered) -> str:
    kind: str = answer.json["__type"]
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert answer.headers["x-amzn-query-error"].endswith(";Sender")
    return kind.removeprefix("com.amazonaws.sqs#")


@pytest.mark.parametrize(
    ("action", "body", "expected"),
    [
        ("MakeCoffee", {}, "InvalidAction"),
        ("SendMessage", b"{", "SerializationException"),
        ("SendMessage", b"\xff", "SerializationException"),
        ("SendMessage", b'{"x":' + b"[" * 100_000, "SerializationException"),
        ("SendMessage", [], "InvalidParameterValue"),
        ("SendMessage", {}, "MissingParameter"),
        ("SendMessage", {"QueueUrl": 7, "MessageBody": "x"}, "InvalidParameterValue"),
        ("SendMessage", {"QueueUrl": "", "MessageBody": "x"}, "InvalidAddress"),
        ("SendMessage", {"QueueUrl": "nowhere", "MessageBody": "x"}, "QueueDoesNotExist"),
        ("SendMessage", {"QueueUrl": "http://h/000000000000/no/../pe!", "MessageBody": "x"}, "InvalidAddress"),
        ("SendMessage", {"QueueUrl": "http://h/000000000000/nope", "MessageBody": "x"}, "QueueDoesNotExist"),
        ("SendMessage", {"QueueUrl": "http://h/a/bad-input", "MessageBody": "x"}, "QueueDoesNotExist"),
        ("ReceiveMessage", {"QueueUrl": "http://h/000000000000/%2F"}, "InvalidAddress"),
        ("ReceiveMessage", {"QueueUrl": "http://h/000000000000/%2Fsecret"}, "InvalidAddress"),
        ("AddPermission", {}, "UnsupportedOperation"),
        ("ListQueues", {"MaxResults": 0}, "InvalidParameterValue"),
        ("StartMessageMoveTask", {"SourceArn": "arn:aws:s3:::bucket"}, "InvalidParameterValue"),
    ],
)
def test_bodies(server: RunningServer, queue: Queue, action: str, body: Any, expected: str) -> None:
    answer = asked(server, action, body)
    assert (answer.status, code(answer)) == (400, expected)
    assert queue.attribute("ApproximateNumberOfMessages") == "0"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\x0b"}, "InvalidMessageContents"),
        ({"MessageBody": "\uffff"}, "InvalidMessageContents"),
        ({"DelaySeconds": 901}, "InvalidParameterValue"),
        ({"DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageGroupId": "with space"}, "InvalidParameterValue"),
        ({"MessageGroupId": "x" * 129}, "InvalidParameterValue"),
        ({"MessageAttributes": {f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)}},
         "InvalidParameterValue"),
        ({"MessageAttributes": {"AWS.x": {"DataType": "String", "StringValue": "x"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a..b": {"DataType": "String", "StringValue": "x"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a:b": {"DataType": "String", "StringValue": "x"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "String", "StringValue": ""}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "Text", "StringValue": "x"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "Number", "StringValue": "x"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "*"}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "String", "StringListValues": ["x"]}}}, "UnsupportedOperation"),
        ({"MessageSystemAttributes": {"Other": {"DataType": "String", "StringValue": "x"}}}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_messages(server: RunningServer, queue: Queue, more: Any, expected: str) -> None:
    answer = asked(server, "SendMessage", {"QueueUrl": queue.url, "MessageBody": "x", **more})
    assert (answer.status, code(answer)) == (400, expected)
    assert queue.attribute("ApproximateNumberOfMessages") == "0"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n), "MessageBody": "x"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}, {"Id": "a", "MessageBody": "x"}], "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        ([{"Id": "x" * 81, "MessageBody": "x"}], "InvalidBatchEntryId"),
    ],
)
def test_batches(server: RunningServer, queue: Queue, entries: Any, expected: str) -> None:
    for action in ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        told = [{**entry, "ReceiptHandle": "x", "VisibilityTimeout": 1} for entry in entries]
        answer = asked(server, action, {"QueueUrl": queue.url, "Entries": told})
        assert (answer.status, code(answer)) == (400, expected)
    assert queue.attribute("ApproximateNumberOfMessages") == "0"


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        ({"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ({"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
        ({"AttributeNames": ["Weight"]}, "InvalidAttributeName"),
    ],
)
def test_receives(queue: Queue, asked_for: Any, expected: str) -> None:
    with refused(expected):
        queue.sqs.receive_message(QueueUrl=queue.url, **asked_for)


@pytest.mark.parametrize("handle", ["x", "0" * 32, f"{'0' * 32}-x", f"{'0' * 32}-1", f"{'f' * 32}-{2**63 - 1}"])
def test_receipts(queue: Queue, handle: str) -> None:
    with refused("ReceiptHandleIsInvalid"):
        queue.delete({"ReceiptHandle": handle})
    with refused("MessageNotInflight" if handle[-1].isdigit() and "-" in handle else "ReceiptHandleIsInvalid"):
        queue.change({"ReceiptHandle": handle}, 10)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"Colour": "red"}, "InvalidAttributeName"),
        ({"QueueArn": "x"}, "InvalidAttributeName"),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "soon"}, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1023"}, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"),
        ({"Policy": '{"Statement": []}'}, "UnsupportedOperation"),
        ({"KmsMasterKeyId": "alias/aws/sqs"}, "UnsupportedOperation"),
        ({"SqsManagedSseEnabled": "true"}, "UnsupportedOperation"),
        ({"RedriveAllowPolicy": '{"redrivePermission": "some"}'}, "InvalidParameterValue"),
    ],
)
def test_attributes(queue: Queue, attributes: dict[str, str], expected: str) -> None:
    with refused(expected):
        queue.set(VisibilityTimeout="77", **attributes)
    with refused(expected):
        Queue(queue.sqs, "never-made", **attributes)
    assert queue.attribute("VisibilityTimeout") == "30"
    with refused("NonExistentQueue"):
        queue.sqs.get_queue_url(QueueName="never-made")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 81, "ä", "x.fifo.fifo"])
def test_names(queue: Queue, server: RunningServer, name: str) -> None:
    answer = asked(server, "CreateQueue", {"QueueName": name})
    assert (answer.status, code(answer)) == (400, "InvalidParameterValue")


def test_what_is_no_sqs_is_told_so(server: RunningServer) -> None:
    answer = Asking(server.url)("POST", "/", {})
    assert (answer.status, answer.error) == (400, "no_action")
    answer = Asking(server.url, X_Amz_Target="DynamoDB_20120810.ListTables")("POST", "/", {})
    assert (answer.status, answer.error) == (400, "InvalidAction")


def test_a_body_without_an_end_is_cut_off(server: RunningServer, queue: Queue) -> None:
    answer = asked(server, "DeleteMessage", {"QueueUrl": queue.url, "ReceiptHandle": "x" * 2_000_000})
    assert code(answer) == "InvalidParameterValue"
