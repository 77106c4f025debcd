"""A test process that stands still ends, and tells where all its threads are.

`timeout` of pyproject.toml ends a test that takes too long, by an exception in its thread. It cannot end what catches
that, what hangs when fixtures are taken down, or a process that has run all its tests and waits for a thread. Here a
process that has had nothing to report for ten minutes prints its threads and is gone; pytest-xdist names its test, as
the process that hears of all others' reports waits for five minutes more.
"""

from __future__ import annotations

import faulthandler
import os
from typing import IO

import pytest

_SILENT_SECONDS = 600
_HEARING_NOTHING_SECONDS = 900
_ENDING_SECONDS = 120


class Watch:
    """A plugin of pytest. It has to be made while output is not captured."""

    def __init__(self, config: pytest.Config) -> None:
        self._stderr: IO[bytes] = os.fdopen(os.dup(2), "wb")
        hears = bool(config.getoption("numprocesses", None))
        self._patience = _HEARING_NOTHING_SECONDS if hears else _SILENT_SECONDS
        is_one_of_several = hasattr(config, "workerinput")  # it ends when the others have
        self._ending = _SILENT_SECONDS if is_one_of_several else _ENDING_SECONDS
        self._look_again_in(self._patience)

    def pytest_runtest_logstart(self) -> None:
        self._look_again_in(self._patience)

    def pytest_runtest_logreport(self) -> None:
        """After each phase of a test."""
        self._look_again_in(self._patience)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """After a failure pytest itself calls the look off."""
        self._look_again_in(self._patience)

    def pytest_unconfigure(self) -> None:
        """All tests are over: what is left is the end of the process."""
        self._look_again_in(self._ending)

    def _look_again_in(self, seconds: int) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
