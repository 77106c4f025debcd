"""The data pipeline: messages in Spark, and back. Imports without PySpark; what needs it imports it when called."""

from __future__ import annotations

from mqueue.pipeline.register import register
from mqueue.pipeline.session import get_session

__all__ = ["get_session", "register"]
