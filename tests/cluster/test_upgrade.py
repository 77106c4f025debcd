"""A cluster is upgraded: the schema first, under nodes that go on, then the nodes one after the other."""

from __future__ import annotations

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.log.postgres import living, migrate
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting
from mqueue.testing.server import RunningServer

KNOWN = migrate.latest()
ADDITIVE = f"""-- nodes: {KNOWN}
alter table mqueue.sessions add color text not null default 'green';
alter table mqueue.frames add color text;
alter table mqueue.topics add color text not null default 'green';
alter table mqueue.journal add color text;
"""
BREAKING = "alter table mqueue.sessions rename until to ends;"


@pytest.fixture
def link(database: str):
    link = Link(database, "test", 60_000)
    yield link
    link.close()


def config(database: str) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(database),)))


def migrated(link: Link, script: str) -> None:
    """By a newer mqueue."""
    with pytest.MonkeyPatch.context() as patch:
        scripts = {**migrate._scripts(), KNOWN + 1: script}
        patch.setattr(migrate, "_scripts", lambda: scripts)
        migrate.migrate(link)


def used(server: RunningServer, topic: str) -> None:
    with mqueue.Client(server.url) as q:
        q.publish_many(topic, [b"a", b"b"], durability="shard")
        q.publish(topic, b"c", idempotency_key="k")
        found = q.receive(topic, limit=3, wait=30)
        found += q.receive(topic, limit=3 - len(found)) if len(found) < 3 else []
        assert sorted(m.payload for m in found) == [b"a", b"b", b"c"]
        assert q.ack(found).settled == 3
        q.configure(topic, partitions=2)
        assert len(list(q.scan(topic))) == 3


def test_nodes_go_on_under_a_migration_that_only_adds_and_start_on_it(database: str, link: Link) -> None:
    with RunningServer(config(database)) as old:
        used(old, "before")
        assert [node.knows for node in living.running(link)] == [KNOWN]
        with pytest.raises(BadSetting, match="Stop them first"):
            migrated(link, BREAKING)
        migrated(link, ADDITIVE)
        used(old, "after")
        with RunningServer(config(database)) as started_later:
            used(started_later, "later")
    assert migrate.version_of(link) == KNOWN + 1


def test_on_one_that_is_not_for_it_a_node_does_not_start(database: str, link: Link) -> None:
    migrate.migrate(link)
    migrated(link, BREAKING)
    with pytest.raises(BadSetting, match=f"is of version {KNOWN + 1}; this mqueue knows {KNOWN}: run a newer mqueue"):
        RunningServer(config(database))
