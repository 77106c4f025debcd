"""Where the data pipeline is measured: a Spark on this machine, a server in a process of its own, topics full of rows.

Rows are told apart and checked by what is in them: each begins with its number, and the rest of its 100 bytes follows
from that. So whatever comes out somewhere can be compared byte by byte without keeping what went in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.disk import scratch
from benchmarks.http_load import Server
from mqueue import Client
from mqueue.pipeline.register import register
from mqueue.pipeline.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
BYTES = 100
NUMBER_BYTES = 8
BATCH = 10_000
_REST = np.random.default_rng(0).integers(0, 256, (10_007, BYTES - NUMBER_BYTES), np.uint8)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    name: str
    rows: int
    """Of a scan and of a write."""
    rounds: int
    """The first of which warms up."""
    rate: int
    """Messages a second while an archive runs beside."""
    seconds: int
    replayed: int
    """Messages that are archived, dropped and replayed."""


FULL = Sizes("full", rows=5_000_000, rounds=5, rate=100_000, seconds=60, replayed=1_000_000)
LARGE = Sizes("large", rows=5_000_000, rounds=5, rate=100_000, seconds=60, replayed=10_000_000)
QUICK = Sizes("quick", rows=200_000, rounds=2, rate=20_000, seconds=5, replayed=100_000)


@dataclass(frozen=True)
class Place:
    """What every benchmark of the pipeline is given."""

    spark: SparkSession
    directory: Path


@contextmanager
def place() -> Iterator[Place]:
    """A Spark with two cores, and a directory that is gone afterwards."""
    with scratch() as directory:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))  # tasks compare with our classes
        spark = get_session(
            "mqueue-benchmarks",
            {
                "spark.master": "local[2]",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.driver.memory": "2g",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.local.dir": str(directory / "spark"),
                "spark.sql.warehouse.dir": str(directory / "warehouse"),
                "spark.sql.shuffle.partitions": "2",
                "spark.log.level": "ERROR",
            },
        )
        register(spark)
        try:
            yield Place(spark, directory)
        finally:
            spark.stop()


@contextmanager
def serving(directory: Path, name: str) -> Iterator[tuple[Server, str]]:
    """A server with a directory of its own, and its address."""
    with Server(directory / name) as server:
        yield server, f"http://127.0.0.1:{server.port}"


def payloads(start: int, stop: int) -> pa.Array:
    """The rows of these numbers."""
    numbers = np.arange(start, stop, dtype=">u8")
    cells = np.empty((len(numbers), BYTES), np.uint8)
    cells[:, :NUMBER_BYTES] = numbers.view(np.uint8).reshape(-1, NUMBER_BYTES)
    cells[:, NUMBER_BYTES:] = _REST[numbers.astype(np.int64) % len(_REST)]
    ends = np.arange(0, cells.size + 1, BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(cells)])


def fill(url: str, topic: str, rows: int, partitions: int) -> None:
    """A topic with so many rows."""
    with Client(url, encoding="arrow") as client:
        client.configure(topic, partitions=partitions)
        for start in range(0, rows, BATCH):
            client.publish_arrow(topic, pa.table({"payload": payloads(start, min(rows, start + BATCH))}))


def values(client: Client, topic: str) -> Iterator[pa.Array]:
    """All payloads of a topic, frame by frame."""
    for end in client.offsets(topic):
        for frame in client.scan_frames(topic, end.partition, end.first, end.next):
            yield frame.batch.column("payload")


def numbers_of(column: pa.Array) -> NDArray[np.int64]:
    """The numbers of rows that came back. One that is not as it was made is an error."""
    rows = len(column)
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1]
    if rows and (np.diff(ends) != BYTES).any():
        raise ValueError("a message came back with another length")
    cells = np.frombuffer(column.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(rows, BYTES)
    numbers = np.ascontiguousarray(cells[:, :NUMBER_BYTES]).view(">u8").ravel().astype(np.int64)
    if (cells[:, NUMBER_BYTES:] != _REST[numbers % len(_REST)]).any():
        raise ValueError("a message came back with other bytes")
    return numbers


def all_there(columns: Iterable[pa.Array], rows: int) -> None:
    """Each of so many rows came back, once, byte by byte."""
    seen = np.zeros(rows, np.uint8)
    for column in columns:
        np.add.at(seen, numbers_of(column), 1)
    if (seen != 1).any():
        raise ValueError(f"{np.count_nonzero(seen == 0)} messages are missing, {np.count_nonzero(seen > 1)} came twice")
