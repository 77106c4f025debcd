"""Arrow Flight at the nodes of a cluster: whichever is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mqueue.config import Cluster, Metrics, Secret
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.integration.flying import Flying, batch, numbered, with_flight

TOPICS = [f"topic-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def nodes(postgres: PostgresServer) -> Iterator[list[Flying]]:
    """Clients of two nodes over two PostgreSQL servers: of six topics some are here and some there."""
    databases = tuple(Secret(postgres.create(f"flight_{number}")) for number in range(2))
    config = with_flight(metrics=Metrics(enabled=False), cluster=Cluster(databases))
    with RunningServer(config) as first, RunningServer(config) as second:
        yield [Flying(first), Flying(second)]


@pytest.mark.parametrize("topic", TOPICS)
def test_what_is_put_at_one_node_is_consumed_and_scanned_at_another(nodes: list[Flying], topic: str) -> None:
    first, second = nodes
    receipts = first.put({"topic": topic, "ahead": 4}, batch(*numbered(10)), batch(*numbered(10, 10)))
    assert [(each["count"], each["durability"]) for each in receipts] == [(10, "shard")] * 2
    assert second.scan(topic)["payload"].to_pylist() == numbered(20)
    with second.exchange(topic) as stream:
        lease, found = stream.receive(5, wait="20s")
        assert found == numbered(5)
        assert stream.ask(ack={"lease": lease})["ack"]["settled"] == 5
        stream.receive(5)
    with first.exchange(topic) as stream:  # what the other has left goes on here
        assert stream.receive(5, wait="20s")[1] == numbered(5, 5)
    assert second.act("stats", topic=topic)["published"] == 20


def test_a_batch_that_is_refused_stores_nothing(nodes: list[Flying]) -> None:
    for number, node in enumerate(nodes):
        topic = f"refused-{number}"
        node.act("configure", topic=topic, settings={})
        with pytest.raises(pa.ArrowInvalid, match=r"^payload_too_large: batch 0: "):
            node.put(topic, batch(b"good", bytes(2 << 20)))
        assert node.scan(topic).num_rows == 0
