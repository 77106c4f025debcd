"""`mqueue.pipeline.read`: a DataFrame of messages, asked for on the driver before Spark is.

    messages = read(spark, servers="http://127.0.0.1:8080", subscribe="orders", startingTimestamp="2026-01-01")

What `spark.read.format("mqueue")` finds wrong when a query runs, and tells from inside a JVM, is told here at once and
as a plain error of mqueue. Each call looks anew: a DataFrame of Spark is frozen at its first action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqueue.pipeline.connection import connection_of, without_secrets
from mqueue.pipeline.horizon import planned, reach
from mqueue.pipeline.offsets import SPLIT_ROWS_MIN
from mqueue.pipeline.options import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read(spark: SparkSession, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
    """The messages that these options name. `schema` names the columns that are wanted, and no others are read."""
    from mqueue.pipeline.register import TOKEN, register

    given = {name: _text(value) for name, value in options.items()}
    lower = {name.lower(): value for name, value in given.items()}
    rows = _rows(lower, spark.conf.get(TOKEN, None))
    cores = _cores(spark)
    if cores and rows >= SPLIT_ROWS_MIN and not {"minpartitions", "maxrecordsperpartition"} & lower.keys():
        given["minPartitions"] = str(cores)
    register(spark)
    reader = spark.read.format("mqueue").options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def _rows(lower: dict[str, str], token: str | None) -> int:
    """How many messages there are to read, once all that can be wrong before a read is found not to be."""
    connection = connection_of(lower, token)
    asked = options_of(without_secrets(lower), streaming=False)
    with connection.open() as client:
        return sum(map(len, planned(client, asked, reach(client, asked))))


def _cores(spark: SparkSession) -> int | None:
    """How many tasks run at a time. A session elsewhere does not tell."""
    try:
        return spark.sparkContext.defaultParallelism
    except Exception as error:
        if type(error).__module__.startswith("pyspark."):
            return None
        raise


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
