"""Writing rows into a topic through the sink, against a writer that takes them one by one.

The sink stages all rows and publishes them at once; the other publishes by a thousand, and what it has published stays
if it fails: it does less. Both read the same Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Result, short
from benchmarks.spark_place import Place, Sizes, all_there, payloads, serving, values
from benchmarks.spark_plain import PlainSource
from benchmarks.spark_scan import best, in_turns, ratio, shown
from mqueue import Client

OF_ROW_WRITER = 5
FILES = 2
TURNS = 3


def write(place: Place, sizes: Sizes) -> Iterator[Result]:
    spark = place.spark
    spark.dataSource.register(PlainSource)
    folder = place.directory / "values.parquet"
    folder.mkdir()
    for number in range(FILES):
        bounds = [sizes.rows * n // FILES for n in (number, number + 1)]
        pq.write_table(pa.table({"value": payloads(*bounds)}), folder / f"{number}.parquet")
    rows = spark.read.parquet(str(folder))
    with serving(place.directory, "write") as (server, url), Client(url) as client:

        def sink(topic: str) -> None:
            rows.write.format("mqueue").mode("append").options(servers=url, topic=topic).save()

        def plain() -> None:
            rows.write.format("plain").mode("append").options(url=url, topic="published").save()

        for topic in ("staged", "published", "looked-at"):
            client.configure(topic, partitions=2)
        laps = in_turns({"sink": lambda: sink("staged"), "plain": plain}, min(TURNS, sizes.rounds))
        before, _ = server.usage()
        sink("looked-at")
        used = server.usage()[0] - before
        all_there(values(client, "looked-at"), sizes.rows)
    note = f"{short(sizes.rows)} rows in {best(laps['sink']):.2f} s, {used:.2f} s of the server's processor"
    yield shown("sink", laps["sink"], sizes.rows, note)
    yield shown("row writer, 1000 at a time", laps["plain"], sizes.rows, f"{best(laps['plain']):.2f} s")
    yield ratio("sink / row writer", laps["sink"], laps["plain"], OF_ROW_WRITER)
