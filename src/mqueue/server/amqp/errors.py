"""What went wrong, in the words of AMQP: a code and a sentence that end a channel, or the whole connection.

Ours become theirs here, and nowhere else.
"""

from __future__ import annotations

from mqueue.model.errors import Conflict, Error, Forbidden, NotFound, QueueFull, QuotaExceeded, Refused, Unauthorized

REPLY_SUCCESS = 200
NO_ROUTE = 312
CONNECTION_FORCED = 320
ACCESS_REFUSED = 403
NOT_FOUND = 404
RESOURCE_LOCKED = 405
PRECONDITION_FAILED = 406
FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
RESOURCE_ERROR = 506
NOT_ALLOWED = 530
NOT_IMPLEMENTED = 540
INTERNAL_ERROR = 541

_WORDS = {
    NO_ROUTE: "NO_ROUTE",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
_TEXT_BYTES_MAX = 255


class Fault(Exception):
    """Ends a channel, or where the code says so the connection."""

    def __init__(self, code: int, why: str, method: int = 0) -> None:
        super().__init__(why)
        self.code = code
        self.method = method
        """Of whom it is the answer: class and method, in one number; 0 if of nobody."""

    @property
    def hard(self) -> bool:
        """Whether the connection ends with it. A refusal of the login comes before there are channels."""
        return self.code == CONNECTION_FORCED or self.code >= FRAME_ERROR

    @property
    def text(self) -> str:
        """As it is sent: the word for the code, and why, in at most 255 bytes."""
        return f"{_WORDS[self.code]} - {self}".encode()[:_TEXT_BYTES_MAX].decode("utf-8", "ignore")


def fault_of(error: Exception) -> Fault:
    """What a client of RabbitMQ is told of an error of ours."""
    if isinstance(error, Fault):
        return error
    if not isinstance(error, Error):
        return Fault(INTERNAL_ERROR, "something went wrong that should not; it is in the log of the server")
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Fault(code, error.message)
    return Fault(INTERNAL_ERROR, error.message)


_CODES: tuple[tuple[type[Error], int], ...] = (
    (Forbidden, ACCESS_REFUSED),
    (Unauthorized, ACCESS_REFUSED),
    (NotFound, NOT_FOUND),
    (Conflict, PRECONDITION_FAILED),
    (QueueFull, PRECONDITION_FAILED),
    (QuotaExceeded, PRECONDITION_FAILED),
    (Refused, PRECONDITION_FAILED),
)
