"""Bodies of the SQS protocol, under the names it has for them. What is in them is checked by who reads them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

MD5_OF_BODY = "MD5OfMessageBody"
MD5_OF_ATTRIBUTES = "MD5OfMessageAttributes"
MD5_OF_SYSTEM_ATTRIBUTES = "MD5OfMessageSystemAttributes"


class QueueIn(Struct, rename="pascal"):
    """What most actions name."""

    queue_url: str


# Messages


class AttributeIn(Struct, rename="pascal"):
    data_type: str = ""
    string_value: str | None = None
    binary_value: str | None = None
    string_list_values: list[str] = []
    binary_list_values: list[str] = []


class MessageIn(Struct, rename="pascal"):
    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, AttributeIn] | None = None
    message_system_attributes: dict[str, AttributeIn] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendIn(MessageIn, rename="pascal", kw_only=True):
    queue_url: str


class SendEntryIn(MessageIn, rename="pascal", kw_only=True):
    id: str


class SendBatchIn(QueueIn, rename="pascal"):
    entries: list[SendEntryIn] = []


class SentOut(Struct, rename="pascal", omit_defaults=True):
    message_id: str
    md5_of_body: str = field(name=MD5_OF_BODY)
    md5_of_attributes: str | None = field(default=None, name=MD5_OF_ATTRIBUTES)
    md5_of_system_attributes: str | None = field(default=None, name=MD5_OF_SYSTEM_ATTRIBUTES)
    sequence_number: str | None = None


class SentEntryOut(SentOut, rename="pascal", omit_defaults=True, kw_only=True):
    id: str


class ReceiveIn(QueueIn, rename="pascal"):
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class AttributeOut(Struct, rename="pascal", omit_defaults=True):
    data_type: str
    string_value: str | None = None
    binary_value: str | None = None


class ReceivedOut(Struct, rename="pascal", omit_defaults=True):
    message_id: str
    receipt_handle: str
    body: str
    md5_of_body: str = field(name="MD5OfBody")
    md5_of_attributes: str | None = field(default=None, name=MD5_OF_ATTRIBUTES)
    attributes: dict[str, str] | None = None
    message_attributes: dict[str, AttributeOut] | None = None


class ReceivedManyOut(Struct, rename="pascal", omit_defaults=True):
    messages: list[ReceivedOut] = []


class ReceiptIn(QueueIn, rename="pascal"):
    receipt_handle: str


class VisibilityIn(ReceiptIn, rename="pascal"):
    visibility_timeout: int


class ReceiptEntryIn(Struct, rename="pascal"):
    id: str
    receipt_handle: str


class VisibilityEntryIn(ReceiptEntryIn, rename="pascal"):
    visibility_timeout: int | None = None


class ReceiptsIn(QueueIn, rename="pascal"):
    entries: list[ReceiptEntryIn] = []


class VisibilitiesIn(QueueIn, rename="pascal"):
    entries: list[VisibilityEntryIn] = []


class FailedOut(Struct, rename="pascal"):
    """An entry of a batch that was refused."""

    id: str
    code: str
    message: str
    sender_fault: bool = True


class EntryOut(Struct, rename="pascal"):
    id: str


class BatchOut(Struct, rename="pascal", omit_defaults=True):
    successful: list[Any]
    failed: list[FailedOut] = []


# Queues


class CreateIn(Struct, rename="pascal"):
    queue_name: str
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = field(default=None, name="tags")


class UrlIn(Struct, rename="pascal"):
    queue_name: str
    owner: str | None = field(default=None, name="QueueOwnerAWSAccountId")


class UrlOut(Struct, rename="pascal"):
    queue_url: str


class ListIn(Struct, rename="pascal"):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class UrlsOut(Struct, rename="pascal", omit_defaults=True):
    queue_urls: list[str] = []
    next_token: str | None = None


class SourcesIn(QueueIn, rename="pascal"):
    next_token: str | None = None
    max_results: int | None = None


class SourcesOut(Struct, rename="pascal", omit_defaults=True):
    queue_urls: list[str] = field(default_factory=list, name="queueUrls")
    next_token: str | None = None


class NamesIn(QueueIn, rename="pascal"):
    attribute_names: list[str] = []


class AttributesIn(QueueIn, rename="pascal"):
    attributes: dict[str, str] = {}


class AttributesOut(Struct, rename="pascal", omit_defaults=True):
    attributes: dict[str, str] = {}


class TagIn(QueueIn, rename="pascal"):
    tags: dict[str, str] = {}


class UntagIn(QueueIn, rename="pascal"):
    tag_keys: list[str] = []


class TagsOut(Struct, rename="pascal", omit_defaults=True):
    tags: dict[str, str] = {}


# Moves


class MoveIn(Struct, rename="pascal"):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class MoveOut(Struct, rename="pascal"):
    task_handle: str


class MovesIn(Struct, rename="pascal"):
    source_arn: str
    max_results: int | None = None


class MoveShownOut(Struct, rename="pascal", omit_defaults=True):
    status: str
    source_arn: str
    started_timestamp: int
    approximate_number_of_messages_moved: int = field(name="ApproximateNumberOfMessagesMoved")
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None


class MovesOut(Struct, rename="pascal"):
    results: list[MoveShownOut]


class CancelIn(Struct, rename="pascal"):
    task_handle: str


class CancelledOut(Struct, rename="pascal"):
    approximate_number_of_messages_moved: int
