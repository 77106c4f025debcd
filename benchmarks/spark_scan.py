"""Reading a topic through the source, against Spark's own Parquet and against a source that yields tuples.

The same rows, the same columns, into the sink that does nothing. All take turns; of each the best round counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.calibration import speed
from benchmarks.harness import Result, short
from benchmarks.spark_place import Place, Sizes, fill, serving
from benchmarks.spark_plain import PlainSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "rows"
OF_PARQUET = 0.6
OF_TUPLES = 4


@dataclass(frozen=True)
class Lap:
    """Seconds, and how fast the machine was meanwhile."""

    seconds: float
    fast: float


def scan(place: Place, sizes: Sizes) -> Iterator[Result]:
    """All columns, then the values alone."""
    spark = place.spark
    spark.dataSource.register(PlainSource)
    with serving(place.directory, "scan") as (server, url):
        fill(url, TOPIC, sizes.rows, 2)
        source = spark.read.format("mqueue").options(servers=url, subscribe=TOPIC)
        path = str(place.directory / "rows.parquet")
        source.load().write.parquet(path)
        for label, schema in (("all columns", source.load().schema), ("values", "value binary")):
            before, _ = server.usage()
            laps = in_turns(
                {
                    "source": lambda schema=schema: _through(source.schema(schema).load()),
                    "parquet": lambda schema=schema: _through(spark.read.schema(schema).parquet(path)),
                    "tuples": lambda schema=schema: _through(
                        spark.read.format("plain").schema(schema).option("rows", sizes.rows).load()
                    ),
                },
                sizes.rounds,
            )
            used = (server.usage()[0] - before) / sizes.rounds
            yield from _rows(label, laps, sizes.rows, used)


def in_turns(cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[Lap]]:
    """So many rounds of each, in turns. The first warms up and does not count."""
    laps: dict[str, list[Lap]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, work in cases.items():
            before = speed()
            began = perf_counter()
            work()
            laps[name].append(Lap(perf_counter() - began, (before + speed()) / 2))
    return {name: done[1:] for name, done in laps.items()}


def best(laps: list[Lap]) -> float:
    return min(lap.seconds for lap in laps)


def shown(label: str, laps: list[Lap], rows: int, note: str) -> Result:
    """The best round as a rate, also as the reference machine would have shown it."""
    calm = max(rows / lap.seconds / lap.fast for lap in laps)
    return Result(label, rows / best(laps), "rows/s", "", None, calm, note, [lap.seconds for lap in laps])


def ratio(label: str, mine: list[Lap], other: list[Lap], least: float) -> Result:
    note = f"{best(mine):.2f} s against {best(other):.2f} s"
    return Result(label, best(other) / best(mine), "×", ">=", least, note=note)


def _through(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _rows(label: str, laps: dict[str, list[Lap]], rows: int, used: float) -> Iterator[Result]:
    note = f"{short(rows)} rows in {best(laps['source']):.2f} s, {used:.2f} s of the server's processor"
    yield shown(f"{label}: source", laps["source"], rows, note)
    yield shown(f"{label}: spark.read.parquet", laps["parquet"], rows, "")
    yield shown(f"{label}: tuples", laps["tuples"], rows, "")
    yield ratio(f"{label}: source / parquet", laps["source"], laps["parquet"], OF_PARQUET)
    yield ratio(f"{label}: source / tuples", laps["source"], laps["tuples"], OF_TUPLES)
