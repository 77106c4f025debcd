"""Every limit in one place, with the relations they must keep. Reaching one is an answer, not a surprise."""

from __future__ import annotations

from msgspec import Struct

KIB = 1024
MIB = 1024 * KIB

FRAME_ROWS_MAX = 4096
"""Rows in a frame, and the longest run: masks stay small integers and ids of a frame fit one millisecond."""
FRAME_BYTES_MAX = 8 * MIB

NAME_LENGTH_MAX = 249
PRIORITIES_ALIVE_MAX = 256
PARTITIONS_MAX = 1024
ERROR_TEXT_MAX = 4 * KIB
IDEMPOTENCY_KEY_LENGTH_MAX = 1024
WAIT_MS_MAX = 60_000
RECEIVE_LIMIT_MAX = 10_000
ANSWER_BYTES_MAX = 32 * MIB
"""About how many bytes of messages one answer carries to a consumer elsewhere."""
ANSWER_TEXT_BYTES_MAX = 8 * ANSWER_BYTES_MAX
"""What a node takes of another as one answer: one byte of a message becomes six of JSON at worst, and what is told of
each message comes on top."""
RECEIVE_TOPICS_MAX = 256
REDRIVE_STEP_MESSAGES = 1_000
"""A redrive looks at so many of the dead at a time; others wait meanwhile."""
REDRIVE_RATE_MAX = 1_000_000
VISIBILITY_MS_MAX = 12 * 3600 * 1000
TICK_MS = 10
"""The grain of delays and backoffs: what is due is due at a multiple of this, rounded up."""

ID_SEQUENCE_BITS = 12
ID_NODE_BITS = 10
ID_AHEAD_MS_MAX = 60_000
"""How far the id clock may run ahead of the wall clock under load."""

SETTLED_MEMORY_MS = 600_000
"""For how long a settle call that is repeated gets the answer of the first one."""
SETTLED_MEMORY_CALLS = 65_536
SETTLED_MEMORY_RECEIPTS = 262_144

TRANSACTION_TOPICS_MAX = 100
TRANSACTION_MEMORY_MS = 7 * 24 * 3600 * 1000
"""For how long it is remembered how a transaction ended."""
COMMIT_STEP_MESSAGES = 10_000
COMMIT_STEP_BYTES = 32 * MIB
"""A transaction that is no larger than this becomes visible at once; a larger one in steps."""

TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class Limits(Struct, frozen=True):
    """What one publish call may carry. Settings of a broker; checked before anything is stored."""

    payload_bytes_max: int = MIB
    key_bytes_max: int = KIB
    headers_bytes_max: int = 64 * KIB
    call_messages_max: int = 10_000
    call_bytes_max: int = 32 * MIB
    topics_max: int = 100_000
    groups_max: int = 10_000
    cursors_max: int = 1_000
    transaction_bytes_max: int = 1024 * MIB
    transaction_parts_max: int = 10_000
    transactions_open_max: int = 1_000
    transactions_max: int = 100_000


assert 1 << ID_SEQUENCE_BITS >= FRAME_ROWS_MAX, "the ids of a frame must fit one millisecond"
assert Limits().payload_bytes_max < FRAME_BYTES_MAX, "one message must fit one frame"
assert Limits().call_bytes_max >= Limits().payload_bytes_max
assert Limits().transaction_bytes_max >= Limits().call_bytes_max, "one call must fit one transaction"
assert COMMIT_STEP_BYTES > FRAME_BYTES_MAX, "a step must get on"
