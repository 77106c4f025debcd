"""`mqueue serve` as a node, as it is configured: over TLS, at an address of its own, told to stop."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret, Security, Server, Tls
from mqueue.model.errors import BadSetting
from mqueue.server.placing import placing
from mqueue.server.security.certificates import CERTIFICATE_NAME, KEY_NAME, self_signed, write_pair
from mqueue.testing import ManualClock, NodeServer, PostgresServer
from mqueue.testing.server import RunningServer

PATIENCE_SECONDS = 120
TOPICS = [f"t{number}" for number in range(8)]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    write_pair(self_signed(time.time_ns() // 1_000_000), tmp_path)
    return tmp_path / CERTIFICATE_NAME


def encrypted(database: str, certificate: Path, ca_file: Path | None) -> Config:
    tls = Tls(cert_file=str(certificate), key_file=str(certificate.with_name(KEY_NAME)))
    cluster = Cluster((Secret(database),), ca_file=None if ca_file is None else str(ca_file))
    return Config(metrics=Metrics(enabled=False), security=Security(tls=tls), cluster=cluster)


def test_nodes_forward_over_tls(database: str, certificate: Path) -> None:
    config = encrypted(database, certificate, certificate)
    with RunningServer(config) as first, RunningServer(config) as second:
        assert first.url.startswith("https://")
        with (
            mqueue.Client(first.url, ca=str(certificate)) as one,
            mqueue.Client(second.url, ca=str(certificate)) as other,
        ):
            for topic in TOPICS:
                one.publish(topic, topic)
            for client in (one, other):
                assert [client.peek(topic)[0].payload.decode() for topic in TOPICS] == TOPICS


def test_a_node_does_not_forward_to_one_whose_certificate_it_cannot_check(
    database: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of all topics are there: of thirty-two one at least."""
    config = encrypted(database, certificate, None)
    codes = set()
    monkeypatch.setattr(placing, "_PATIENCE_SECONDS", 5)  # until each has its share
    with (
        RunningServer(config),
        RunningServer(config) as second,
        mqueue.Client(second.url, ca=str(certificate), retry=False) as client,
    ):
        for number in range(32):
            try:
                codes.add(str(client.receive(f"t{number}")))
            except mqueue.Unavailable as problem:
                codes.add(problem.code)
                monkeypatch.setattr(placing, "_PATIENCE_SECONDS", 0)  # one that waits is enough
    assert codes == {"[]", "owner_unreachable"}


def test_authorities_that_cannot_be_read_are_told_at_the_start(
    postgres: PostgresServer, database: str, certificate: Path
) -> None:
    """And no node is left behind that owns something."""
    nothing = certificate.with_name("nothing.pem")
    nothing.write_text("nothing", encoding="utf-8")
    with pytest.raises(BadSetting, match="certificates to trust are not PEM"):
        RunningServer(encrypted(database, certificate, nothing)).close()
    alive = "select count(*) from mqueue.sessions where until > clock_timestamp()"
    assert postgres.run(alive, database.rpartition("/")[2]) == "0"


def test_who_waits_does_not_hold_up_a_node_that_is_told_to_stop(database: str) -> None:
    """By its clock nobody would ever have waited long enough."""
    config = Config(
        server=Server(drain_timeout_ms=3_600_000),
        metrics=Metrics(enabled=False),
        cluster=Cluster((Secret(database),)),
    )
    node = RunningServer(config, ManualClock())
    with ThreadPoolExecutor(1) as threads, mqueue.Client(node.url, retry=False) as client:
        client.publish("t", b"1")
        assert client.receive("t", visibility="1h")  # so that the rest is a matter of waiting
        waiting = threads.submit(client.receive, "t", wait="60s")
        threading.Event().wait(0.5)  # not needed, but by then it waits
        node.close()
        with suppress(mqueue.Unavailable):  # or it came when nobody was let in any more
            assert waiting.result(PATIENCE_SECONDS) == []
        with suppress(mqueue.Unavailable):  # what it holds it cannot give back any more
            client.close()


def test_a_node_is_known_by_the_address_it_was_given(postgres: PostgresServer, database: str) -> None:
    """Here one that leads back to itself by another name."""
    name = database.rpartition("/")[2]
    with NodeServer({"cluster.databaseUrls": [database]}) as first:
        port = first.port
        first.stop()
        assert postgres.run("select count(*) from mqueue.sessions where until > clock_timestamp()", name) == "0"
        assert postgres.run("select count(*) from mqueue.nodes where until > clock_timestamp()", name) == "0"
    settings = {"cluster.databaseUrls": [database], "cluster.address": f"http://localhost:{port}"}
    with NodeServer(settings, port=port):
        found = postgres.run("select address from mqueue.sessions where until > clock_timestamp()", name)
        assert found == f"http://localhost:{port}"
