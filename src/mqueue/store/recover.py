"""From a log back to the state of the heart that wrote it."""

from __future__ import annotations

from mqueue.heart.checkpoint import restore
from mqueue.heart.fold import fold
from mqueue.heart.state import State
from mqueue.log.base import Log

MISFITS = (ArithmeticError, AssertionError, LookupError, StopIteration, ValueError)
"""What folding an entry raises that speaks of what is not there."""


def recover(log: Log) -> State:
    """The state at the last checkpoint, and what came since then folded into it."""
    point = log.load()
    state = State() if point is None else restore(point, log.stretches, log.claims)
    return fold(state, log.entries())


def salvage(log: Log) -> tuple[State, int]:
    """The same from a log with holes: what does not fit what is left is passed over; how many entries that were."""
    point = log.load()
    state = State() if point is None else restore(point, log.stretches, log.claims)
    passed = 0
    for entry in log.entries():
        try:
            fold(state, (entry,))
        except MISFITS:
            passed += 1
    return state, passed
