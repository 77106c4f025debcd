"""Errors in the words of SQS: `__type` in the body, and the older code in a header, which clients go by.

Whatever a call of the broker raises is told with the code that comes nearest. `error` stands beside it in our own
words: a node that forwarded the request reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import msgspec

from mqueue.model.errors import (
    BadSetting,
    DiskFull,
    Error,
    Forbidden,
    LeaseLost,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Refused,
    Unauthorized,
    Unavailable,
)
from mqueue.server.http.answer import Answer, Headers, error_answer
from mqueue.server.security.principal import Untimely

KIND = "application/x-amz-json-1.0"
TARGET = "x-amz-target"
SERVICE = "AmazonSQS."

_OLD = "AWS.SimpleQueueService."
_OLD_CODES = {
    "QueueDoesNotExist": f"{_OLD}NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "AccessDeniedException": "AccessDenied",
    **{
        name: f"{_OLD}{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
}
"""Those that had another name when the protocol was made of queries and XML."""

_NEAREST: tuple[tuple[type[Error], str, int], ...] = (
    (NotFound, "QueueDoesNotExist", 400),
    (LeaseLost, "ReceiptHandleIsInvalid", 400),
    (Untimely, "RequestExpired", 400),
    (Unauthorized, "InvalidClientTokenId", 403),
    (Forbidden, "AccessDeniedException", 403),
    (QuotaExceeded, "RequestThrottled", 429),
    (QueueFull, "RequestThrottled", 429),
    (BadSetting, "InvalidAttributeValue", 400),
    (Refused, "InvalidParameterValue", 400),
    (DiskFull, "ServiceUnavailable", 503),
    (Unavailable, "ServiceUnavailable", 503),
)


class Fault(Error):
    """Something that SQS has a code for."""

    status = 400

    def __init__(self, kind: str, message: str, status: int = 400) -> None:
        super().__init__(message, code=kind)
        self.status = status


def is_sqs(headers: Mapping[str, str]) -> bool:
    return headers.get(TARGET, "").startswith(SERVICE)


def told(error: Error) -> tuple[str, int]:
    """The code and the status of an error."""
    if isinstance(error, Fault):
        return error.code, error.status
    for kind, code, status in _NEAREST:
        if isinstance(error, kind):
            return code, status
    return ("InvalidParameterValue", 400) if 400 <= error.status < 500 else ("InternalFailure", 500)


def sqs_error(error: Error) -> Answer:
    code, status = told(error)
    old = f"{_OLD_CODES.get(code, code)};{'Sender' if status < 500 else 'Receiver'}"
    ours = error_answer(error)
    beside = b"" if isinstance(error, Fault) else b"," + ours.body[1:-1]
    body = b'{"__type":"com.amazonaws.sqs#%b","message":%b%b}' % (
        code.encode(),
        msgspec.json.encode(error.message),
        beside,
    )
    return Answer(status, body, KIND, (("x-amzn-query-error", old), *request_id(), *_again(ours.headers)))


def old_code(code: str) -> str:
    """As an entry of a batch is told it."""
    return _OLD_CODES.get(code, code)


def request_id() -> Headers:
    return (("x-amzn-requestid", str(uuid4())),)


def _again(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if name == "retry-after")
