"""`mqueue migrate`: the schemas of all servers, looked at and brought up to date, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqueue.log.postgres.migrate import latest
from mqueue.testing import PostgresServer
from tests.integration.terminal import Terminal

NOWHERE = "postgresql://mq:hush-hush@127.0.0.1:1/nowhere"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    return Terminal(monkeypatch, tmp_path)


def test_all_servers_are_brought_up_to_date(
    postgres: PostgresServer, database: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = postgres.create(f"{database.rpartition('/')[2]}_other")
    monkeypatch.setenv("DATABASE_URLS", f"{database},{other}")
    first, second = (url.rpartition("@")[2] for url in (database, other))
    done = terminal.run("migrate", "--check")
    assert done.code == 1
    told = [line for line in done.lines if not line.startswith("  would apply ")]
    assert told == [f"{server}: no schema yet, this mqueue needs {latest()}" for server in (first, second)]
    assert len(done.lines) == 2 + 2 * latest()
    applied = ", ".join(str(number) for number in range(1, latest() + 1))
    done = terminal.run("migrate")
    assert done.out.splitlines()[0] == f"{first}: brought to version {latest()} ({applied} applied)"
    assert done.code == 0
    for words in (["migrate"], ["migrate", "--check"]):
        done = terminal.run(*words)
        assert (done.code, done.out.splitlines()[1]) == (0, f"{second}: at version {latest()}, nothing to do")
    postgres.run("update mqueue.meta set value = '1' where key = 'schema'", database.rpartition("/")[2])
    done = terminal.run("migrate", "--check")
    assert (done.code, done.out.splitlines()[0]) == (1, f"{first}: at version 1, this mqueue needs {latest()}")


def test_one_in_trouble_does_not_keep_the_others_from_it(
    postgres: PostgresServer, database: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URLS", f"{NOWHERE},{database}")
    done = terminal.run("migrate")
    assert done.code == 5
    assert done.out.startswith(f"{database.rpartition('@')[2]}: brought to version")
    assert done.err.startswith("mqueue: PostgreSQL at 127.0.0.1:1/nowhere cannot be reached: ")
    assert done.err.count("\n") == 1
    assert "hush" not in done.err
    postgres.run("update mqueue.meta set value = '99' where key = 'schema'", database.rpartition("/")[2])
    monkeypatch.setenv("DATABASE_URLS", database)
    done = terminal.run("migrate", "--check")
    assert (done.code, done.out) == (2, "")
    assert "is of version 99; this mqueue knows" in done.err


def test_without_servers_there_is_nothing_to_migrate(terminal: Terminal) -> None:
    done = terminal.run("migrate")
    assert (done.code, done.out) == (4, "")
    assert done.err == ("mqueue: no cluster is configured: give its servers by cluster.databaseUrls (DATABASE_URLS)\n")
