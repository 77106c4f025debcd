"""What becomes of a message after its handler: a pure choice between the verbs that settle.

Chance is handed in. Does not know the queue, the clock, nor how a handler is called.
"""

from __future__ import annotations

from msgspec import Struct

from mqueue.model.times import Duration, duration_ms
from mqueue.policy.retry import backoff_due


class Retry(Exception):
    """Raise it in a handler to have the message again, after `delay` or the usual backoff. It counts as an attempt."""

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.delay_ms = None if delay is None else duration_ms(delay, "delay")


class Reject(Exception):
    """Raise it in a handler to give a message up: it is dead at once, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class Rule(Struct, frozen=True):
    """How a handler's failures are met. None: as the topic says."""

    retries: int | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int = 60_000
    reject_on: tuple[type[Exception], ...] = ()


class Verdict(Struct, frozen=True):
    verb: str
    delay_ms: int | None = None
    error: object = None


ACK = Verdict("ack")
RELEASE = Verdict("release")


def after_failure(error: BaseException, attempt: int, rule: Rule, jitter: float) -> Verdict:
    """`jitter`: a fraction between -JITTER_MAX and JITTER_MAX by which a backoff is longer."""
    asked = isinstance(error, Retry | Reject)
    shown = (str(error) or type(error).__name__.lower()) if asked else error
    spent = rule.retries is not None and attempt > rule.retries
    if spent or isinstance(error, Reject) or (not asked and isinstance(error, rule.reject_on)):
        return Verdict("reject", error=shown)
    if isinstance(error, Retry) and error.delay_ms is not None:
        return Verdict("nack", error.delay_ms, shown)
    if rule.backoff_ms is None:
        return Verdict("nack", error=shown)
    return Verdict("nack", backoff_due(max(attempt, 1), 0, rule.backoff_ms, rule.backoff_max_ms, jitter), shown)
