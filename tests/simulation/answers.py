"""What the broker answered, and what follows from it: how much of the log has to survive whatever happens next.

An answer is a promise. It is held against the commits that went to the disk (`Record`), not against what the broker
believes: an answer whose commit was never written is found at once, one whose commit was not synced by the next crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqueue import Error, Message
from mqueue.model.events import Trimmed
from mqueue.model.message import Receipt
from tests.simulation.record import Record, Written

_UNSAFE = ("receive", "take", "pass_time", "rest", "keep_up", "save_points", "reopen")
"""Calls after which nothing new is promised to survive a power cut: a lease is only written, upkeep answers nobody."""


_SEVERAL = ("keep_up", "save_points", "reopen")
"""What may write more than one commit: it is more than one call."""


class Answers:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.promised = 0
        """So many commits have to survive a power cut."""
        self.handed_out: bytes = b""
        """The highest token that anybody was given."""
        self.acked: dict[tuple[str, str, int], int] = {}
        """(topic, group, id) of what was acked, and in which commit."""
        self.violations: list[str] = []
        self._before = 0
        self._safe = True

    def begin(self) -> None:
        """A call is about to be made."""
        self._before = len(self.record)
        self._safe = True

    def ok(self, name: str) -> None:
        """It was answered. What it wrote is promised, and with it everything that was written before."""
        wrote = len(self.record) - self._before
        if wrote > 1 and name not in _SEVERAL and not all(map(_of_time, self.record.commits[self._before : -1])):
            self.violations.append(f"one {name} is {wrote} commits: a crash could tear it apart")
        if name not in _UNSAFE and self._safe and wrote:
            self.promised = len(self.record)

    def refused(self, error: Error) -> None:
        if error.applied is None:
            self.violations.append(f"on a disk that works a call ended without an answer: {error!r}")

    def published(self, receipts: Sequence[Receipt], safe: bool) -> None:
        self._safe = safe
        for receipt in receipts if safe else ():
            number = self.record.ids.get(receipt.id)
            if number is None:
                self.violations.append(f"publish of {receipt.id} was answered and not written")
            else:
                self.promised = max(self.promised, number)

    def received(self, group: str, messages: Sequence[Message]) -> None:
        token = messages[0]._lease.token
        if token <= self.handed_out:
            self.violations.append(f"token {token.hex()} was given after {self.handed_out.hex()}")
        self.handed_out = max(self.handed_out, token)
        if token not in self.record.leased:
            self.violations.append(f"lease {token.hex()} was handed out before it was written")
        for message in messages:
            if self.record.ids.get(message.id, 0) in self.record.unsafe:
                self.violations.append(f"message {message.id} was handed out while a power cut could still take it")

    def settled(self, verb: str, group: str, messages: Sequence[Message], lost: Sequence[int]) -> None:
        done = [message for message in messages if message.id not in lost]
        if verb == "extend" or not done:
            return
        token = done[0]._lease.token
        verbs = {"nack": ("nack", "dead"), "reject": ("reject", "dead")}.get(verb, (verb,))
        if not any((token, one) in self.record.settled for one in verbs):
            self.violations.append(f"{verb} with {token.hex()} was answered and not written")


def _of_time(commit: Written) -> bool:
    """Whether a commit holds what was due before the call: retention, which ends a batch with its point."""
    return not commit.entries or any(isinstance(event, Trimmed) for event in commit.events)
