"""From a log back to the state of the heart that wrote it."""

from __future__ import annotations

from collections.abc import Iterator

from mqueue.heart.checkpoint import restore
from mqueue.heart.fold import Appended, fold
from mqueue.heart.state import State
from mqueue.log.base import Log
from mqueue.log.claims import claims_of
from mqueue.model.events import Event


def recover(log: Log) -> State:
    """The state at the last checkpoint, and what came since then folded into it."""
    point = log.load()
    state = State() if point is None else restore(point, log.stretches, log.claims)
    return fold(state, _entries(log))


def salvage(log: Log) -> tuple[State, int]:
    """The same from a log with holes: what does not fit what is left is passed over; how many entries that were."""
    point = log.load()
    state = State() if point is None else restore(point, log.stretches, log.claims)
    passed = 0
    for entry in _entries(log):
        try:
            fold(state, (entry,))
        except (ArithmeticError, AssertionError, LookupError, StopIteration, ValueError):
            passed += 1
    return state, passed


def _entries(log: Log) -> Iterator[Appended | Event]:
    for entry in log.entries():
        if isinstance(entry, Event):
            yield entry
        else:
            frame, stamp = entry
            stretches = frame.stretches(stamp)
            rows = range(stretches[0][0] - frame.base, stretches[-1][1] - frame.base)
            yield frame.topic, frame.partition, stretches, frame.at[stamp], list(claims_of(frame, rows))
