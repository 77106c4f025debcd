"""Bytes that nobody meant: every decoder refuses them in its own words, or what it gives back is harmless.

Seeded: `MQUEUE_FUZZ_SECONDS=n` runs longer and with a new seed, `MQUEUE_FUZZ_SEED=n` repeats a run that was printed.
Frames of our own are told by their checksums; frames of clients are attacked with checksums that are right.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from mqueue.heart.checkpoint import GroupPoint, LeasePoint, PartitionPoint, ReaderPoint, TopicPoint
from mqueue.heart.dedup import Claim
from mqueue.heart.runs import Failure, Run
from mqueue.log.segments import points
from mqueue.model.errors import BadFrame, Corrupt
from mqueue.model.events import Leased, Settled, TopicMade, Voided
from mqueue.model.limits import TIME_MS_MAX, Limits
from mqueue.model.settings import Settings
from mqueue.wire import journal
from mqueue.wire.accept import accept
from mqueue.wire.frame import Frame
from mqueue.wire.head import HEAD_LENGTH_MIN, MAGIC, encode
from mqueue.wire.pack import head_of, pack, unpack
from mqueue.wire.rows import Rows

GIVEN = os.environ.get("MQUEUE_FUZZ_SECONDS")
SECONDS = float(GIVEN or 20)
SEED = int(os.environ.get("MQUEUE_FUZZ_SEED") or (random.SystemRandom().randrange(2**32) if GIVEN else 20260101))
LIMITS = Limits(payload_bytes_max=4096, key_bytes_max=64, headers_bytes_max=256)
NOW = 1_767_225_600_000

ROWS = {
    "one": Rows([b"hello"]),
    "some": Rows([b"a", b"", b"ccc"], key=[b"k", None, b""], priority=[1, 2, 3]),
    "all": Rows(
        [b"payload-one", b"payload-two"],
        key=[b"key", None],
        headers=[{"name": "value", "other": b"\xff\xfe"}, None],
        priority=[0, 50],
        deliver_at=[0, NOW],
        expires_at=[NOW, NOW + 5],
        idempotency_key=["i", None],
        fairness_key=[None, "f"],
    ),
    "many": Rows([b"%d" % number for number in range(200)], key=[b"k%d" % (number % 7) for number in range(200)]),
}


def sent(rows: Rows) -> bytes:
    return pack(Frame.of_rows(0, 0, rows))


def stored(rows: Rows) -> bytes:
    frame = Frame.of_rows(3, 1, rows)
    frame.stamp(40, 7_000, NOW)
    if frame.count > 1:
        frame.first_rows, frame.ids, frame.at = [0, 1], [7_000, 8_000], [NOW, NOW + 1]
    return pack(frame)


def honest(data: bytes) -> bytes:
    """A client's frame with lengths and checksums put right, so that what is wrong in it lies deeper."""
    if len(data) < HEAD_LENGTH_MIN:
        return data
    head, body = bytearray(data[:HEAD_LENGTH_MIN]), data[HEAD_LENGTH_MIN:]
    body += bytes(-len(body) % 8)
    struct.pack_into("<4s", head, 0, MAGIC)
    struct.pack_into("<HHIII", head, 8, 1, 0, HEAD_LENGTH_MIN, len(body), google_crc32c.value(body))
    struct.pack_into("<I", head, 4, google_crc32c.value(bytes(head[8:])))
    return bytes(head) + body


def with_body(body: bytes, count: int = 1, columns: int = 1) -> bytes:
    frame = Frame.of_rows(0, 0, Rows([b""] * count))
    return encode(frame, columns, len(body), google_crc32c.value(body)) + body


def is_refused_or_harmless(data: bytes) -> bool:
    """Whether a client's frame was accepted; then all of it can be read, lies in its bytes and keeps the limits."""
    before = pa.total_allocated_bytes()
    try:
        frame = accept(data, LIMITS)
    except BadFrame:
        return False
    assert pa.total_allocated_bytes() - before <= 4 * len(data) + 4096
    assert 0 < frame.count <= 4096
    rows = frame.rows
    assert len(rows.payload) == frame.count
    for payload in rows.payload:
        assert payload in data, "a payload from outside the frame"
        assert len(payload) <= LIMITS.payload_bytes_max
    for name in ("key", "headers", "idempotency_key", "fairness_key"):
        column = getattr(rows, name)
        assert column is None or len(column) == frame.count
    for row in range(frame.count):
        assert -(2**31) <= frame.number("priority", row) < 2**31
        due, expires = frame.number("deliver_at", row), frame.number("expires_at", row)
        assert 0 <= due <= TIME_MS_MAX
        assert expires == 0 or due < expires <= TIME_MS_MAX
    frame.stamp(0, 1, NOW)
    again = unpack(pack(frame))
    assert again.rows.payload == rows.payload
    assert [again.rows.extras(row) for row in range(frame.count)] == [rows.extras(row) for row in range(frame.count)]
    return True


def flips(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        yield bytes(broken)


@pytest.mark.parametrize("name", ["one", "some", "all"])
def test_no_flipped_bit_goes_unseen(name: str) -> None:
    for good, decoder, error in ((stored(ROWS[name]), unpack, Corrupt), (sent(ROWS[name]), accept_all, BadFrame)):
        for broken in flips(good):
            with pytest.raises(error):
                decoder(broken)


@pytest.mark.parametrize("name", ["one", "some", "all"])
def test_no_flipped_bit_with_a_right_checksum_does_harm(name: str) -> None:
    good = sent(ROWS[name])
    assert is_refused_or_harmless(good)
    taken = [is_refused_or_harmless(honest(broken)) for broken in flips(good)]
    assert any(taken), "else checksums are not put right and nothing is tested"
    assert not all(taken)


@pytest.mark.parametrize("name", ROWS)
def test_no_cut_goes_unseen(name: str) -> None:
    ours, theirs = stored(ROWS[name]), sent(ROWS[name])
    for length in range(len(ours)):
        with pytest.raises(Corrupt):
            unpack(ours[:length])
    for length in range(len(theirs)):
        with pytest.raises(BadFrame):
            accept(theirs[:length], LIMITS)
        is_refused_or_harmless(honest(theirs[:length]))


def accept_all(data: bytes) -> Frame:
    return accept(data, LIMITS)


def mutant(chance: random.Random, corpus: list[bytes]) -> bytes:
    """One of a corpus, changed in some places."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:  # a number where numbers are
                at &= ~3
                data[at : at + 4] = struct.pack("<i", chance.choice(NUMBERS))
            case 2:
                at &= ~7
                data[at : at + 8] = struct.pack("<q", chance.choice(NUMBERS))
            case 3:  # a piece of another one
                other = chance.choice(corpus)
                start = chance.randrange(len(other))
                piece = other[start : start + chance.randrange(1, 64)]
                data[at : at + chance.choice((0, len(piece)))] = piece
            case 4:
                del data[at : at + chance.randrange(1, 32)]
            case 5:
                data[at:at] = chance.randbytes(chance.randrange(1, 16))
        if not data:
            break
    return bytes(data)


NUMBERS = (-(2**31), -8, -1, 0, 1, 2, 3, 4, 7, 8, 12, 16, 64, 100, 255, 4095, 4096, 65_536, 2**24, 2**30, 2**31 - 1)


def for_a_while(share: float, attack: Callable[[random.Random], None]) -> None:
    print(f"MQUEUE_FUZZ_SEED={SEED}")
    chance = random.Random(SEED)
    until = time.monotonic() + SECONDS * share
    runs = 0
    while time.monotonic() < until:
        for _ in range(50):
            attack(chance)
        runs += 50
    print(f"{runs} runs in {SECONDS * share:.1f} s")
    assert runs


def test_mutants_of_a_client_s_frames_do_no_harm() -> None:
    corpus = [sent(rows) for rows in ROWS.values()]
    for_a_while(0.4, lambda chance: is_refused_or_harmless(honest(mutant(chance, corpus))) and None)


def test_mutants_of_raw_bytes_do_no_harm() -> None:
    corpus = [data for rows in ROWS.values() for data in (sent(rows), stored(rows))]

    def attack(chance: random.Random) -> None:
        data = mutant(chance, corpus)
        is_refused_or_harmless(data)
        for decoder in (unpack, head_of):
            try:
                decoder(data)
            except Corrupt:
                continue
            # What is left whole may be followed by anything.
            assert decoder is head_of or any(data.startswith(good[:-8]) for good in corpus)

    for_a_while(0.1, attack)


EVENTS = [
    TopicMade(1, 3, "default", "orders", Settings()),
    Leased(1, 3, "g", b"t" * 16, 9, "c", ((0, 5, 8, 0b111, 1, 50, 4), (1, 0, 4096, 1 << 4095, 2, 50, 5))),
    Settled(2, 3, "g", b"t" * 16, "ack", ((0, 5, 8, 0b101),)),
    Voided(2, 3, "expired", ((0, 5, 8, 0b101, 50, 1),)),
]
POINT = TopicPoint(
    1,
    3,
    "default",
    "orders",
    1,
    Settings(),
    (PartitionPoint(9, 0, 9, 0, 0, ((0, 1 << 4000),), (), ((5, NOW),)),),
    (GroupPoint("g", 1, (0,) * 7, (ReaderPoint(0, ((50, 1, 2),), (Run(0, 1, 2, 1, 1, 50, 1, 0),)),)),),
    ((b"k" * 16, Claim(1, 2, 0, 1, 50, 1, b"d" * 16)),),
    (LeasePoint(b"t" * 16, 3, "g", "c", 1, (Run(0, 1, 4, 5, 1, 50, 1, 9, Failure(1, 2, "e", "c")),)),),
    (Settled(2, 3, "g", b"t" * 16, "ack", ((0, 5, 8, 0b101),)),),
)


@pytest.mark.parametrize(
    ("good", "decode", "encode"),
    [
        (journal.encode(EVENTS), journal.decode, journal.encode),  # type: ignore[arg-type]
        (points.encode(POINT), points.decode, points.encode),
    ],
    ids=["journal", "points"],
)
def test_mutants_of_events_and_checkpoints_do_no_harm(good: bytes, decode: Any, encode: Any) -> None:
    """They lie behind a checksum, so a value may have changed; but it is a value of its type, and can be written."""

    def attack(chance: random.Random) -> None:
        data = mutant(chance, [good])
        try:
            written = encode(decode(data))
        except Corrupt:
            return
        assert encode(decode(written)) == written

    for_a_while(0.1, attack)
    for broken in flips(good):
        try:
            decode(broken)
        except Corrupt:
            continue
    for length in range(len(good)):
        with pytest.raises(Corrupt):
            decode(good[:length])


def message(batch: pa.RecordBatch, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()  # the schema
    return bytes(reader.read_next_message().serialize())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_bombs_are_refused_before_they_are_looked_into(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"payload": pa.array([bytes(4096)] * 1024, pa.binary())})
    plain, bomb = message(batch, None), message(batch, compression)
    assert accept(with_body(plain, 1024), LIMITS).count == 1024
    assert len(plain) > 100 * len(bomb)
    monkeypatch.setattr(pa.ipc, "read_record_batch", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(BadFrame, match="compressed"):
        accept(with_body(bomb, 1024), LIMITS)


@pytest.mark.parametrize("offsets", [(0, 6), (0, 2**30), (-1, 5), (5, 0), (0, -1), (2**31 - 1, 2**31 - 1)])
def test_offsets_outside_are_refused(offsets: tuple[int, int]) -> None:
    body = bytearray(sent(ROWS["one"])[HEAD_LENGTH_MIN:])
    struct.pack_into("<ii", body, 160, *offsets)
    with pytest.raises(BadFrame, match="does not hold its columns"):
        accept(with_body(bytes(body)), LIMITS)


@pytest.mark.parametrize(("start", "length"), [(8, 9), (0, 8), (2**40, 5), (-8, 5), (8, -5), (4, 5), (8, 2**62)])
def test_buffers_outside_are_refused(start: int, length: int) -> None:
    body = bytearray(sent(ROWS["one"])[HEAD_LENGTH_MIN:])
    struct.pack_into("<qq", body, 120, start, length)
    with pytest.raises(BadFrame, match="a buffer of"):
        accept(with_body(bytes(body)), LIMITS)


def test_bad_text_is_refused() -> None:
    good = sent(Rows([b"a"], idempotency_key=["abc"]))
    body = good[HEAD_LENGTH_MIN:].replace(b"abc", b"\xff\xfe\xfd")
    with pytest.raises(BadFrame, match="UTF"):
        accept(with_body(body, columns=1 | 1 << 8), LIMITS)


@pytest.mark.parametrize("columns", [0, 1 << 1, 1 | 1 << 5, 1 | 1 << 10, 1 | 1 << 11, 1 | 1 << 31])
def test_unknown_columns_are_refused(columns: int) -> None:
    body = sent(ROWS["one"])[HEAD_LENGTH_MIN:]
    with pytest.raises(BadFrame, match="columns"):
        accept(with_body(body, columns=columns), LIMITS)
