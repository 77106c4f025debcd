"""`register(spark)`: the data source `mqueue` in a session that does not find it by itself, with the session's token.

After `pip install mqueue[spark]` Spark finds the source by its name (`pyspark_mqueue`). Whoever registers it can keep
the token in the session's configuration, `spark.mqueue.token`, and can reach clusters where mqueue is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from mqueue.model.errors import BadSetting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "spark.mqueue.token"  # noqa: S105 - the name of a setting


def register(spark: SparkSession, by_value: bool | Literal["auto"] = "auto") -> None:
    """Have `spark.read.format("mqueue")` work in this session.

    `by_value`: the code travels with what Spark sends to its processes. By itself that is so where the server may not
    have it: with Spark Connect, and where mqueue came as a zip (`--py-files`).
    """
    from mqueue.pipeline.ship import Bagged
    from mqueue.pipeline.source import MqueueDataSource

    if by_value not in (True, False, "auto"):
        raise BadSetting(f"by_value {by_value!r:.80}; it takes true, false or 'auto'")
    token = spark.conf.get(TOKEN, None)
    words = {} if token is None else {"session_token": token}
    source: Any = MqueueDataSource
    if by_value is True or (by_value == "auto" and (_is_connect(spark) or _is_zipped())):
        source = Bagged(MqueueDataSource, words)
    elif words:
        source = type(MqueueDataSource.__name__, (MqueueDataSource,), {"__module__": "__main__", **words})
    spark.dataSource.register(source)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _is_zipped() -> bool:
    return ".zip/" in __file__
