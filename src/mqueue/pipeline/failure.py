"""What went wrong, as one sentence: our own errors come back out of what Spark wraps around them.

An exception of a task or of a data source reaches the driver as text of a Python traceback inside text of a JVM one.
"""

from __future__ import annotations

import re

from mqueue.model import errors
from mqueue.model.errors import Error

_OURS = re.compile(r"mqueue\.model\.errors\.(\w+): ([^\n]+)")
_LAST_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Interrupt): ([^\n]+)", re.MULTILINE)
_SENTENCE_MAX = 500


def error_of(raised: BaseException) -> Error | None:
    """The error that somebody is to be told of; None: it is a fault of ours, and its traceback is wanted."""
    if isinstance(raised, Error):
        return raised
    if isinstance(raised, OSError):
        return Error(f"{raised.filename}: {raised.strerror}" if raised.filename else str(raised), applied=None)
    if _is_of_spark(raised):
        return _out_of(str(raised))
    return None


def _is_of_spark(raised: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(raised).__mro__)


def _out_of(text: str) -> Error:
    ours = _OURS.findall(text)
    if ours:
        name, sentence = ours[-1]
        kind = getattr(errors, name, Error)
        made: Error = kind(sentence[:_SENTENCE_MAX]) if issubclass(kind, Error) else Error(sentence[:_SENTENCE_MAX])
        return made
    raised = _LAST_RAISED.findall(text)
    return Error(f"Spark: {(raised[-1] if raised else text.strip().splitlines()[0])[:_SENTENCE_MAX]}", applied=None)
