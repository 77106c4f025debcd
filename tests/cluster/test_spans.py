"""Telemetry of a cluster: who is asked, who owns and who publishes tell of one trace."""

from __future__ import annotations

import pytest

from mqueue.config import Cluster, Config, Secret, Telemetry
from mqueue.testing.server import RunningServer
from tests.integration.asking import Asking
from tests.integration.collector import Collector

TOPICS = [f"t{number}" for number in range(8)]


def test_nodes_tell_of_what_each_of_them_does(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever node owns a topic: its delivery is told once, by the owner, and leads back to the publish."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with Collector() as collector:
        telemetry = Telemetry(f"{collector.url}/v1/traces")
        config = Config(cluster=Cluster((Secret(database),)), telemetry=telemetry)
        with RunningServer(config) as first, RunningServer(config) as second:
            for topic in TOPICS:
                Asking(first.url).publish(topic, "a")
                lease = Asking(second.url)("POST", f"/v1/topics/{topic}/receive", {"wait": "30s"}).json["lease"]
                assert Asking(first.url)("POST", f"/v1/leases/{lease}/ack", {}).json["settled"] == 1
            names = [f"{verb} {topic}" for topic in TOPICS for verb in ("publish", "deliver")]
            told = dict(zip(names, collector.named(*names), strict=True))
            collector.named("ack")
    for topic in TOPICS:
        publish, deliver = told[f"publish {topic}"], told[f"deliver {topic}"]
        assert deliver.links == [(publish.trace, publish.span)]
        assert sum(span.name == deliver.name for span in collector.spans) == 1
