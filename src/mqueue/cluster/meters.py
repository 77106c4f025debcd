"""What a node counts at one PostgreSQL server, in plain numbers: metrics tell of it, nothing goes by it.

Each number is changed by one thread at a time and read by any: who reads may see one a moment earlier than another.
Does not know how numbers are named outside.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Breaker = Literal["closed", "half_open", "open"]


class Meters(Struct):
    """Counts go up from the start of the node on; what says `now` goes up and down."""

    appends: int = 0
    """Statements that appended what was published here, those that failed as well."""
    append_rows: int = 0
    """Messages that they appended."""
    append_seconds: float = 0.0
    append_failures: int = 0
    in_doubt: int = 0
    """Of those: sent, and not answered. What became of them was read back."""
    in_doubt_left: int = 0
    """Of those: nobody could tell in time."""
    commits: int = 0
    """Statements that wrote down what is owned here, those that failed as well."""
    commit_rows: int = 0
    """Rows of journals and messages that they wrote."""
    commit_seconds: float = 0.0
    commit_failures: int = 0
    takeovers: int = 0
    """Virtual shards that were loaded here."""
    takeover_seconds: float = 0.0
    doubts: int = 0
    """How often everything owned here was forgotten, because a session had ended or no beat got through."""
    refused: int = 0
    """Calls that were refused because too much waits already."""
    buffered_messages: int = 0
    """Now: messages that wait here to be written, in memory or in the log of the node."""
    buffered_bytes: int = 0
    """Now: what they weigh."""
    breaker: Breaker = "closed"
    """Now."""
    breaker_opened: int = 0
    """How often it opened."""
    flushed: int = 0
    """Messages of the log of this node, or of one that is gone, that reached the server."""
    flush_failures: int = 0
    flush_dropped: int = 0
    """Messages of such a log whose topics were deleted before they reached the server."""
    flush_lag_ms: int = 0
    """Now: the age of the oldest message in the log of this node that has not reached the server."""
    beaten_at: float = 0.0
    """When a look at the server last went well, by `time.monotonic`; 0: never."""
