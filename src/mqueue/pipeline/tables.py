"""Tables that rows are taken from, cut into blocks that are the same each time: pieces of files, ranges of a database.

A block has a name of its own. A file that was changed is another one; a database has to stay as it is while somebody
reads it. Does not know what becomes of the rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from mqueue.model.errors import Refused
from mqueue.model.limits import MIB
from mqueue.pipeline.job import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CORRUPT = "_corrupt_record"
"""The column into which Spark puts a line that it cannot read."""
BLOCKS_MAX = 10_000
FROM_ENVIRONMENT = "env:"
_FILE = ("file_path", "file_block_start", "file_block_length", "file_size", "file_modification_time")
_SIZES = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")


class TableSettings(Settings, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="Files, a directory or a pattern; of jdbc the URL of the database.")]
    format: Annotated[Literal["parquet", "csv", "json", "jdbc"], Meta(description="What the table is.")] = "parquet"
    option: Annotated[
        tuple[str, ...], Meta(description="For Spark's reader: NAME=VALUE, or NAME=env:VARIABLE; may be repeated.")
    ] = ()
    table: Annotated[str, Meta(description="Of jdbc: the table.")] = ""
    partition_column: Annotated[str, Meta(description="Of jdbc: a column of whole numbers to cut it by.")] = ""
    block_rows: Annotated[int, Meta(ge=1, description="Of jdbc: so many numbers of that column at once.")] = 100_000
    block_bytes: Annotated[int, Meta(ge=1, description="So many bytes of a file at once.")] = 64 * MIB


def read(spark: SparkSession, settings: TableSettings) -> tuple[DataFrame, Column]:
    """The table, and a column that names the block of each row."""
    options = reader_options(settings.option, os.environ)
    return _database(spark, settings, options) if settings.format == "jdbc" else _files(spark, settings, options)


@contextmanager
def pieces_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Files are cut into pieces of so many bytes, whatever their number and however many cores there are."""
    before = {name: spark.conf.get(name) for name in _SIZES}
    for name in _SIZES:
        spark.conf.set(name, str(size))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                spark.conf.set(name, value)


def reader_options(given: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """Options by name. A password is better taken from the environment than typed."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"--option {name!r:.80}; it takes NAME=VALUE", code="bad_option")
        if value.startswith(FROM_ENVIRONMENT):
            variable = value.removeprefix(FROM_ENVIRONMENT)
            if variable not in environ:
                raise Refused(f"--option {name}: the environment has no {variable!r:.80}", code="bad_option")
            value = environ[variable]
        found[name] = value
    return found


def _files(spark: SparkSession, settings: TableSettings, options: dict[str, str]) -> tuple[DataFrame, Column]:
    from pyspark.sql import functions as sf

    if settings.format == "csv":
        options = {"header": "true", "inferSchema": "true", **options}
    reader = spark.read.format(settings.format).options(**options)
    table = reader.load(settings.path)
    if settings.format in ("csv", "json") and CORRUPT not in table.columns:
        table = reader.schema(table.schema.add(CORRUPT, "string")).load(settings.path)  # so that bad lines are seen
    words = [sf.col(f"_metadata.{name}").cast("string") for name in _FILE]
    return table, sf.sha1(sf.concat_ws("|", *words))


def _database(spark: SparkSession, settings: TableSettings, options: dict[str, str]) -> tuple[DataFrame, Column]:
    from pyspark.sql import functions as sf

    if not settings.table:
        raise Refused("--format jdbc needs --table", code="bad_option")
    whole = spark.read.jdbc(settings.path, settings.table, properties=options)
    if not settings.partition_column:
        return whole.coalesce(1), sf.lit("all")
    column = sf.col(f"`{settings.partition_column}`")
    least, most = whole.agg(sf.min(column).cast("bigint"), sf.max(column).cast("bigint")).collect()[0]
    starts = block_starts(least, most, settings.block_rows)
    name = quoted(settings.partition_column, settings.path)
    ranges = [f"{name} >= {start} and {name} < {start + settings.block_rows}" for start in starts]
    table = spark.read.jdbc(settings.path, settings.table, predicates=[*ranges, f"{name} is null"], properties=options)
    names = sf.array(*map(sf.lit, [*map(str, starts), "none"]))
    return table, sf.element_at(names, sf.spark_partition_id() + 1)


def block_starts(least: int | None, most: int | None, size: int) -> list[int]:
    """Where blocks of whole numbers begin: at multiples of their size, so that they do not shift."""
    if least is None or most is None:
        return []
    starts = range(least // size * size, most + 1, size)
    if len(starts) > BLOCKS_MAX:
        raise Refused(
            f"{len(starts)} blocks of {size} numbers; at most {BLOCKS_MAX} are allowed: give a larger --block-rows",
            code="too_many_blocks",
        )
    return list(starts)


def quoted(name: str, url: str) -> str:
    """A column as the database writes it: with its capitals as they are."""
    sign = "`" if url.startswith(("jdbc:mysql", "jdbc:mariadb")) else '"'
    return sign + name.replace(sign, 2 * sign) + sign
