"""A shard is restored to a moment in the past by PostgreSQL's own means, as docs/backup.md says."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqueue
from mqueue.config import Cluster, Config, Metrics, Secret
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.cluster.patience import wait_until

TOPIC = "orders"


@pytest.fixture
def place() -> Iterator[Path]:
    """Open to the user that PostgreSQL runs as."""
    place = Path(tempfile.mkdtemp(prefix="mqueue-restore-"))
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


def archiving(archive: Path) -> dict[str, str]:
    archive.mkdir()
    archive.chmod(0o777)
    command = f"test ! -f {archive}/%f && cp %p {archive}/%f"
    return {"wal_level": "replica", "archive_mode": "on", "archive_command": command, "max_wal_senders": "4"}


def config(url: str) -> Config:
    return Config(metrics=Metrics(enabled=False), cluster=Cluster((Secret(url),)))


def base_backup(server: PostgresServer, to: Path) -> None:
    """As whoever the server runs as: the files are to be his."""
    url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    server._call("pg_basebackup", "-d", url, "-D", str(to), "-X", "none", "-c", "fast", owner=server._owner)


def restored(server: PostgresServer, backup: Path, archive: Path, until: str) -> PostgresServer:
    """Another server that goes through the archive as far as a moment, and is then an ordinary one."""
    data = backup / "data"
    (data / "recovery.signal").touch()
    if server._owner is not None:
        os.chown(data / "recovery.signal", *server._owner)
    settings = {
        "restore_command": f"cp {archive}/%f %p",
        "recovery_target_time": until,
        "recovery_target_action": "promote",
        "archive_mode": "off",
    }
    return PostgresServer(backup, password=server.password, settings=settings)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_shard_is_brought_back_to_a_moment(place: Path) -> None:
    archive, backup = place / "archive", place / "restored"
    backup.mkdir()
    backup.chmod(0o777)
    with PostgresServer(settings=archiving(archive)) as server:
        url = server.create("mqueue")
        with RunningServer(config(url)) as node, mqueue.Client(node.url) as q:
            before = q.publish_many(TOPIC, [b"acked", b"leased", b"waits"])
            acked, held = q.receive(TOPIC), q.receive(TOPIC, visibility="1h")
            q.ack(acked)
            base_backup(server, backup / "data")
            between = q.publish(TOPIC, b"between", idempotency_key="k1")
            moment = server.run("select clock_timestamp()")
            after = q.publish_many(TOPIC, [b"after 1", b"after 2"])
            q.ack(q.receive(TOPIC, limit=1))
            token = held[0]._lease.token  # type: ignore[attr-defined]
        server.run("select pg_switch_wal()")
        server.stop()
        assert any(archive.iterdir())
        with restored(server, backup, archive, moment) as older:
            wait_until(lambda: older.run("select pg_is_in_recovery()") == "f")
            _check(older.url("mqueue"), before, between, after, token)


def _check(url: str, before, between, after, token: str) -> None:
    with RunningServer(config(url)) as node, mqueue.Client(node.url) as q:
        # What was there at that moment is there, and nothing that came later.
        assert [m.payload for m in q.scan(TOPIC)] == [b"acked", b"leased", b"waits", b"between"]
        assert [m.id for m in q.scan(TOPIC)] == [one.id for one in [*before, between]]
        # Acks from before count, leases from before hold, an ack that came later is undone.
        stats = q.stats(TOPIC)
        assert (stats.ready, stats.leased) == (2, 1)
        held = q.receive(TOPIC, limit=10)
        assert [m.payload for m in held] == [b"waits", b"between"]
        assert token != held[0]._lease.token  # type: ignore[attr-defined]
        # A key from before is known, and the same message.
        assert q.publish(TOPIC, b"between", idempotency_key="k1").id == between.id
        # Offsets are given again, ids are not.
        again = q.publish(TOPIC, b"new")
        assert again.offset == after[0].offset
        assert again.id > max(one.id for one in after)
        with pytest.raises(mqueue.NotFound):
            q.trace(after[0].id)
