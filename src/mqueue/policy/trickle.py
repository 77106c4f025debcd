"""How many scheduled messages of a topic may become visible, and when the next may: so many a second, in portions.

Every message is paid for with the time that its rate gives it. What was not used is not saved up: in any time no more
become visible than the rate says, and those of one portion, and one. What is left over of a portion goes to the next.
Whole numbers only, so that whoever counts again comes to the same.
"""

from __future__ import annotations

from msgspec import Struct

PORTION_MS = 100
"""What waits becomes visible in portions of this much time: a timer for each, not for each message."""
_NS = 1_000_000
MANY = 1 << 40


class Trickle(Struct):
    """`rate` a second, None: any number. `paid_ns`: up to when all that became visible has been paid for."""

    rate: float | None
    paid_ns: int = 0

    @property
    def _cost(self) -> int:
        assert self.rate is not None
        return max(1, round(1_000 * _NS / self.rate))

    def room(self, at: int) -> int:
        """How many may become visible at a time."""
        if self.rate is None:
            return MANY
        return max(0, ((at + PORTION_MS) * _NS - self._paid(at)) // self._cost)

    def spend(self, count: int, at: int) -> None:
        if self.rate is not None:
            self.paid_ns = self._paid(at) + count * self._cost

    def _paid(self, at: int) -> int:
        """No more than one is saved up."""
        return max(self.paid_ns, at * _NS - self._cost)

    @property
    def ready_at(self) -> int:
        """From when on one may."""
        if self.rate is None:
            return 0
        return -(-(self.paid_ns + self._cost) // _NS) - PORTION_MS


def next_portion(at: int) -> int:
    """When those have their turn who had to wait at a time."""
    return (at // PORTION_MS + 1) * PORTION_MS
