"""The dead sorted by what they died of: errors that say the same are one entry, however many messages have them.

Fed message by message by a walk over a dead-letter queue. Keeps so many different errors and counts the rest; it does
not know where the messages lie.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mqueue.broker.message import Dead
from mqueue.policy.fingerprint import fingerprint, is_transient, normalise

ERRORS_MAX = 1000
"""Different errors that are told apart."""
IDS_MAX = 5
OTHER = "other"


class DeadErrors(Struct):
    """All messages that died of the same. `ids`: the first few of them. Those beyond what is told apart have the
    fingerprint `other`."""

    fingerprint: str
    reason: str
    error: str
    """Without what is only true of one message; see `mqueue.policy.fingerprint`."""
    transient: bool
    """Whether it may well work next time."""
    count: int
    first_at: datetime
    last_at: datetime
    groups: list[str]
    ids: list[int]


class Sorted:
    """What was seen so far. As a filter it lets everything through that it counts."""

    def __init__(self) -> None:
        self._found: dict[str, DeadErrors] = {}

    def __call__(self, message: Dead) -> bool:
        reason, error, group = message.reason, message.error, message.group
        mark = fingerprint(reason, error)
        if mark not in self._found and len(self._found) >= ERRORS_MAX:
            mark, reason, error = OTHER, "", ""
        at = message.published_at
        entry = self._found.get(mark)
        if entry is None:
            shown = normalise(error) if mark != OTHER else "errors beyond those that are told apart"
            entry = DeadErrors(mark, reason, shown, is_transient(reason, error), 0, at, at, [], [])
            self._found[mark] = entry
        entry.count += 1
        entry.first_at, entry.last_at = min(entry.first_at, at), max(entry.last_at, at)
        if group not in entry.groups and len(entry.groups) < IDS_MAX:
            entry.groups.append(group)
        if len(entry.ids) < IDS_MAX:
            entry.ids.append(message.id)
        return True

    @property
    def entries(self) -> list[DeadErrors]:
        """Those with most messages first."""
        return sorted(self._found.values(), key=lambda entry: (-entry.count, entry.fingerprint))
