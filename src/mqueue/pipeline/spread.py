"""Work that is spread over the executors: an item for each task, answers as rows.

    errands(spark, items)          a DataFrame of items, each in a partition of its own, or several
    done(errands, Item, work)      a DataFrame of answers: what `work` gave for each item
    answers(frame, Answer)         the answers, on the driver

Items and answers are structs. They travel as JSON, since they are few and small: what is large, tasks read and write
themselves. Works the same on a cluster and under Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from msgspec import Struct, json

from mqueue.pipeline.failure import error_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T", bound=Struct)
A = TypeVar("A", bound=Struct)

ITEM, ANSWER = "item", "answer"


def errands(spark: SparkSession, items: Sequence[Struct], tasks_max: int = 10_000) -> DataFrame:
    """At most so many tasks; where there are more items, neighbours share one."""
    from pyspark.sql import functions as sql

    texts = [json.encode(item).decode() for item in items]
    numbers = spark.range(0, len(texts), 1, max(1, min(len(texts), tasks_max)))
    return numbers.select(sql.get(sql.lit(texts), sql.col("id").cast("int")).alias(ITEM))


def done(errands: DataFrame, kind: type[T], work: Callable[[T], Struct]) -> DataFrame:
    """`work` is pickled into each task, and called there for each of its items."""

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                answer = json.encode(work(json.decode(text, type=kind))).decode()
                yield pa.RecordBatch.from_pydict({ANSWER: [answer]})

    return errands.mapInArrow(each, f"{ANSWER} string")


def answers(frame: DataFrame, kind: type[A]) -> list[A]:
    """What the tasks that ended well gave, in the order of the items. An error of ours comes as it was."""
    try:
        rows: list[Any] = frame.collect()
    except Exception as raised:
        error = error_of(raised)
        if error is None or error is raised:
            raise
        raise error from None
    return [json.decode(row[ANSWER], type=kind) for row in rows]
