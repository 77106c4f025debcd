"""The bytes themselves. If one of these fails, the format has changed: old data must still be read, see `head`."""

from __future__ import annotations

import struct

import google_crc32c
import pytest

from mqueue.model.errors import Corrupt
from mqueue.model.events import Leased, Settled
from mqueue.wire import journal
from mqueue.wire.frame import Frame
from mqueue.wire.head import encode
from mqueue.wire.pack import head_of, pack, unpack
from mqueue.wire.rows import Numbers, Rows

NOW = 1_767_225_600_000


def tiny() -> Frame:
    frame = Frame.of_rows(3, 2, Rows([b"hello"], priority=25))
    frame.stamp(40, 7_000, NOW)
    return frame


HEAD = (
    "4d514631 a95387eb 0100 0100 58000000 b0000000 4d5f0a45"  # magic, crc, version, stamps, lengths, crc
    "01000000 01000000 45000000 03000000 02000000 19000000"  # columns, count, size, topic, partition, priority
    "2800000000000000 581b000000000000 00a8da769b010000"  # base, id, at
    "0000000000000000 0000000000000000"  # deliver_at, expires_at
)
BODY = (
    "ffffffff98000000 1400000000000000 0c00160006000500 08000c000c000000 0003040018000000 1000000000000000"
    "00000a0018000c00 040008000a000000 4c00000010000000 0100000000000000 0000000003000000 0000000000000000"
    "0000000000000000 0000000000000000 0800000000000000 0800000000000000 0500000000000000 0000000001000000"
    "0100000000000000 0000000000000000 0000000005000000 68656c6c6f000000"
)


def test_a_tiny_frame() -> None:
    assert pack(tiny()).hex() == "".join((HEAD + BODY).split())


@pytest.mark.parametrize(
    ("deliver_at", "expires_at", "told"),
    [
        ([5, 3, 4], 0, 3),
        ([5, 3, 4], 9, 3),
        ([5, 3, 4], [0, 8, 9], 3),
        ([5, 3, 4], [0, 2, 9], 2),
        (6, [0, 8, 9], 6),
        ([5, 0, 4], 0, 0),
        ([5, 0, 4], [0, 2, 9], 0),
    ],
)
def test_a_head_tells_before_when_nothing_happens(deliver_at: Numbers, expires_at: Numbers, told: int) -> None:
    rows = Rows([b"a", b"b", b"c"], deliver_at=deliver_at, expires_at=expires_at)
    frame = Frame.of_rows(1, 0, rows)
    frame.stamp(0, 1, 1)
    data = pack(frame)
    assert head_of(data).nothing_before == told
    older = _without_times(data)
    assert head_of(older).nothing_before == 0
    assert unpack(older).stretches(0) == unpack(data).stretches(0) == frame.stretches(0)


def _without_times(data: bytes) -> bytes:
    """As frames were packed before heads told times that are columns."""
    columns = head_of(data).columns
    times = b"".join(bytes(8) if columns & bit else data[at : at + 8] for bit, at in ((1 << 4, 72), (1 << 6, 80)))
    rest = data[8:72] + times
    return data[:4] + struct.pack("<I", google_crc32c.value(rest)) + rest + data[88:]


def test_events() -> None:
    leased = Leased(1, 3, "g", b"t", 9, "c", ((0, 5, 8, 0b111, 1, 50, 4),))
    settled = Settled(2, 3, "g", b"t", "ack", ((0, 5, 8, 0b101),))
    assert journal.encode([leased, settled]).hex(" ") == (
        "92 98 07 01 03 a1 67 c4 01 74 09 a1 63 91 97 00 05 08 c0 01 32 04"
        " 9a 08 02 03 a1 67 c4 01 74 a3 61 63 6b 91 94 00 05 08 c4 01 05 00 a0 a0"
    )


def test_an_older_event_has_fewer_fields() -> None:
    old = bytes.fromhex("91 97 08 02 03 a1 67 c4 01 74 a3 61 63 6b 91 94 00 05 08 c4 01 05")
    assert journal.decode(old) == [Settled(2, 3, "g", b"t", "ack", ((0, 5, 8, 0b101),))]


@pytest.mark.parametrize(("count", "most"), [(1, 360), (64, 64 * 109), (1000, 1000 * 105)])
def test_messages_of_100_bytes_are_lean(count: int, most: int) -> None:
    frame = Frame.of_rows(1, 0, Rows([b"x" * 100] * count))
    frame.stamp(0, 1, NOW)
    assert len(pack(frame)) <= most


def test_what_is_wrong_is_named() -> None:
    good = pack(tiny())
    wrong = {
        "87 bytes, and a head has 88": good[:87],
        "begins with b'XQF1'": b"X" + good[1:],
        "version 2": good[:8] + b"\2" + good[9:],
        "a head of 96 bytes for 1 stamps": good[:12] + b"\x60" + good[13:],
        "checksum of its head": good[:48] + b"\1" + good[49:],
        "checksum of its body": good[:-1] + b"\1",
        "a body of 176 bytes in 175 bytes": good[:-1],
        "no record batch of its columns": encode(tiny(), 1 << 5, 8, 0x8C28B28A) + bytes(8),
        "2 rows, and its head says 1": encode(tiny(), 1, *body_of([b"a", b"b"])) + pack_body([b"a", b"b"]),
    }
    for why, data in wrong.items():
        with pytest.raises(Corrupt, match=why):
            unpack(data)


def test_heads_are_walked_over_broken_bodies() -> None:
    data = pack(tiny()) + bytearray(pack(tiny()))[:88]
    first = head_of(data)
    assert head_of(data, first.length) == first


def pack_body(payloads: list[bytes]) -> bytes:
    return pack(Frame.of_rows(1, 0, Rows(payloads)))[88:]


def body_of(payloads: list[bytes]) -> tuple[int, int]:
    head = head_of(pack(Frame.of_rows(1, 0, Rows(payloads))))
    return head.body_length, head.body_crc


@pytest.mark.parametrize("data", [b"", b"\x90\x90", b"\xc0", b"\x91\x91\x63", b"\x91\x92\x08", b"\xdd\xff\xff\xff\xff"])
def test_garbage_is_no_journal(data: bytes) -> None:
    with pytest.raises(Corrupt, match=f"{len(data)} bytes are no list of events"):
        journal.decode(data)


def test_a_full_mask_is_not_taken_at_its_word() -> None:
    huge = bytes.fromhex("91 97 08 02 03 a1 67 c4 01 74 a3 61 63 6b 91 94 00 00 cf 0fffffffffffffff c0")
    with pytest.raises(Corrupt, match="a full mask of"):
        journal.decode(huge)
