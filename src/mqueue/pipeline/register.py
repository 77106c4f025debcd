"""`register(spark)`: the data source `mqueue` in a session that does not find it by itself, with the session's token.

After `pip install mqueue[spark]` Spark finds the source by its name (`pyspark_mqueue`). Whoever registers it can keep
the token in the session's configuration, `spark.mqueue.token`, instead of in options or the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "spark.mqueue.token"  # noqa: S105 - the name of a setting


def register(spark: SparkSession) -> None:
    """Have `spark.read.format("mqueue")` work in this session."""
    from mqueue.pipeline.source import MqueueDataSource

    token = spark.conf.get(TOKEN, None)
    if token is None:
        spark.dataSource.register(MqueueDataSource)
        return

    class WithToken(MqueueDataSource):
        session_token = token

    spark.dataSource.register(WithToken)
