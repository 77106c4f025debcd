"""The job `dlq`: dead letters grouped by what killed them, and a group brought back, exactly that group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mqueue
from mqueue.model.errors import NotFound, Refused
from mqueue.pipeline.jobs.dlq import IDS_MAX, DlqSettings, filters, proposal, run
from mqueue.pipeline.progress import progress_of
from mqueue.policy.filter import compile_filter
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqueue.pipeline.report import Report


def test_what_is_proposed() -> None:
    assert proposal(False, 0, 10**6, 1000) == "find the cause first"
    assert proposal(True, 0, 10**6, 1000) == "redrive"
    assert proposal(True, 10**6 - 999, 10**6, 1000) == "still dying: wait, then redrive"


def test_filters_name_all_ids_and_fit() -> None:
    ids = list(range(2**62, 2**62 + 2 * IDS_MAX + 1))
    found = list(filters(ids, 10**6))
    assert [count for _, count in found] == [IDS_MAX, IDS_MAX, 1]
    for text, _ in found:
        compile_filter(text)
    assert [count for _, count in filters(ids, 100)][:2] == [100, 100]


def ran(spark: SparkSession, server: RunningServer, **given: Any) -> Report:
    with progress_of("none") as progress:
        return run(spark, DlqSettings(url=server.url, **given), progress)


def kill(client: mqueue.Client, topic: str, errors: list[str], group: str = "default") -> None:
    client.configure(topic, max_retries=0)
    client.publish_many(topic, [error.encode() for error in errors])
    for message in client.receive(topic, limit=len(errors), group=group, wait="60s"):
        message.reject(error=message.text())


def test_the_dead_are_grouped_and_one_group_comes_back(
    spark: SparkSession, server: RunningServer, client: mqueue.Client
) -> None:
    assert ran(spark, server, topic=_made(client, "quiet")).numbers["dead messages"] == 0
    errors = [f"order {n}: connection refused by 10.0.0.{n}" for n in range(12)]
    kill(client, "orders", errors + [f"order {n} has no price" for n in range(5)])
    report = ran(spark, server, topic="orders", quiet="1h")
    assert (report.numbers["dead messages"], report.numbers["groups"]) == (17, 2)
    down, priceless = report.findings
    assert (down["messages"], down["error"]) == (12, "order <n>: connection refused by <ip>")
    assert down["proposal"] == "still dying: wait, then redrive"
    assert (priceless["messages"], priceless["proposal"]) == (5, "find the cause first")
    assert priceless["example"] in {f"order {n} has no price" for n in range(5)}

    name = down["fingerprint"]
    dry = ran(spark, server, topic="orders", redrive=name, dry_run=True)
    assert (dry.numbers["matched"], dry.numbers["redriven"]) == (12, 0)
    done = ran(spark, server, topic="orders", redrive=name, rate=100_000.0)
    assert (done.numbers["matched"], done.numbers["redriven"]) == (12, 12)
    back = client.receive("orders", limit=100, wait="60s")
    assert sorted(m.text() for m in back) == sorted(errors)
    [left] = ran(spark, server, topic="orders").findings
    assert left["fingerprint"] == priceless["fingerprint"]
    with pytest.raises(NotFound, match="has the fingerprint"):
        ran(spark, server, topic="orders", redrive=name)


def test_a_topic_without_dead_letters_is_told_in_a_sentence(
    spark: SparkSession, server: RunningServer, client: mqueue.Client
) -> None:
    client.configure("careless", dlq=False)
    with pytest.raises(Refused, match="has no dead-letter queue"):
        ran(spark, server, topic="careless")
    with pytest.raises(NotFound, match="nowhere"):
        ran(spark, server, topic="nowhere")


def _made(client: mqueue.Client, topic: str) -> str:
    client.publish(topic, b"x")
    return topic
