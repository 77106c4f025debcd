"""What a client may pack: each rule is broken once, and the answer names the value and the limit."""

from __future__ import annotations

import struct
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from mqueue.model.errors import BadFrame
from mqueue.model.limits import FRAME_BYTES_MAX, TIME_MS_MAX, Limits
from mqueue.wire.accept import accept
from mqueue.wire.frame import Frame
from mqueue.wire.head import encode
from mqueue.wire.pack import pack
from mqueue.wire.rows import Rows

LIMITS = Limits(payload_bytes_max=100, key_bytes_max=10, headers_bytes_max=20)


def packed(*payloads: bytes, **columns: Any) -> bytes:
    return pack(Frame.of_rows(0, 0, Rows(list(payloads) or [b"a", b"b"], **columns)))


def packed_arrow(**columns: pa.Array) -> bytes:
    arrays = {"payload": pa.array([b"a", b"b"], pa.binary()), **columns}
    return pack(Frame.of_batch(0, 0, pa.RecordBatch.from_pydict(arrays), 50, 0, 0))


def stamped() -> bytes:
    frame = Frame.of_rows(0, 0, Rows([b"a"]))
    frame.stamp(5, 7, 9)
    return pack(frame)


def test_what_fits_is_accepted() -> None:
    data = packed(
        b"x" * 100,
        b"",
        key=[b"k" * 10, None],
        headers=[{"n" * 10: "v" * 10}, None],
        priority=[-(2**31), 2**31 - 1],
        deliver_at=[0, TIME_MS_MAX - 1],
        expires_at=[0, TIME_MS_MAX],
        idempotency_key=["é" * 1024, None],
        fairness_key=[None, "f" * 249],
    )
    frame = accept(data, LIMITS)
    assert frame.count == 2
    assert frame.rows.payload == [b"x" * 100, b""]
    assert frame.ids == []
    assert frame.number("priority", 1) == 2**31 - 1


def test_the_size_is_measured_not_believed() -> None:
    frame = Frame.of_rows(0, 0, Rows([b"x" * 100]))
    frame.size = 1
    assert accept(pack(frame), LIMITS).size > 100


WRONG = {
    "payload of 101 bytes; 100 are": packed(b"a", b"x" * 101),
    "key of 11 bytes; 10 are": packed(key=[None, b"k" * 11]),
    "headers of 21 bytes; 20 are": packed(headers=[{"a": "b"}, {"n" * 10: "v" * 5, "m": "w" * 5}]),
    "fairness key name 'a b'": packed(fairness_key=["a b", None]),
    "idempotency keys of 0 to 1": packed(idempotency_key=["", "a"]),
    "idempotency keys of 1 to 1025": packed(idempotency_key=["a", "é" * 1025]),
    "deliver_at -1 is outside": packed(deliver_at=-1),
    f"expires_at {TIME_MS_MAX + 1} is outside": packed(expires_at=[0, TIME_MS_MAX + 1]),
    "an expires_at is not after": packed(deliver_at=5, expires_at=[6, 5]),
    "1 values of payload are null": packed_arrow(payload=pa.array([b"a", None], pa.binary())),
    "a header has no name or no value": packed_arrow(
        headers=pa.array(
            [[{"key": "a", "value": None}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
    ),
    "1 stamps from offset 5": stamped(),
    "176 bytes in 177 bytes|264 bytes in 265 bytes": packed(b"a") + b"\0",
    "bytes; 8388608 are allowed": bytes(FRAME_BYTES_MAX + 1),
    "0 bytes, and a head has 88": b"",
    "begins with": b"\0" * 88,
}


@pytest.mark.parametrize("why", WRONG)
def test_what_breaks_a_rule_is_refused(why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        accept(WRONG[why], LIMITS)


def test_bytes_in_no_row_are_refused() -> None:
    """A client could store for nothing what no row shows. The message: see `mqueue.wire.pack`."""
    body = bytearray(packed(b"a")[88:])
    struct.pack_into("<q", body, 40, 16 + 5_000)  # of all buffers
    struct.pack_into("<q", body, 128, 8 + 5_000)  # of the payloads
    body += bytes(5_000)
    frame = Frame.of_rows(0, 0, Rows([b"a"]))
    with pytest.raises(BadFrame, match="bytes of the body are in no row; 64 for each"):
        accept(encode(frame, 1, len(body), google_crc32c.value(bytes(body))) + body, LIMITS)
