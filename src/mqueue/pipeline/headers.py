"""Headers as columns of Spark: made, added to those that came, and the story that a dead letter tells in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mqueue.model.limits import KIB

if TYPE_CHECKING:
    from pyspark.sql import Column

TYPE = "array<struct<key:string,value:binary>>"
CAME_BYTES_MAX = 32 * KIB
"""Of headers that came, so many bytes at most are kept where others are added: a message has room for twice as many."""
ERROR_LENGTH_MAX = 1000


def headers(more: Mapping[str, Column]) -> Column:
    """These, and no others."""
    from pyspark.sql import functions as sf

    pairs = (sf.struct(sf.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in more.items())
    return sf.array(*pairs).cast(TYPE)


def added(more: Mapping[str, Column]) -> Column:
    """Those in the column `headers`, without what is told anew, and these. If they are too long, these alone."""
    from pyspark.sql import functions as sf

    size = sf.aggregate("headers", sf.lit(0), lambda n, header: n + sf.length(header.key) + sf.length(header.value))
    came = sf.when(size <= CAME_BYTES_MAX, sf.col("headers")).otherwise(sf.array().cast(TYPE))
    return sf.concat(sf.filter(came, lambda header: ~header.key.isin(*more)), headers(more))


def story(origin: Mapping[str, Column], error: Column, at: Column, who: str) -> dict[str, Column]:
    """What a broker tells of a dead message, told by somebody else. `origin`: its topic, partition, offset and id.

    It names no group: a redrive publishes such a message anew to the topic that it came from.
    """
    from pyspark.sql import functions as sf

    time = sf.date_format(at, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return {
        **{f"x-origin-{name}": origin[name].cast("string") for name in ("topic", "partition", "offset", "id")},
        "x-group": sf.lit(""),
        "x-attempts": sf.lit("1"),
        "x-reason": sf.lit("rejected"),
        "x-error": sf.left(sf.coalesce(error, sf.lit("")), sf.lit(ERROR_LENGTH_MAX)),
        "x-consumer": sf.lit(who),
        "x-first-failure": time,
        "x-last-failure": time,
    }
