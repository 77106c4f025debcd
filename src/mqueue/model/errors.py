"""Every way a call can fail: one tree, each leaf with a stable code and an HTTP status.

`applied` tells what happened to the caller's data: False, nothing changed; None, nobody knows (the line broke,
the disk failed); so a caller can decide whether to try again. A message names the value and the limit.
"""

from __future__ import annotations


class Error(Exception):
    """The root of all errors that mqueue raises on purpose."""

    code = "error"
    status = 500
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        applied: bool | None = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.applied = applied
        self.retry_after = retry_after
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable


class Refused(Error):
    """The request itself is wrong: sending it again will not help."""

    code = "refused"
    status = 400


class TooLarge(Refused):
    code = "too_large"
    status = 413


class BadName(Refused):
    code = "bad_name"


class BadPriority(Refused):
    code = "bad_priority"


class BadTime(Refused):
    code = "bad_time"


class BadFrame(Refused):
    code = "bad_frame"


class BadSetting(Refused):
    code = "bad_setting"


class Unauthorized(Error):
    code = "unauthorized"
    status = 401


class Forbidden(Error):
    code = "forbidden"
    status = 403


class NotFound(Error):
    code = "not_found"
    status = 404


class LeaseLost(Error):
    """The token no longer holds what it was asked to settle. `lost` names the ids."""

    code = "lease_lost"
    status = 409

    def __init__(self, message: str, *, lost: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class Conflict(Error):
    """It does not fit what is there. `first`: the message that an idempotency key stands for already, if it is that."""

    code = "conflict"
    status = 409
    first: int | None = None


class Expired(Error):
    code = "expired"
    status = 410


class QuotaExceeded(Error):
    code = "quota_exceeded"
    status = 429
    retryable = True


class QueueFull(Error):
    code = "queue_full"
    status = 429
    retryable = True


class Corrupt(Error):
    code = "corrupt"


class Unavailable(Error):
    code = "unavailable"
    status = 503
    retryable = True


class Backpressure(Unavailable):
    code = "backpressure"


class Stopping(Unavailable):
    """The server was told to stop, and takes nothing new: another one may."""

    code = "stopping"


class ShardDown(Unavailable):
    code = "shard_down"


class Closed(Unavailable):
    code = "closed"
    retryable = False


class Poisoned(Unavailable):
    """The disk failed. Nothing is known of calls that were under way, and nothing more is taken."""

    code = "poisoned"
    retryable = False

    def __init__(self, message: str, *, applied: bool | None = None) -> None:
        super().__init__(message, applied=applied)


class InUse(Unavailable):
    code = "in_use"


class DiskFull(Error):
    code = "disk_full"
    status = 507
    retryable = True
