"""The data source in a session: registered with a token, and carried to where it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from sysconfig import get_paths

import pytest

import mqueue
from mqueue.pipeline import register
from mqueue.pipeline.ship import Bag, Bagged
from mqueue.pipeline.source import MqueueDataSource

ROOT = Path(__file__).resolve().parents[2]
SITE = get_paths()["purelib"]
STRANGER = [sys.executable, "-S"]
"""A Python that has all packages, but not this one: it is installed by a file that -S does not read."""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))}
    return {**kept, "PYTHONPATH": SITE, **more}


def test_a_bag_holds_what_readers_and_writers_need() -> None:
    modules = Bag.packed().modules
    assert {"mqueue", "mqueue.client.sync", "mqueue.pipeline.source", "mqueue.pipeline.writer"} <= modules.keys()
    assert not [name for name in modules if name.startswith(("mqueue.server", "mqueue.cli.", "mqueue.testing"))]
    assert sum(len(text) for _, text in modules.values()) < 1_000_000


def test_a_bag_opens_where_the_package_is_not(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    file = tmp_path / "pickled"
    file.write_bytes(cloudpickle.dumps(Bagged(MqueueDataSource, {"session_token": "s3cret"})))
    program = (
        "import importlib.util, pickle, sys\n"
        "from pyspark import cloudpickle\n"
        "assert importlib.util.find_spec('mqueue') is None\n"
        "kind = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "assert (kind.name(), kind.session_token) == ('mqueue', 's3cret')\n"
        "source = kind({'servers': 'http://127.0.0.1:1', 'topic': 't'})\n"
        "open(sys.argv[1], 'wb').write(cloudpickle.dumps(source))\n"
    )
    subprocess.run([*STRANGER, "-c", program, file], env=environment(), check=True)
    program = (
        "import pickle, sys\n"
        "source = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "print(type(source).__name__, source._connection.token, 'mqueue.client.sync' in sys.modules)\n"
        "source._connection.open().close()\n"
    )
    told = subprocess.run(
        [*STRANGER, "-c", program, file], env=environment(), check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == ["MqueueDataSource", "s3cret", "False"]


def test_where_the_package_is_installed_the_bag_stays_shut() -> None:
    import pickle

    from pyspark import cloudpickle

    found = pickle.loads(cloudpickle.dumps(Bagged(MqueueDataSource, {})))
    assert found is MqueueDataSource
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == "Bag"]


def test_by_value_takes_three_words(spark) -> None:
    with pytest.raises(mqueue.BadSetting, match="by_value 'yes'"):
        register(spark, by_value="yes")  # type: ignore[arg-type]


def test_the_token_of_the_session_is_used_and_not_shown(spark, server, client) -> None:
    spark.conf.set("spark.mqueue.token", "s3cret token")  # none that a server could have given
    try:
        register(spark)
        with pytest.raises(Exception, match="the one given is not shown") as refused:
            spark.range(1).selectExpr("'x' as value").write.format("mqueue").options(
                servers=server.url, topic="t"
            ).mode("append").save()
        assert "s3cret" not in str(refused.value)
    finally:
        spark.conf.unset("spark.mqueue.token")
        register(spark)
    assert client.topics() == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_without_the_package_reads_and_writes_by_value(server, client, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from mqueue.pipeline import get_session, register
spark = get_session("by-value", {{"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}})
register(spark, by_value=True)
place = {{"servers": {server.url!r}}}
rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
rows.write.format("mqueue").options(**place, topic="a").mode("append").save()
stream = spark.readStream.format("mqueue").options(**place, subscribe="a", startingOffsets="earliest").load()
stream = stream.select("value").writeStream.format("mqueue").options(**place, topic="b")
stream = stream.option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).trigger(availableNow=True)
stream.start().awaitTermination()
print("rows", spark.read.format("mqueue").options(**place, subscribe="b").load().count())
spark.stop()
"""
    done = subprocess.run(
        [*STRANGER, "-W", "ignore", "-c", program],
        env=environment(PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=str(python)),
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert "rows 100" in done.stdout, done.stderr[-5000:]
    assert sorted(int(message.payload) for message in client.scan("b")) == list(range(100))
