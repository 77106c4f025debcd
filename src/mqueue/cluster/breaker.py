"""A circuit breaker: after a few failures in a row nobody asks a server for a while, and everybody is told at once.

Then one may try. If that works all may; if not, the while begins again. Time is an argument: nothing is waited for.
Does not know what a failure is.
"""

from __future__ import annotations

from mqueue.cluster.meters import Meters
from mqueue.model.errors import ShardDown

FAILURES_MAX = 3
PAUSE_SECONDS = 10.0


class Breaker:
    """For one thread. Its state is kept in `meters`: closed, all may ask; open, nobody; half open, one does."""

    def __init__(self, meters: Meters, name: str) -> None:
        self._meters = meters
        self._name = name
        self._failures = 0
        self._until = 0.0
        """When one may try again, while it is not closed."""

    @property
    def closed(self) -> bool:
        return self._meters.breaker == "closed"

    @property
    def open(self) -> bool:
        """Whether nobody may ask: a try that is under way is not over, or none has been let in."""
        return self._meters.breaker == "open"

    def rests(self, now: float) -> bool:
        """Whether the pause is not over: whoever comes is refused."""
        return self.open and now < self._until

    def admit(self, now: float) -> None:
        """Let one in who is going to ask, or raise ShardDown. Once the pause is over the first who comes is the one
        that tries: he has to say what came of it, by `worked`, `failed` or `gave_up`."""
        if self._meters.breaker == "closed":
            return
        if self._meters.breaker == "open" and now >= self._until:
            self._meters.breaker = "half_open"
            return
        raise self.refusal(now)

    def refusal(self, now: float) -> ShardDown:
        """What those are told who are not let in."""
        return ShardDown(
            f"{self._name} does not answer: it is not asked again for now", retry_after=max(1.0, self._until - now)
        )

    def worked(self) -> None:
        self._failures = 0
        self._meters.breaker = "closed"

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._meters.breaker == "half_open" or (self.closed and self._failures >= FAILURES_MAX):
            self._meters.breaker = "open"
            self._meters.breaker_opened += 1
            self._until = now + PAUSE_SECONDS

    def renewed(self) -> None:
        """Another server has taken the place of the one that failed: the pause is over."""
        self._until = 0.0

    def gave_up(self) -> None:
        """Who was to try did not ask after all: the next who comes does."""
        if self._meters.breaker == "half_open":
            self._meters.breaker = "open"
