"""What is looked at while all of it goes on: whether anything is held twice or comes back after its ack, and what nodes
use of their machine. Cheap, and never wrong about what it reports."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from mqueue.testing import NodeServer
from tests.cluster.faults.checks import acked_again, falling, held_twice
from tests.cluster.faults.history import Final, History, Receive, Settle, now

LONGEST_CALL_SECONDS = 35.0
"""No call of a load takes longer: whatever was begun before that has been written down."""
WINDOW_SECONDS = 120.0
"""Longer than anything is held."""
CHECKS = (held_twice, falling, acked_again)


def wrong_lately(history: History) -> list[str]:
    """Of what was received within a window that ended so long ago that all is known of it."""
    calls = history.calls
    until = now() - LONGEST_CALL_SECONDS
    since = until - WINDOW_SECONDS
    received = [call for call in calls if isinstance(call, Receive) and since < call.begun and call.ended < until]
    settled = [call for call in calls if isinstance(call, Settle) and since < call.begun]
    recent = History(list(history.topics.values()), [*received, *settled])
    return [sentence for check in CHECKS for sentence in check(recent, Final())]


class Use(Struct):
    """What a process uses; of several looks the most."""

    memory_mb: float = 0.0
    files: int = 0
    threads: int = 0

    def most(self, other: Use) -> Use:
        return Use(max(self.memory_mb, other.memory_mb), max(self.files, other.files), max(self.threads, other.threads))


LIMITS = Use(memory_mb=600, files=600, threads=120)


def use_of(node: NodeServer) -> Use:
    """Nothing, if it does not run just now."""
    place = Path(f"/proc/{node.pid}")
    try:
        lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        files = len(list((place / "fd").iterdir()))
        return Use(int(lines["VmRSS"].split()[0]) / 1024, files, int(lines["Threads"]))
    except (OSError, KeyError):
        return Use()


def too_much(use: Use) -> list[str]:
    return [
        f"a node has used {getattr(use, name):g} {name}; {getattr(LIMITS, name):g} are allowed"
        for name in Use.__struct_fields__
        if getattr(use, name) > getattr(LIMITS, name)
    ]
