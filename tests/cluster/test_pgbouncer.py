"""A pooler between nodes and a shard: in session mode nobody notices; others are refused, with words that help."""

from __future__ import annotations

import threading

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Rejected
from mqueue.model.errors import Error
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.pgbouncer import PROGRAM, Bouncer

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(PROGRAM is None, reason="needs pgbouncer: make setup-system"),
]


def config(url: str) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(url),)))


def test_in_session_mode_a_cluster_works_as_without_it(postgres: PostgresServer) -> None:
    postgres.create("bounced")
    with Bouncer(postgres, "session", ("default_pool_size = 60",)) as bouncer:
        url = bouncer.url("bounced")
        with (
            RunningServer(config(url)) as first,
            RunningServer(config(url)) as second,
            mqueue.Client(first.url) as here,
            mqueue.Client(second.url) as there,
        ):
            for number in range(20):
                here.publish(f"t{number}", b"1", idempotency_key="k")
                assert here.publish(f"t{number}", b"1", idempotency_key="k").duplicate
                (message,) = there.receive(f"t{number}", wait="60s")
                message.ack()


def test_in_session_mode_a_connection_has_its_settings_until_it_is_closed(postgres: PostgresServer) -> None:
    postgres.create("settings")
    with Bouncer(postgres, "session") as bouncer:
        links = [Link(bouncer.url("settings"), f"link{number}", 5_000 + number) for number in range(5)]
        try:
            for _ in range(3):
                found = [link.call("select current_setting('statement_timeout')")[0][0] for link in links]
                assert found == ["5s", *(f"{5_000 + number}ms" for number in range(1, 5))]
        finally:
            for link in links:
                link.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("busy", [False, True])
def test_other_modes_are_refused_when_we_connect(postgres: PostgresServer, mode: str, busy: bool) -> None:
    with Bouncer(postgres, mode) as bouncer:
        over = threading.Event()
        others = [threading.Thread(target=_use, args=(bouncer.url("postgres"), over)) for _ in range(2 * busy)]
        for thread in others:
            thread.start()
        link = Link(bouncer.url("postgres"), "test")
        try:
            with pytest.raises(Rejected, match="pool_mode = session") as told:
                link.call("select 1")
        finally:
            over.set()
            for thread in others:
                thread.join()
            link.close()
    assert told.value.code == "transaction_pooling"
    assert told.value.applied is False


def _use(url: str, over: threading.Event) -> None:
    """Somebody else who uses the pooler."""
    import psycopg

    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        while not over.is_set():
            connection.execute("select 1")


def test_a_node_that_is_behind_one_does_not_start_and_says_why(postgres: PostgresServer) -> None:
    postgres.create("shared")
    with Bouncer(postgres, "transaction") as bouncer, pytest.raises(Error, match="pool_mode = session"):
        RunningServer(config(bouncer.url("shared")))


def test_without_a_pooler_nobody_is_asked_twice(database: str) -> None:
    link = Link(database, "alone")
    asked: list[object] = []
    link._another = lambda: asked.append(1)  # type: ignore[assignment, method-assign, return-value, func-returns-value]
    try:
        assert link.call("select 1") == [(1,)]
    finally:
        link.close()
    assert asked == []
