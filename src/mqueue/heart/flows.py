"""The limits of fairness keys in one group: how many messages of each are in flight, and how fast they go out.

Only keys that have something in flight, or went out lately, are known. After a restart every key may go at once.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mqueue.heart.schedule import NEVER
from mqueue.model.policies import Fairness
from mqueue.policy.pace import Pace
from mqueue.policy.routing import key_hash

_SLACK = 1_024
MANY = 1 << 30


class Flow:
    __slots__ = ("in_flight", "pace", "paused", "stalled")

    def __init__(self, pace: Pace | None) -> None:
        self.in_flight = 0
        self.pace = pace
        self.paused = False
        """Whether a time is set when it may go on."""
        self.stalled = False
        """Whether it was found over a limit, and waits to be let on."""


class Flows:
    __slots__ = ("_fairness", "_known", "_own", "_paused", "_sweep_at", "_weights")

    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness
        self._weights = {key_hash(key.encode()): weight for key, weight in fairness.weights}
        self._own = {key_hash(key.encode()): limits for key, limits in fairness.limits}
        self._known: dict[int, Flow] = {}
        self._paused: list[tuple[int, int]] = []
        self._sweep_at = _SLACK

    def __len__(self) -> int:
        return len(self._known)

    def weight(self, share: int) -> int:
        return self._weights.get(share, 1)

    def room(self, share: int, now: int) -> int:
        """How many messages of a key may go out now."""
        flow = self._known.get(share)
        most, rate = self._limits(share)
        if flow is None:
            return most if rate is None else min(most, max(1, int(rate)))
        most -= flow.in_flight
        return most if flow.pace is None else min(most, flow.pace.room(now))

    def _limits(self, share: int) -> tuple[int, float | None]:
        """How many messages of a key may be in flight, and how many may go out in a second."""
        most, rate = self._fairness.in_flight_max, self._fairness.rate
        own = self._own.get(share) if self._own else None
        if own is not None:
            most = most if own.in_flight_max is None else own.in_flight_max
            rate = rate if own.rate is None else own.rate
        return MANY if most is None else most, rate

    def is_limited(self, share: int, now: int) -> bool:
        """Whether none may go out now; whoever asks is told by `landed` or `resumed` when to ask again."""
        if self.room(share, now) > 0:
            return False
        flow = self._known.get(share)
        if flow is None:
            return False
        if flow.pace is not None and not flow.paused and flow.pace.room(now) < 1:
            flow.paused = True
            heappush(self._paused, (flow.pace.ready_at(now), share))
        flow.stalled = True
        return True

    def start(self, share: int, count: int, now: int) -> None:
        """So many messages of a key go out."""
        flow = self._flow(share, now)
        flow.in_flight += count
        if flow.pace is not None:
            flow.pace.room(now)
            flow.pace.spend(count)

    def seat(self, share: int, count: int, now: int) -> None:
        """So many are out already."""
        self._flow(share, now).in_flight += count

    def landed(self, share: int, count: int) -> bool:
        """So many are in flight no more; whether the key had stalled."""
        flow = self._known.get(share)
        if flow is None:
            return False
        flow.in_flight = max(0, flow.in_flight - count)
        stalled, flow.stalled = flow.stalled, False
        if not flow.in_flight and flow.pace is None:
            del self._known[share]
        return stalled

    def resumed(self, now: int) -> list[int]:
        """The keys whose pause is over."""
        found = []
        while self._paused and self._paused[0][0] <= now:
            share = heappop(self._paused)[1]
            flow = self._known.get(share)
            if flow is not None:
                flow.stalled = flow.paused = False
            found.append(share)
        return found

    @property
    def next_at(self) -> int:
        """When the next pause is over."""
        return self._paused[0][0] if self._paused else NEVER

    def _flow(self, share: int, now: int) -> Flow:
        flow = self._known.get(share)
        if flow is None:
            if len(self._known) >= self._sweep_at:
                self._sweep(now)
            _, rate = self._limits(share)
            flow = self._known[share] = Flow(None if rate is None else Pace(rate, now))
        return flow

    def _sweep(self, now: int) -> None:
        """Forget those of whom nothing is to be remembered."""
        for share, flow in list(self._known.items()):
            if not flow.in_flight and (flow.pace is None or flow.pace.is_full(now)):
                del self._known[share]
        self._sweep_at = 2 * len(self._known) + _SLACK
