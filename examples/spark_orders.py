"""Orders in Spark: publish them, stream and aggregate them, plot what came out, and write the result back.

pip install 'mqueue[server,spark,spark-java]'
python examples/spark_orders.py --orders 50000 --plot revenue.png

It uses the server that MQUEUE_URL names (`make run` starts one), or one of its own for as long as it runs. The same
steps are in spark_orders.ipynb.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure
from msgspec import json
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import mqueue
from mqueue.pipeline import get_session, register

COUNTRIES = {"DE": 5, "FR": 3, "NL": 2, "SE": 1}
ORDER = "order_id bigint, customer string, country string, amount double, placed_at timestamp"
DAY = datetime(2026, 1, 14, tzinfo=UTC)


@contextmanager
def server() -> Iterator[str]:
    """The URL of the server that is there, or of one that ends with this program."""
    if url := os.environ.get("MQUEUE_URL"):
        yield url
        return
    from mqueue.testing.server import RunningServer

    with RunningServer() as running:
        yield running.url


def orders(count: int) -> pa.Table:
    """A day of orders, most of them in the evening. The same ones each time."""
    chance = random.Random(1)
    rows = []
    for number in range(count):
        customer = f"customer-{chance.randrange(1 + count // 10)}"
        hour = min(chance.triangular(0, 24, 19), 23.99)
        order = {
            "order_id": number,
            "customer": customer,
            "country": chance.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
            "amount": round(chance.lognormvariate(3.5, 0.8), 2),
            "placed_at": (DAY + timedelta(hours=hour)).isoformat(timespec="seconds"),
        }
        rows.append({"payload": json.encode(order), "key": customer.encode()})
    return pa.Table.from_pylist(rows)


def publish(url: str, table: pa.Table) -> None:
    """Ten thousand messages a call, each call all or none."""
    with mqueue.Client(url, encoding="arrow") as q:
        for start in range(0, table.num_rows, 10_000):
            q.publish_arrow("orders", table.slice(start, 10_000))


def revenue(stream: DataFrame) -> DataFrame:
    """Pure: messages in, revenue by hour and country out."""
    order = stream.select(sf.from_json(sf.col("value").cast("string"), ORDER).alias("order")).select("order.*")
    hour = sf.window("placed_at", "1 hour").start.alias("hour")
    return order.groupBy(hour, "country").agg(sf.sum("amount").alias("revenue"), sf.count("*").alias("orders"))


def aggregate(spark: SparkSession, url: str) -> DataFrame:
    """All that was published so far, as a stream that ends: without `availableNow` it would go on."""
    stream = (
        spark.readStream.format("mqueue")
        .option("servers", url)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    with tempfile.TemporaryDirectory() as folder:
        query = (
            revenue(stream)
            .writeStream.outputMode("complete")
            .format("memory")
            .queryName("revenue")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return spark.table("revenue").orderBy("hour", "country")


def plot(table: DataFrame, file: str) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    pandas: Any = table.toPandas()
    wide = pandas.pivot(index="hour", columns="country", values="revenue").fillna(0)
    axes.stackplot(wide.index, wide.T.to_numpy(), labels=list(wide.columns))
    axes.set_ylabel("revenue an hour")
    axes.legend(loc="upper left")
    figure.autofmt_xdate()
    figure.savefig(file)


def write_back(table: DataFrame, url: str) -> None:
    """One message for each hour and country. With a `txnId`, whoever writes the same orders again adds nothing."""
    count = table.agg(sf.sum("orders")).collect()[0][0]
    rows = table.select(sf.col("country").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
    write = rows.write.format("mqueue").mode("append").option("servers", url).option("topic", "orders.revenue")
    write.option("txnId", f"revenue-{DAY:%Y-%m-%d}-{count}").save()


def main() -> None:
    words = argparse.ArgumentParser(description="Orders through Spark and back.")
    words.add_argument("--orders", type=int, default=50_000)
    words.add_argument("--plot", default="revenue.png")
    given = words.parse_args()
    with server() as url:
        publish(url, orders(given.orders))
        print(f"published {given.orders:,} orders to {url}")
        spark = get_session("orders", {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"})
        register(spark)
        table = aggregate(spark, url)
        for row in table.groupBy("country").sum("revenue", "orders").orderBy("country").collect():
            print(f"{row[0]}: {row[1]:,.2f} from {row[2]:,} orders")
        plot(table, given.plot)
        print(f"plotted to {given.plot}")
        write_back(table, url)
        spark.stop()
        with mqueue.Client(url) as q:
            print(f"wrote {sum(1 for _ in q.scan('orders.revenue'))} messages to orders.revenue")


if __name__ == "__main__":
    main()
