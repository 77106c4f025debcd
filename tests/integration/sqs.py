"""What tests of the SQS face share: boto3 as it is released, against a server of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config as ClientConfig
from botocore.exceptions import ClientError

ONCE = ClientConfig(retries={"max_attempts": 0}, connect_timeout=120, read_timeout=120)


def client(url: str, key: str = "anybody", secret: str = "anything") -> Any:
    """Tries nothing twice, so that a test sees the first answer."""
    keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
    return boto3.client("sqs", endpoint_url=url, region_name="eu-central-1", config=ONCE, **keys)


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[ClientError]]:
    """The call in the block is refused with this code, the one that clients go by."""
    with pytest.raises(ClientError) as caught:
        yield caught
    assert caught.value.response["Error"]["Code"] in (code, f"AWS.SimpleQueueService.{code}"), caught.value.response


class Queue:
    """One queue, seen through a client."""

    def __init__(self, sqs: Any, name: str, **attributes: str) -> None:
        self.sqs = sqs
        self.url: str = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    @property
    def arn(self) -> str:
        return self.attribute("QueueArn")

    def attribute(self, name: str) -> str:
        found: str = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])["Attributes"][name]
        return found

    def set(self, **attributes: str) -> None:
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def send(self, body: str, **more: Any) -> Any:
        return self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **more)

    def send_batch(self, *bodies: str, **more: Any) -> Any:
        entries = [{"Id": str(number), "MessageBody": body, **more} for number, body in enumerate(bodies)]
        return self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    def receive(self, limit: int = 10, **more: Any) -> list[Any]:
        asked = {"MaxNumberOfMessages": limit, "MessageSystemAttributeNames": ["All"], **more}
        found: list[Any] = self.sqs.receive_message(QueueUrl=self.url, **asked).get("Messages", [])
        return found

    def bodies(self, **more: Any) -> list[str]:
        return [message["Body"] for message in self.receive(**more)]

    def delete(self, message: Any) -> None:
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def change(self, message: Any, seconds: int) -> None:
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def bury_in(self, dead: Queue, receives: int) -> None:
        """After so many receives messages go there."""
        self.set(RedrivePolicy=json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives}))


Opening = Callable[..., Queue]
