"""Spark Connect: the session is a thin client, and what runs our code is a server elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import mqueue
from mqueue.testing.server import RunningServer
from tests.pipeline.cluster import ROOT, environment, wait_until

ROWS = 1_000
_LISTENS = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
}
PROGRAM = """
import sys
from mqueue.pipeline import get_session, register
remote, servers = sys.argv[1:]
spark = get_session("connected", {"spark.remote": remote})
register(spark)
read = spark.read.format("mqueue").options(servers=servers, subscribe="in").load()
read.select("value").write.format("mqueue").options(servers=servers, topic="out").mode("append").save()
stream = spark.readStream.format("mqueue").options(servers=servers, subscribe="in", startingOffsets="earliest").load()
write = stream.select("value").writeStream.format("mqueue").options(servers=servers, topic="streamed")
write.option("checkpointLocation", sys.stdin.read()).trigger(availableNow=True).start().awaitTermination()
print(read.count())
spark.stop()
"""


@pytest.fixture
def remote(tmp_path: Path):
    """The URL of a Connect server on this machine."""
    home = Path(pyspark.__file__).parent
    words = [f"{home}/bin/spark-submit", "--master", "local[2]"]
    words += [word for name, value in _CONF.items() for word in ("--conf", f"{name}={value}")]
    log = tmp_path / "connect.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*words, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"],
            cwd=tmp_path,
            env=environment(SPARK_HOME=str(home)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        found: list[str] = []

        def listens() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            found.extend(_LISTENS.findall(log.read_text(errors="replace")))
            return bool(found)

        wait_until("a Connect server", listens)
        yield f"sc://127.0.0.1:{found[0]}"
    finally:
        process.kill()
        process.wait(120)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_reads_writes_and_streams_go_through_a_connect_server(
    remote: str, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    client.publish_many("in", [json.dumps(n) for n in range(ROWS)])
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, remote, server.url],
        cwd=ROOT,
        env=environment(),
        input=str(tmp_path / "checkpoint"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) == ROWS
    for topic in ("out", "streamed"):
        payloads = [value for table in client.scan_arrow(topic) for value in table.column("payload").to_pylist()]
        assert sorted(map(int, payloads)) == list(range(ROWS))
