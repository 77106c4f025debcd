"""Bytes of strangers that speak AMQP, or not: every reader refuses them in the words of the protocol, in bounded time.

Seeded, as the other decoders are: `MQUEUE_FUZZ_SECONDS=n` runs longer and with a new seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pamqp import commands, frame, header

from mqueue.server.amqp import frames, properties, records
from mqueue.server.amqp.content import split
from mqueue.server.amqp.errors import Fault
from mqueue.server.amqp.exchanges import Binding
from mqueue.server.amqp.tables import read_table, write_table

GIVEN = os.environ.get("MQUEUE_FUZZ_SECONDS")
SECONDS = float(GIVEN or 8) / 4
SEED = int(os.environ.get("MQUEUE_FUZZ_SEED") or (random.SystemRandom().randrange(2**32) if GIVEN else 20260101))
TABLE = {"a": 1, "b": "text", "c": [1, {"d": None, "e": [True, 1.5]}], "f": {"g": b"\xff"}}

GOOD = {
    "frames": b"".join(
        (
            frame.marshal(commands.Queue.Declare(queue="q", arguments={"x-message-ttl": 5}), 1),
            frame.marshal(commands.Basic.Publish(exchange="x", routing_key="k"), 1),
            frame.marshal(header.ContentHeader(0, 4, commands.Basic.Properties(headers={"a": 1})), 1),
            frames.frame(frames.BODY, 1, b"body"),
            frame.marshal(commands.Basic.Ack(7, True), 1),
            frames.PULSE,
        )
    ),
    "table": write_table(TABLE),
    "properties": properties.write({"content_type": "a/b", "headers": TABLE, "priority": 3, "message_id": "m"}),
    "record": records.write(records.Bound(Binding("x", "queue", "q", "k", {"a": 1}))),
}


def read_frames(data: bytes) -> None:
    try:
        _read_frames(data)
        return
    except Fault as found:
        fault = found
    assert fault.hard
    assert len(fault.text.encode()) <= 255


def _read_frames(data: bytes) -> None:
    for kind, _, payload in frames.Splitter(131_072).feed(data):
        if kind == frames.METHOD:
            index = frames.index_of(payload)
            if index == frames.PUBLISH:
                frames.read_publish(payload)
            elif index in (frames.ACK, frames.NACK, frames.REJECT):
                frames.read_settle(payload)
            else:
                frames.method_of(payload)
        elif kind == frames.HEADER:
            frames.read_header(payload)


def read_values(data: bytes) -> None:
    for read in (read_table, properties.read):
        try:
            found: Any = read(data)
        except ValueError:
            continue
        assert found is not None


def read_record(data: bytes) -> None:
    found = records.read(data)
    if found is not None:
        records.fold([(0, 0, found)])


def read_packed(data: bytes) -> None:
    with suppress(IndexError, ValueError):
        split(data)


@pytest.mark.parametrize(
    ("name", "read"),
    [("frames", read_frames), ("table", read_values), ("properties", read_values), ("record", read_record)],
)
def test_nothing_but_a_refusal_comes_out(name: str, read: Callable[[bytes], None]) -> None:
    rng = random.Random(SEED)
    until = time.monotonic() + SECONDS
    read(GOOD[name])
    count = 0
    while time.monotonic() < until:
        data = mutated(rng, GOOD[name])
        try:
            read(data)
            read_packed(data)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, input {count}: {data.hex()}") from error
        count += 1
    assert count > 10


def mutated(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        match rng.randrange(4):
            case 0:
                found[rng.randrange(len(found))] = rng.randrange(256)
            case 1:
                del found[rng.randrange(len(found)) :]
            case 2:
                at = rng.randrange(len(found) + 1)
                found[at:at] = rng.randbytes(rng.randrange(1, 8))
            case _:
                at = rng.randrange(len(found))
                found[at : at + 4] = rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "big")
        if not found:
            found += rng.randbytes(4)
    return bytes(found)


def test_a_table_of_the_largest_frame_is_read_in_no_time() -> None:
    """pamqp's reader takes seconds for it, and everybody would wait."""
    entries = b"\x00t\x01" * 40_000
    data = len(entries).to_bytes(4, "big") + entries
    begun = time.process_time()
    assert read_table(data)[0] == {"": True}
    assert time.process_time() - begun < 5
