"""Found by Spark by its name: after `pip install mqueue[spark]` there is `spark.read.format("mqueue")`.

Must not fail: one such package that does makes Spark forget all of them.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):  # somebody may look at all modules where there is no Spark
    from mqueue.pipeline.source import MqueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
