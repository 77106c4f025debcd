"""A server over Arrow Flight, on disk: publishing, scanning and consuming with Arrow's own client.

As for HTTP the server has a process of its own, and the load comes from this one, on the same machine. Clients are
threads, each with a stream of its own; what they do is done by Arrow, outside of Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyarrow import flight

from benchmarks.disk import scratch
from benchmarks.harness import Profile, Result, short
from benchmarks.http_load import Server
from benchmarks.memory_broker import PAYLOADS, TOPIC

BATCH = pa.record_batch({"payload": pa.array(PAYLOADS[:1000], pa.binary())})
STREAMS = 4
AHEAD = 8

Work = Callable[[flight.FlightClient, float], int]
"""Messages that a client got done until a moment."""


def put(profile: Profile) -> Iterator[Result]:
    """Batches of a thousand, each durable before its receipt."""
    with _serving() as server:
        yield from _rate(server, profile, "put, 1000 at a time, 8 sent ahead", _put(AHEAD), STREAMS, 1e6)
        yield from _rate(server, profile, "put, one stream, 8 sent ahead", _put(AHEAD), 1)
        yield from _rate(server, profile, "put, 8 streams, each batch waited for", _put(0), 8)


def scan(profile: Profile) -> Iterator[Result]:
    """All that there is, from the first offset on, again and again."""
    count = 2_000 if profile.name == "full" else 200
    with _serving() as server:
        _fill(server, count)
        yield from _rate(server, profile, "scan, one stream", _scan(None), 1, 2e6)
        yield from _rate(server, profile, "scan, two streams", _scan(None), 2)
        yield from _rate(server, profile, "scan of payloads alone", _scan(["payload"]), 1)


def exchange(profile: Profile) -> Iterator[Result]:
    """Receive a thousand, ack them, while others publish as much."""
    with _serving() as server:
        yield from _rate(server, profile, "put, receive and ack, 1000 at a time", _cycle, STREAMS)


@contextmanager
def _serving() -> Iterator[Server]:
    with scratch() as directory, Server(directory / "data", flight=True) as server:
        yield server


def _rate(
    server: Server, profile: Profile, label: str, work: Work, streams: int, target: float | None = None
) -> Iterator[Result]:
    """Clients that do something again and again, for a while."""
    rates, costs = [], []
    for _ in range(profile.rounds):
        before, _ = server.usage()
        done, taken = _together(server.ports["grpc"], work, streams, profile.pause / 2)
        rates.append(done / taken)
        costs.append((server.usage()[0] - before) / done)
    note = f"median {short(median(rates))}/s; {1e9 * min(costs):.0f} ns of the server's processor for each"
    if target is None:
        yield Result(label, max(rates), "msg/s", note=note, samples=rates)
    else:
        yield Result(label, max(rates), "msg/s", ">=", target, note=note, samples=rates)


def _together(port: int, work: Work, streams: int, seconds: float) -> tuple[int, float]:
    clients = [flight.connect(f"grpc://127.0.0.1:{port}") for _ in range(streams)]
    started = perf_counter()
    with ThreadPoolExecutor(streams) as pool:
        done = sum(pool.map(lambda client: work(client, started + seconds), clients))
    return done, perf_counter() - started


def _put(ahead: int) -> Work:
    def work(client: flight.FlightClient, until: float) -> int:
        writer, reader = client.do_put(_command(topic=TOPIC, ahead=ahead), BATCH.schema)
        sent = told = 0
        with writer:
            while perf_counter() < until or not sent:
                writer.write_batch(BATCH)
                sent += 1
                if sent - told > ahead:
                    reader.read()
                    told += 1
            writer.done_writing()
            while reader.read() is not None:
                told += 1
        assert sent == told
        return sent * BATCH.num_rows

    return work


def _fill(server: Server, batches: int) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{server.ports['grpc']}")
    writer, _ = client.do_put(_command(topic=TOPIC, receipts="end", ahead=AHEAD), BATCH.schema)
    with writer:
        for _ in range(batches):
            writer.write_batch(BATCH)


def _scan(columns: list[str] | None) -> Work:
    def work(client: flight.FlightClient, until: float) -> int:
        read = 0
        while perf_counter() < until or not read:
            for endpoint in client.get_flight_info(_command(topic=TOPIC, columns=columns)).endpoints:
                for chunk in client.do_get(endpoint.ticket):
                    read += chunk.data.num_rows
        return read

    return work


def _cycle(client: flight.FlightClient, until: float) -> int:
    writer, receipts = client.do_put(_command(topic=TOPIC), BATCH.schema)
    commands, answers = client.do_exchange(_command(topic=TOPIC))
    done = 0
    with writer, commands:
        while perf_counter() < until or not done:
            writer.write_batch(BATCH)
            receipts.read()
            commands.write_metadata(b'{"receive":{"limit":1000,"wait":"10s"}}')
            chunk = answers.read_chunk()
            lease = json.loads(chunk.app_metadata.to_pybytes())["receive"]["lease"]
            commands.write_metadata(b'{"ack":{"lease":"%b"}}' % lease.encode())
            answers.read_chunk()
            done += chunk.data.num_rows
    return done


def _command(**asked: Any) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(asked))
