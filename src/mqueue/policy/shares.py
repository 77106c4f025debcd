"""Shares of the five named lanes: deficit round robin. A lane has its turn for as many deliveries as its weight says.

Priorities without a name belong to the next less urgent lane that has one: critical is all up to 0, high 1 to 25,
normal 26 to 50, low 51 to 75, background all above. Knows no messages.
"""

from __future__ import annotations

from bisect import bisect_left

from mqueue.model.priority import LANES

_BOUNDS = tuple(LANES.values())[:-1]
LANES_COUNT = len(LANES)


def lane_of(priority: int) -> int:
    """The number of the lane that a priority belongs to, 0 for critical."""
    return bisect_left(_BOUNDS, priority)


class Shares:
    """Whose turn it is. A lane that has nothing to give loses the rest of its turn, and saves nothing up."""

    __slots__ = ("credit", "lane", "weights")

    def __init__(self, weights: tuple[int, ...]) -> None:
        self.weights = weights
        self.lane = 0
        self.credit = weights[0]

    def spend(self, count: int) -> None:
        """So many deliveries of the lane whose turn it is."""
        self.credit -= count
        if self.credit <= 0:
            self.pass_on()

    def pass_on(self) -> None:
        """The next lane has its turn."""
        self.lane = (self.lane + 1) % LANES_COUNT
        self.credit = self.weights[self.lane]
