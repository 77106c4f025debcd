"""Errors of the source and the sink as one sentence. Spark would show the stack of a process that nobody has seen.

Spark asks a Python data source in processes of its own and shows what they raise with their stack. One that is told to
hide it shows the type and the sentence. Each such process ends with the error, so nothing else is hidden.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from mqueue.model.errors import Error

F = TypeVar("F", bound=Callable[..., Any])

_HIDE = "SPARK_HIDE_TRACEBACK"
_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
"""Set in the processes that Spark starts, and in no program of a user."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """An error of ours leaves without its stack; any other keeps it, since it is a fault."""
    try:
        yield
    except Error as error:
        if os.environ.get(_RUNTIME) == _WORKER:
            os.environ[_HIDE] = "1"
        error.__cause__ = None
        error.__suppress_context__ = True
        raise


def plainly(call: F) -> F:
    """The same for a whole call."""

    @functools.wraps(call)
    def told(*args: Any, **kwargs: Any) -> Any:
        with told_plainly():
            return call(*args, **kwargs)

    return cast(F, told)
