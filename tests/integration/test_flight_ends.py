"""How Flight streams end: consumers that leave, servers that stop. Nothing is kept of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import flight

import mqueue
from mqueue.broker.aio import AsyncBroker
from mqueue.config import Data
from mqueue.server.flight import exchanging, face
from mqueue.server.flight.connections import cut
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from tests.integration.flying import DEADLINE_SECONDS, PAYLOAD, Flying, batch, described, numbered, with_flight

CONSUMER = """
import json, sys
from pyarrow import flight
client = flight.connect(f"grpc://127.0.0.1:{sys.argv[1]}")
writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("t"))
writer.write_metadata(b'{"receive": {"limit": 3}}')
lease = json.loads(reader.read_chunk().app_metadata.to_pybytes())["receive"]["lease"]
writer.write_metadata(b'{"receive": {"limit": 3}}')
reader.read_chunk()
writer.write_metadata(json.dumps({"ack": {"lease": lease}}).encode())
reader.read_chunk()
writer.write_metadata(b'{"receive": {"limit": 1, "wait": "60s"}}')
print("ready", flush=True)
reader.read_chunk()
"""
"""Takes six, acks three, waits for more."""


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with RunningServer(with_flight()) as running:
        yield running


def taken(server: RunningServer, count: int) -> list[tuple[bytes, int]]:
    """So many messages of `t`, as soon as others have given them back: payload and attempt."""
    found: list[tuple[bytes, int]] = []
    with mqueue.Client(server.url) as q:
        while len(found) < count:
            more = q.receive("t", limit=count, wait="60s")
            assert more, "somebody still holds them"
            found += [(m.payload, m.attempt) for m in more]
    return sorted(found)


def check_no_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("mqueue-flight"):
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()


@pytest.mark.parametrize("how", ["closed", "cancelled", "killed"])
def test_what_a_consumer_leaves_goes_to_others(server, how: str) -> None:
    f = Flying(server)
    f.put("t", batch(*numbered(10)))
    if how == "killed":
        port = server.addresses["grpc"].port
        with subprocess.Popen([sys.executable, "-c", CONSUMER, str(port)], stdout=subprocess.PIPE) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == b"ready\n"
            consumer.kill()
    else:
        stream = f.exchange("t")
        lease, _ = stream.receive(3)
        stream.receive(3)
        stream.ask(ack={"lease": lease})
        stream.tell(receive={"limit": 1, "wait": "60s"})
        stream.cancel() if how == "cancelled" else stream.__exit__()
    assert taken(server, 7) == [(each, 1) for each in numbered(7, 3)]
    check_no_threads()


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_more_waits_than_commands_that_are_read_are_no_reason_to_stay(tmp_path: Path, monkeypatch, how: str) -> None:
    """Nothing more is read of such a stream, and by this clock the waits never end."""
    unread, read = threading.Event(), count()

    def noted(reader: flight.MetadataRecordBatchReader) -> bytes | None:
        metadata = _next(reader)
        if next(read) == 1 + exchanging.COMMANDS_MAX:
            unread.set()
        return metadata

    _next = exchanging._next
    monkeypatch.setattr(exchanging, "_next", noted)
    config = replace(with_flight(), data=Data(dir=str(tmp_path / "data")))
    with RunningServer(config, ManualClock(), memory=False) as server:
        f = Flying(server)
        f.put("t", batch(b"1"))
        stream = f.exchange("t")
        stream.receive()
        for _ in range(exchanging.COMMANDS_MAX + 6):
            stream.tell(receive={"wait": "60s"})
        assert unread.wait(DEADLINE_SECONDS)
        if how == "cancelled":
            stream.cancel()
            assert taken(server, 1) == [(b"1", 1)]
    check_no_threads()
    if how == "stopped":
        with mqueue.Broker(tmp_path / "data") as q:
            assert q.stats("t").groups["default"].leased == 0


def test_pushed_messages_go_to_others_as_well(server) -> None:
    f = Flying(server)
    f.put("t", batch(*numbered(10)))
    stream = f.exchange({"topic": "t", "prefetch": 5})
    stream.next()
    stream.cancel()
    assert taken(server, 10) == [(each, 1) for each in numbered(10)]


def test_a_lease_that_ran_out_makes_room_for_who_has_said_something(server) -> None:
    f = Flying(server)
    f.put("t", batch(b"1", b"2"))
    with f.exchange({"topic": "t", "prefetch": 1, "limit": 1, "visibility": "10ms"}) as stream:
        first = stream.next()
        told = [stream.ask(ack={"lease": "ff"}), stream.next()]  # the second batch may come before the answer
        [second] = [answer for answer in told if answer["batch"] is not None]
        assert [answer["batch"]["payload"].to_pylist() for answer in (first, second)] == [[b"1"], [b"1"]]
        assert second["batch"]["attempt"].to_pylist() == [2]
        lost = stream.ask(ack={"lease": first["receive"]["lease"]})
        while "error" not in lost:  # more is pushed meanwhile
            lost = stream.next()
        assert lost["error"]["code"] == "lease_lost"


@pytest.mark.parametrize("prefetch", [3, 10], ids=["full", "waiting for more"])
def test_who_says_nothing_uses_up_one_attempt(monkeypatch, prefetch: int) -> None:
    """Until it does: then it is sent more."""
    looks: SimpleQueue[None] = SimpleQueue()

    def looked(self: exchanging.Exchange) -> tuple[int, int]:
        looks.put(None)
        return unsettled(self)

    unsettled = exchanging.Exchange._unsettled
    clock = ManualClock()
    with RunningServer(with_flight(), clock) as server, mqueue.Client(server.url) as q:
        f = Flying(server)
        f.put("t", batch(*numbered(3)))
        with f.exchange({"topic": "t", "prefetch": prefetch, "visibility": "10s"}) as stream:
            lease = stream.next()["receive"]["lease"]
            monkeypatch.setattr(exchanging.Exchange, "_unsettled", looked)
            clock.advance("11s")
            for _ in range(6):
                looks.get(timeout=DEADLINE_SECONDS)
            group = q.stats("t").groups["default"]
            assert (group.ready, group.leased) == (3, 0)
            told = [stream.ask(ack={"lease": lease}), stream.next()]
            [again] = [answer["batch"] for answer in told if answer["batch"] is not None]
            assert again["attempt"].to_pylist() == [2, 2, 2]
            assert [each["error"]["code"] for each in told if "error" in each] == ["lease_lost"]


def test_leases_that_ran_out_are_forgotten(monkeypatch) -> None:
    """Also those of a consumer that asks for its messages: they are not kept, and count for no limit."""
    monkeypatch.setattr(exchanging, "LEASES_MAX", 2)
    clock = ManualClock()
    with RunningServer(with_flight(), clock) as server:
        f = Flying(server)
        f.put("t", batch(*numbered(6)))
        with f.exchange({"topic": "t", "visibility": "10s"}) as stream:
            kept = stream.ask(receive={"limit": 2})
            lease, ids = kept["receive"]["lease"], list(map(str, kept["batch"]["id"].to_pylist()))
            assert stream.ask(extend={"lease": lease, "ids": ids[:1], "visibility": "60s"})["extend"]["settled"] == 1
            stream.receive()
            refused = stream.ask(receive={})["error"]
            assert (refused["code"], refused["message"]) == (
                "backpressure",
                "2 leases of one stream are unsettled; 2 are allowed",
            )
            clock.advance("15s")
            assert stream.receive(2)[1] == numbered(2, 1)
            assert stream.ask(ack={"lease": lease, "ids": ids[:1]})["ack"] == {"settled": 1, "lost": []}


def test_what_is_unsettled_is_bounded(server, monkeypatch) -> None:
    monkeypatch.setattr(exchanging, "UNSETTLED_BYTES_MAX", 1)
    f = Flying(server)
    f.put("t", batch(*numbered(3)))
    with f.exchange("t") as stream:
        lease, _ = stream.receive()
        assert stream.ask(receive={})["error"]["code"] == "backpressure"
        stream.ask(ack={"lease": lease})
        assert stream.receive()[1] == [b"1"]
    with f.exchange({"topic": "t", "prefetch": 10, "limit": 1}) as stream:
        first = stream.next()
        assert stream.ask(ack={"lease": first["receive"]["lease"]})["ack"]["settled"] == 1  # nothing came before that
        assert stream.next()["batch"]["payload"].to_pylist() == [b"2"]


def test_readers_that_leave(server) -> None:
    f = Flying(server)
    f.put({"topic": "t", "receipts": "end"}, *(batch(*[bytes(1000)] * 1000) for _ in range(40)))
    for _ in range(5):
        reader = f.client.do_get(f.info("t").endpoints[0].ticket, f.options)
        reader.read_chunk()
        reader.cancel()
    assert f.scan("t").num_rows == 40_000


def test_publishers_that_leave(server) -> None:
    f = Flying(server)
    writer, reader = f.client.do_put(described("t"), PAYLOAD, f.options)
    writer.write_batch(batch(b"1"))
    reader.read()
    other = Flying(server)
    f.client.close()
    del writer, reader, f
    assert other.scan("t")["payload"].to_pylist() == [b"1"]


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "disk"])
def test_a_server_that_stops_ends_all_streams(tmp_path: Path, memory: bool) -> None:
    config = replace(with_flight(), data=Data(dir=str(tmp_path / "data")))
    server = RunningServer(config, memory=memory)
    f = Flying(server)
    f.put("t", batch(*numbered(10)))
    waiting, idle, pushed = (
        f.exchange("empty"),
        f.exchange("t"),
        f.exchange({"topic": "t", "prefetch": 1, "group": "g"}),
    )
    waiting.tell(receive={"wait": "60s"})
    idle.receive(3)
    pushed.next()
    writer, receipts = f.client.do_put(described("t"), PAYLOAD, f.options)
    writer.write_batch(batch(b"x"))
    receipts.read()
    server.close()
    for stream in (waiting, idle, pushed):
        with pytest.raises(flight.FlightUnavailableError):
            stream.next()
    with pytest.raises(flight.FlightUnavailableError):
        writer.close()
    with suppress(pa.ArrowException, OSError):
        f.client.close()
    check_no_threads()
    if not memory:
        with mqueue.Broker(tmp_path / "data") as q:
            assert q.stats("t").groups["default"].leased == 0
            assert [m.payload for m in q.scan("t")] == [*numbered(10), b"x"]


def test_what_outlasts_a_stop_is_finished_and_keeps_no_file_open(tmp_path: Path, monkeypatch) -> None:
    """A store that stands still for longer than the patience of a stop: callers are cut off, again and again."""
    begun, moves, passes = threading.Event(), asyncio.Event(), list[int]()

    async def slow(self: AsyncBroker, *given: object, **more: object) -> object:
        begun.set()
        await moves.wait()
        return await publish(self, *given, **more)

    def counted(port: int) -> None:
        passes.append(len(os.listdir("/dev/fd")))
        cut(port)
        if len(passes) == 5:
            moves.set()

    publish: Any = AsyncBroker.publish_arrow
    monkeypatch.setattr(AsyncBroker, "publish_arrow", slow)
    monkeypatch.setattr(face, "cut", counted)
    config = replace(with_flight(), data=Data(dir=str(tmp_path / "data")))
    server = RunningServer(replace(config, server=replace(config.server, drain_timeout_ms=0)), memory=False)
    writer, _ = Flying(server).client.do_put(described("t"), PAYLOAD)
    writer.write_batch(batch(b"1"))
    assert begun.wait(DEADLINE_SECONDS)
    server.close()
    assert max(passes) <= passes[0]
    with pytest.raises(flight.FlightUnavailableError):
        writer.close()
    with mqueue.Broker(tmp_path / "data") as q:
        assert [m.payload for m in q.scan("t")] == [b"1"]


def test_a_face_that_fails_to_close_keeps_no_directory(tmp_path: Path, monkeypatch) -> None:
    async def fails(self: face.FlightFace) -> None:
        await close(self)
        raise OSError("out of file descriptors")

    close = face.FlightFace.close
    monkeypatch.setattr(face.FlightFace, "close", fails)
    server = RunningServer(replace(with_flight(), data=Data(dir=str(tmp_path / "data"))), memory=False)
    Flying(server).put("t", batch(b"1"))
    with pytest.raises(OSError, match="out of file descriptors"):
        server.close()
    with mqueue.Broker(tmp_path / "data") as q:
        assert [m.payload for m in q.scan("t")] == [b"1"]


def test_a_reader_that_does_not_read_holds_up_no_stop() -> None:
    server = RunningServer(with_flight())
    f = Flying(server)
    f.put({"topic": "t", "receipts": "end"}, *(batch(*[bytes(10_000)] * 1000) for _ in range(10)))
    reader = f.client.do_get(f.info("t").endpoints[0].ticket, f.options)
    reader.read_chunk()
    consumer = f.exchange({"topic": "t", "prefetch": 10_000})
    consumer.next()
    server.close()
    with pytest.raises(flight.FlightUnavailableError):
        reader.read_all()


def test_large_answers_are_cut(server) -> None:
    """As over HTTP: ten thousand messages of a megabyte would be an answer that no server survives."""
    f = Flying(server)
    for _ in range(10):
        f.put("t", batch(*[bytes(1 << 20)] * 8))
    with f.exchange("t") as stream:
        answer = stream.ask(receive={"limit": 10_000})
        assert answer["receive"]["count"] == answer["batch"].num_rows <= 32
        assert stream.ask(ack={"lease": answer["receive"]["lease"]})["ack"]["settled"] == answer["receive"]["count"]
