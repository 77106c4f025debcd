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
PUBLISH_TOPICS_MAX = 256
"""In a cluster each that is new is looked up, and made; others wait meanwhile."""
REDRIVE_STEP_MESSAGES = 1_000
"""A redrive looks at so many of the dead at a time; others wait meanwhile."""
REDRIVE_RATE_MAX = 1_000_000
VISIBILITY_MS_MAX = 12 * 3600 * 1000
MEMBER_HEARTBEAT_MS = 3_000
"""How often a member of an assigned group is to be heard of."""
MEMBER_SESSION_MS = 10_000
"""A member that was not heard of for so long is dead: its partitions go to others."""
REBALANCE_PATIENCE_MS = 30_000
"""For so long a partition that is to move waits until what is leased of it is settled. Then those leases end."""
REBALANCES_KEPT = 64
"""So many rebalances of a group are remembered."""
LABELS_MAX = 256
LABEL_NAME_LENGTH_MAX = 256
LABEL_LENGTH_MAX = 2048
"""What is noted with a topic is kept in memory, and in every checkpoint."""
TICK_MS = 10
"""The grain of delays and backoffs: what is due is due at a multiple of this, rounded up."""

LOOK_AHEAD_MAX = 200_000
"""Where fairness keys take turns, so many messages of a partition are looked at before, by each group."""
LOOK_AHEAD_RUNS_MAX = 100_000
"""The same in runs, wherever messages take turns: neighbours of one key are one, others one each."""
LISTED_DUES_MAX = 2_000_000
"""So many due times of what is scheduled far ahead are remembered after a list of it; each takes 12 bytes."""
FAIR_WEIGHTS_MAX = 1_000
DIVERTED_KEYS_MAX = 100_000
"""So many keys of a group are diverted at most; what fails beyond that is retried."""

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

SCHEDULE_EVERY_MS_MIN = 1_000
"""A schedule repeats no more often than this."""
SCHEDULE_BYTES_MAX = 64 * KIB
"""Payload of a schedule: it is kept in memory, and in every checkpoint of its topic."""
SCHEDULES_PAGE_MAX = 250
SCHEDULE_GRACE_MS = 60_000
"""So late an occurrence of a schedule may be before it counts as missed."""
SCHEDULE_MISSED_MAX = 100
"""So many occurrences that were missed are made up for at most, the last ones."""
SCHEDULE_AT_ONCE_MAX = 1_000
"""So many messages of schedules are published at one go, about: others have their turn then."""
SCHEDULE_AGAIN_MS = 1_000
"""What cannot be published now is tried again after this."""

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
    members_max: int = 1_000
    cursors_max: int = 1_000
    transaction_bytes_max: int = 1024 * MIB
    transaction_parts_max: int = 10_000
    transactions_open_max: int = 1_000
    transactions_max: int = 100_000
    schedules_max: int = 1_000


assert 1 << ID_SEQUENCE_BITS >= FRAME_ROWS_MAX, "the ids of a frame must fit one millisecond"
assert Limits().payload_bytes_max < FRAME_BYTES_MAX, "one message must fit one frame"
assert Limits().call_bytes_max >= Limits().payload_bytes_max
assert Limits().transaction_bytes_max >= Limits().call_bytes_max, "one call must fit one transaction"
assert 3 * MEMBER_HEARTBEAT_MS < MEMBER_SESSION_MS, "a member may miss two heartbeats"
assert COMMIT_STEP_BYTES > FRAME_BYTES_MAX, "a step must get on"
