"""Whatever comes in the protocol of SQS is answered, by a code of its own, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqueue.server.http.sqs.actions import ACTIONS
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking

NAMES = [
    "QueueUrl",
    "QueueName",
    "MessageBody",
    "Entries",
    "Id",
    "ReceiptHandle",
    "VisibilityTimeout",
    "Attributes",
    "AttributeNames",
    "Tags",
    "TagKeys",
    "DelaySeconds",
    "MessageAttributes",
    "MessageGroupId",
    "MessageDeduplicationId",
    "MaxNumberOfMessages",
    "SourceArn",
    "TaskHandle",
    "MaxResults",
    "NextToken",
    "DataType",
    "StringValue",
    "BinaryValue",
    "FifoQueue",
    "RedrivePolicy",
    "RedriveAllowPolicy",
]
URL = "http://localhost/000000000000/fuzzed"
TEXTS = st.sampled_from([URL, f"{URL}.fifo", "fuzzed", "arn:aws:sqs:us-east-1:000000000000:fuzzed", "true", "7", "{}"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES | TEXTS, max_size=8).map(lambda body: {"QueueUrl": URL, **body})


@pytest.fixture(scope="module")
def ask() -> Iterator[Asking]:
    with RunningServer() as server:
        for name, attributes in (("fuzzed", {}), ("fuzzed.fifo", {"FifoQueue": "true"})):
            body = {"QueueName": name, "Attributes": attributes}
            assert Asking(server.url, X_Amz_Target="AmazonSQS.CreateQueue")("POST", "/", body).status == 200
        yield Asking(server.url)


@settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(action=st.sampled_from(sorted(ACTIONS)), body=BODIES | VALUES)
def test_any_body_is_answered(ask: Asking, action: str, body: Any) -> None:
    answer = ask("POST", "/", json.dumps(body).encode(), X_Amz_Target=f"AmazonSQS.{action}")
    assert answer.status < 500, (action, body, answer)
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    if answer.status != 200:
        assert answer.json["__type"].startswith("com.amazonaws.sqs#")


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(action=st.sampled_from(sorted(ACTIONS)), body=st.binary(max_size=200))
def test_any_bytes_are_answered(ask: Asking, action: str, body: bytes) -> None:
    assert ask("POST", "/", body, X_Amz_Target=f"AmazonSQS.{action}").status in (200, 400)
