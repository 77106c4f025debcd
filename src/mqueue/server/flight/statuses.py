"""Our errors as Flight's statuses: what a client of any language is told, with our code and sentence in it.

Every message begins with the code: `not_found: topic 'orders' is not there`. Errors of Flight's own also carry it as
JSON (`extra_info`), as the body of an HTTP answer would have it. Arrow has no status for a conflict or a lost lease:
these are a plain FlightServerError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

import msgspec
from pyarrow import flight

from mqueue.model.errors import Error, LeaseLost, NotFound, Refused, Unavailable
from mqueue.wire.json import ErrorBody

F = TypeVar("F", bound=Callable[..., Any])

LOGGER = logging.getLogger("mqueue.server")

_ENCODER = msgspec.json.Encoder()
_KINDS: dict[int, type[flight.FlightError]] = {
    401: flight.FlightUnauthenticatedError,
    403: flight.FlightUnauthorizedError,
    429: flight.FlightUnavailableError,
    500: flight.FlightInternalError,
    503: flight.FlightUnavailableError,
    507: flight.FlightUnavailableError,
}
"""By the status of HTTP. What may be tried again later is unavailable."""


class FlightErrorBody(ErrorBody):
    """What HTTP says in a header is here as well."""

    retry_after_seconds: float | None = None


class Untraced(Exception):
    """Of such an error Arrow tells its name instead of a traceback.

    It asks the `traceback` module to write one, into the message for the client. That looks at the cause, fails here,
    and so nobody is told in which files of ours an error was raised.
    """

    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]
        raise AttributeError("an error for clients has no cause")

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidArgument(Untraced, ValueError):
    """Arrow makes INVALID_ARGUMENT of it, and of that an ArrowInvalid."""


class NotThere(Untraced, KeyError):
    """Arrow makes NOT_FOUND of it, and of that an ArrowKeyError."""


def status_of(error: Error) -> Exception:
    """What is raised in a handler for an error of ours."""
    sentence = f"{error.code}: {error.message}"
    if isinstance(error, NotFound):
        return NotThere(sentence)
    if isinstance(error, Refused):
        return InvalidArgument(sentence)
    kind = _KINDS.get(error.status, flight.FlightServerError)
    status: Exception = kind(sentence, _ENCODER.encode(body_of(error)))
    return status


def body_of(error: Error) -> FlightErrorBody:
    lost = list(map(str, error.lost)) if isinstance(error, LeaseLost) else []
    return FlightErrorBody(error.code, error.message, error.retryable, error.applied, lost, error.retry_after)


def error_of(error: BaseException, what: str) -> Error:
    """What the caller is told of an error. Those that are not on purpose go to the log."""
    if isinstance(error, Error):
        return error
    LOGGER.error("Flight %s failed", what, exc_info=error)
    return Unavailable("something went wrong inside", code="internal", applied=None)


class Unknown(Untraced):
    """Arrow makes UNKNOWN of it."""


def told(handler: F) -> F:
    """Let a handler raise errors of ours, and its caller be told in statuses of Flight's."""

    @wraps(handler)
    def answered(*args: Any) -> Any:
        try:
            return handler(*args)
        except (flight.FlightError, Untraced):
            raise
        except CancelledError:
            raise flight.FlightCancelledError("cancelled: the caller has left") from None
        except Exception as error:
            raise status_of(error_of(error, handler.__name__)) from None

    return cast(F, answered)


def told_plainly(handler: F) -> F:
    """The same where Arrow has no ear for statuses of Flight's: only their sentences get through."""

    @wraps(handler)
    def answered(*args: Any) -> Any:
        try:
            return told(handler)(*args)
        except flight.FlightError as error:
            raise Unknown(str(error)) from None

    return cast(F, answered)
