"""The data pipeline: messages in Spark, and back. Imports without PySpark; what needs it imports it when called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# This one at once: once its module is imported by others, the module would stand in the place of the function.
from mqueue.pipeline.register import register

if TYPE_CHECKING:
    from mqueue.pipeline.load import read
    from mqueue.pipeline.report import Report
    from mqueue.pipeline.session import get_session

__all__ = ["Report", "get_session", "read", "register"]

_HOMES = {"Report": "report", "get_session": "session", "read": "load"}

if not TYPE_CHECKING:  # a type checker would take it for leave to use any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
