"""For the tests of programs that use mqueue: a clock that is moved by hand, and pytest fixtures."""

from mqueue.testing.clock import ManualClock

__all__ = ["ManualClock"]
