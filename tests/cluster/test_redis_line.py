"""The line to Redis: who fails is away, and comes back by himself; nobody waits for it meanwhile."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from mqueue.cluster.redis.line import Access, Away, Line, clients_of
from mqueue.server.security.certificates import CERTIFICATE_NAME, KEY_NAME, self_signed, write_pair
from mqueue.testing import RedisServer
from tests.cluster.patience import wait_until

CLUSTER = UUID(int=7)
PATIENCE_SECONDS = 120


def access(server: RedisServer) -> Access:
    return Access((f"127.0.0.1:{server.port}",), password=server.password)


@pytest.fixture
def line(redis_server: RedisServer) -> Iterator[Line]:
    with closing(Line.of(access(redis_server), CLUSTER)) as line:
        yield line


def test_what_is_done_is_answered(line: Line) -> None:
    key = line.key("frame", 12, 0, 7)
    assert line.do(lambda client: client.set(key, b"\0\xff")) is True
    assert line.do(lambda client: client.get(key)) == b"\0\xff"
    assert not line.is_away


def test_keys_hold_no_odd_byte(line: Line) -> None:
    assert line.key("quota", 3, b"\0\xff") == b"mqueue:{00000000000000000000000000000007}:quota:3:00ff"
    odd = line.key("quota", "a:b\r\n*}{ü" * 100)
    assert len(odd) < 100
    assert odd.isascii()
    assert odd.decode().isprintable()
    assert b"*" not in odd
    assert odd != line.key("quota", "a:b")


def test_without_redis_it_is_away_for_ever() -> None:
    line = Line.of(Access(()), CLUSTER)
    assert line.is_away
    assert not line.configured
    with pytest.raises(Away):
        line.do(lambda client: client.ping())
    assert line.key("frame", 1).endswith(b":frame:1")
    line.close()


def test_an_answer_that_is_an_error_does_not_make_it_away(line: Line) -> None:
    key = line.key("list")
    line.do(lambda client: client.rpush(key, b"1"))
    with pytest.raises(Away, match="WRONGTYPE"):
        line.do(lambda client: client.get(key))
    assert not line.is_away


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_who_fails_is_away_until_he_answers(how: str) -> None:
    with RedisServer() as server, closing(Line.of(access(server), CLUSTER)) as line:
        getattr(server, how)()
        with pytest.raises(Away):
            line.do(lambda client: client.ping())
        assert line.is_away
        called = []
        with pytest.raises(Away):
            line.do(called.append)
        assert called == [], "nobody even tries"
        server.start() if how == "kill" else server.resume()
        wait_until(lambda: not line.is_away)
        assert line.do(lambda client: client.ping())


def test_the_first_that_answers_and_is_no_replica(redis_server: RedisServer) -> None:
    with RedisServer(replica_of=redis_server, password=redis_server.password) as replica:
        addresses = (f"127.0.0.1:{replica.port}", f"127.0.0.1:{redis_server.port}")
        with closing(Line.of(Access(addresses, password=replica.password), CLUSTER)) as line:
            assert line.do(lambda client: client.connection_pool.connection_kwargs["port"]) == redis_server.port
            replica.kill()
            assert line.do(lambda client: client.set(line.key("x"), b"1"))


@pytest.mark.parametrize("guarded", [True, False])
def test_sentinels_say_where_the_master_is(redis_server: RedisServer, guarded: bool) -> None:
    """They may have the same password, or none."""
    password = redis_server.password
    with RedisServer(sentinel_of=redis_server, password=password if guarded else "") as sentinel:
        given = Access((f"127.0.0.1:{sentinel.port}",), password=password, sentinel="mqueue")
        with closing(Line.of(given, CLUSTER)) as line:
            assert line.do(lambda client: client.role())[0] == b"master"


def test_no_message_tells_the_password(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    wrong = Access((f"127.0.0.1:{redis_server.port}",), username="mia", password="hush-hush")
    with caplog.at_level(logging.DEBUG), closing(Line.of(wrong, CLUSTER)) as line:
        assert line.is_away
        with pytest.raises(Away) as told:
            line.do(lambda client: client.ping())
    assert "hush-hush" not in caplog.text + str(told.value) + repr(wrong)
    assert "away" in caplog.text


def test_tls_is_checked() -> None:
    client = next(clients_of(Access(("redis.example:6380",), tls=True, ca_file="/ca.pem")))
    kwargs = client.connection_pool.connection_kwargs
    assert (kwargs["host"], kwargs["port"]) == ("redis.example", 6380)
    assert kwargs["ssl_ca_certs"] == "/ca.pem"
    assert kwargs["ssl_cert_reqs"] == "required"
    assert kwargs["ssl_check_hostname"]
    assert kwargs["ssl_min_version"] == ssl.TLSVersion.TLSv1_2


def test_a_line_with_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    """Redis as it comes with the tests has no TLS: something stands in front of it that has."""
    write_pair(self_signed(int(datetime.now(UTC).timestamp() * 1000)), tmp_path)
    certificate = tmp_path / CERTIFICATE_NAME
    with _tls_in_front_of(redis_server.port, certificate, tmp_path / KEY_NAME) as port:
        given = Access((f"127.0.0.1:{port}",), password=redis_server.password, tls=True)
        with closing(Line.of(given, CLUSTER)) as line:
            assert line.is_away, "nobody vouches for it"
        known = Access(given.addresses, password=given.password, tls=True, ca_file=str(certificate))
        with closing(Line.of(known, CLUSTER)) as line:
            assert line.do(lambda client: client.ping())


@contextmanager
def _tls_in_front_of(port: int, certificate: Path, key: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

    async def end(server: asyncio.Server) -> None:
        server.close()
        await server.wait_closed()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result(PATIENCE_SECONDS)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(server), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()
