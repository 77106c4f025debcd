"""A connection that breaks, hangs or is refused: the error says what became of the call, and the next call connects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from mqueue.log.postgres import clock
from mqueue.log.postgres.clock import sample
from mqueue.log.postgres.link import Link
from mqueue.model.errors import BadSetting, ShardDown
from mqueue.testing import PostgresServer
from tests.postgres.shards import in_thread, wait_until

PASSWORD = "correct-horse"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be broken."""
    with PostgresServer(password=PASSWORD) as server:
        yield server


@pytest.fixture
def fragile(server: PostgresServer) -> Iterator[Callable[..., Link]]:
    made: list[Link] = []

    def link(url: str = "", **settings: object) -> Link:
        made.append(Link(url or server.url(), "fragile", **settings))  # type: ignore[arg-type]
        return made[-1]

    yield link
    for one in made:
        one.close()


def active(server: PostgresServer) -> bool:
    """Whether the statement runs, and not one of those that come before it."""
    sql = "select count(*) from pg_stat_activity where application_name = 'mqueue:fragile' and wait_event = 'PgSleep'"
    return server.run(sql).strip() == "1"


def test_settings_of_a_connection(fragile: Callable[..., Link], server: PostgresServer) -> None:
    server.run("create database careless")
    server.run("alter database careless set synchronous_commit = off")
    link = fragile(server.url("careless"), timeout_ms=7000)
    names = ("application_name", "statement_timeout", "synchronous_commit", "idle_in_transaction_session_timeout")
    settings = [link.call("select current_setting(%b::text)", (name,))[0][0] for name in names]
    assert settings == ["mqueue:fragile", "7s", "on", "7s"]
    assert link.server == f"127.0.0.1:{server.port}/careless"


def test_values_come_back_as_they_went(fragile: Callable[..., Link]) -> None:
    link = fragile()
    values = (0, 2**62, -5, True, None, "ä", b"\x00\xff")
    assert link.call("select %b, %b, %b, %b, %b::bigint, %b, %b", values) == [values]
    assert link.call("do $$ begin null; end $$") == []


def test_after_a_restart_the_next_call_works(fragile: Callable[..., Link], server: PostgresServer) -> None:
    link = fragile()
    link.call("select 1")
    server.stop()
    server.start()
    assert link.call("select 2") == [(2,)], "nothing was running, so nothing is in doubt"


def test_a_server_that_dies_under_a_statement_leaves_doubt(
    fragile: Callable[..., Link], server: PostgresServer
) -> None:
    link = fragile(timeout_ms=600_000)
    running = in_thread(lambda: link.call("select pg_sleep(600)"))
    wait_until(lambda: active(server))
    server.kill()
    with pytest.raises(ShardDown) as caught:
        running.result(120)
    assert caught.value.applied is None
    server.start()
    assert link.call("select 2") == [(2,)]


def test_a_server_that_stands_still_is_given_up(fragile: Callable[..., Link], server: PostgresServer) -> None:
    link = fragile(timeout_ms=200)
    link.call("select 1")
    server.pause()
    try:
        with pytest.raises(ShardDown, match="did not answer") as caught:
            link.call("select 1")
    finally:
        server.resume()
    assert caught.value.applied is None
    patient = fragile()
    assert patient.call("select 2") == [(2,)]


def test_a_statement_that_takes_too_long_is_ended(fragile: Callable[..., Link]) -> None:
    link = fragile(timeout_ms=100)
    with pytest.raises(ShardDown, match="57014") as caught:
        link.call("select pg_sleep(600)")
    assert caught.value.applied is False
    assert link.connected
    link.script("select pg_sleep(0.3)")  # which may take longer


def test_a_connection_that_is_ended_by_somebody_did_nothing(
    fragile: Callable[..., Link], server: PostgresServer
) -> None:
    link = fragile(timeout_ms=600_000)
    running = in_thread(lambda: link.call("select pg_sleep(600)"))
    wait_until(lambda: active(server))
    server.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'mqueue:fragile'")
    with pytest.raises(ShardDown, match="57P01") as caught:
        running.result(120)
    assert caught.value.applied is False
    assert link.call("select 2") == [(2,)]


def test_a_server_that_only_reads_is_down(fragile: Callable[..., Link], server: PostgresServer) -> None:
    server.run("create database standby")
    server.run("alter database standby set default_transaction_read_only = on")
    with pytest.raises(ShardDown, match="25006") as caught:
        fragile(server.url("standby")).call("create table t (x int)")
    assert (caught.value.applied, caught.value.retryable) == (False, True)


def test_a_commit_that_comes_with_a_warning_is_in_doubt(fragile: Callable[..., Link]) -> None:
    link = fragile()
    with pytest.raises(ShardDown, match="canceling wait") as caught:
        link.call("do $$ begin raise warning 'canceling wait for synchronous replication'; end $$")
    assert caught.value.applied is None
    assert link.call("select 2") == [(2,)]


def test_a_mistake_of_ours_is_not_a_shard_that_is_down(fragile: Callable[..., Link]) -> None:
    link = fragile()
    with pytest.raises(psycopg.errors.SyntaxError):
        link.call("selec 1")
    assert link.call("select 2") == [(2,)]


@pytest.mark.parametrize("wrong", ["password", "database", "port", "host"])
def test_who_cannot_connect_is_told_why_without_the_password(
    fragile: Callable[..., Link], server: PostgresServer, wrong: str
) -> None:
    host, port, name, word = "127.0.0.1", server.port, "postgres", PASSWORD
    if wrong == "password":
        word = "hush-hush"
    elif wrong == "database":
        name = "nowhere"
    elif wrong == "port":
        port = 1
    else:
        host = "no-such-host.invalid"
    with pytest.raises(ShardDown, match=r"cannot be reached|does not let us in") as caught:
        fragile(f"postgresql://postgres:{word}@{host}:{port}/{name}").call("select 1")
    message = str(caught.value)
    assert f"{host}:{port}/{name}" in message
    assert word not in message
    assert "\n" not in message
    assert caught.value.applied is False


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:hush@hush:x@host:7/x", "postgresql://u:a/hush@host/x", "hush", "password=hush passwort=x"]
)
def test_a_url_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(BadSetting, match="postgresql://user") as caught:
        Link(dsn, "x")
    assert "hush" not in str(caught.value)


def test_attempts_to_connect_wait_for_each_other(server: PostgresServer, fragile: Callable[..., Link]) -> None:
    now = 100.0
    attempts: list[float] = []

    def monotonic() -> float:
        return now

    def chance() -> float:  # asked once for each attempt that failed
        attempts.append(now)
        return 1.0

    link = fragile(monotonic=monotonic, chance=chance)
    server.stop()
    try:
        for pause in (0.05, 0.1, 0.2, 0.4):
            for left in (pause, pause / 2):
                with pytest.raises(ShardDown) as caught:
                    link.call("select 1")
                assert caught.value.retry_after == pytest.approx(left)
                now += pause / 2
            now += pause
        assert len(attempts) == 4
    finally:
        server.start()
    now += 10
    assert link.call("select 1") == [(1,)]


def test_the_clock_of_the_server_is_asked_for(link: Link) -> None:
    before = link.call("select mqueue.now_ms()")[0][0]
    ms, took, came = sample(link, 0)
    assert before <= ms <= link.call("select mqueue.now_ms()")[0][0]
    assert took > 0
    assert came < time.monotonic_ns()


def test_of_some_looks_at_the_clock_the_quickest_counts(link: Link, monkeypatch) -> None:
    found = iter([(1, 900, 0), (2, 300, 0), (3, 500, 0), (4, 90, 0), (5, 10, 0)])
    monkeypatch.setattr(clock, "_ask", lambda link: next(found))
    assert sample(link, 100) == (4, 90, 0)
    found = iter([(n, 200 + n % 7, 0) for n in range(20)])
    assert sample(link, 100) == (0, 200, 0)
    assert next(found)[0] == 10
