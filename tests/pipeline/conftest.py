"""What every test of the pipeline is given: one Spark session for all of them, servers, and clients of these.

Spark starts with the first test that asks for it (some seconds), and ends when the next test is one of another folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqueue
from mqueue.config import Config, Data, Metrics
from mqueue.log.segments.storage import Storage
from mqueue.pipeline.session import get_session
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONF = {
    "spark.master": "local[2,2]",  # two cores; a task may fail once
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner, runs slower
    "spark.log.level": "ERROR",
    "spark.sql.streaming.stopTimeout": "120s",
}
_WARNINGS = (
    "ignore::ResourceWarning",  # sockets that PySpark leaves to the garbage collector
    "ignore:.*:DeprecationWarning:pyspark",
    "ignore:.*:FutureWarning:pyspark",
    "ignore::pytest.PytestUnraisableExceptionWarning",  # the same sockets, once they are collected
)
_SESSIONS: list[SparkSession] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for rule in _WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Spark is a gigabyte: it is not kept for the tests of other folders."""
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.path.is_relative_to(HERE):
            while _SESSIONS:
                stop(_SESSIONS.pop())


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Two cores of this machine, in UTC. Shared: leave no views, streams or settings behind.

    Whoever runs tests in several processes may hand out files of other folders in between: then it starts again.
    """
    if _SESSIONS:
        return _SESSIONS[-1]
    folder = tmp_path_factory.mktemp("spark")
    # Tasks run in processes of their own, which have to find the package and these tests.
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("SPARK_LOCAL_DIRS", str(folder / "local"))
        places = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        session = get_session("mqueue-tests", {**CONF, **places})
    _SESSIONS.append(session)
    return session


def stop(session: SparkSession) -> None:
    """End a session and its JVM, and wait until that is gone."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when nobody holds its input any more
    gateway.proc.wait(120)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server in memory: `server.url`."""
    with RunningServer(Config(metrics=Metrics(enabled=False))) as server:
        yield server


@pytest.fixture
def disk_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that keeps what it has on disk, below `tmp_path / "data"`."""
    data = Data(dir=str(tmp_path / "data"), storage=Storage(reserve_bytes=0))
    with RunningServer(Config(data=data, metrics=Metrics(enabled=False)), memory=False) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[mqueue.Client]:
    """A client of `server`."""
    with mqueue.Client(server.url) as client:
        yield client


@pytest.fixture
def disk_client(disk_server: RunningServer) -> Iterator[mqueue.Client]:
    """A client of `disk_server`."""
    with mqueue.Client(disk_server.url) as client:
        yield client
