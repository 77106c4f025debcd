"""What the tests of the archive share: a topic with all that messages can have, and the lake beside the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqueue
from mqueue.lake import open_lake
from mqueue.pipeline.jobs.archive import ArchiveSettings

COLUMNS = ["partition", "offset", "id", "value", "key", "headers", "priority", "deliver_at", "expires_at", "timestamp"]


def fill(client: mqueue.Client, topic: str, count: int, first: int = 0) -> None:
    """Messages with and without each thing that one can have; keys and payloads that are no text."""
    drafts = [
        mqueue.Draft(
            b"\xff\x00" + str(n).encode() if n % 3 else b"",
            key=f"k{n % 5}" if n % 2 else None,
            headers={"n": str(n), "empty": ""} if n % 4 else {},
            priority=n % 3,
            ttl="30d" if n % 7 == 0 else None,
            delay="1h" if n % 11 == 0 else None,
        )
        for n in range(first, first + count)
    ]
    client.publish_many(topic, drafts)


def settings(client_url: str, lake: Path, **more: Any) -> ArchiveSettings:
    return ArchiveSettings(url=client_url, lake=str(lake), progress="none", **more)


def in_log(client: mqueue.Client, topic: str) -> list[tuple[Any, ...]]:
    """What the log has, as a lake shows it."""
    found = []
    for m in client.scan(topic):
        headers = [{"key": key, "value": _bytes(value)} for key, value in m.headers.items()] or None
        due = m.deliver_at if m.deliver_at != m.published_at else None
        times = (due, m.expires_at, m.published_at)
        found.append((m.partition, m.offset, m.id, m.payload, m.key, headers, m.priority, *times))
    return sorted(found, key=lambda row: row[:2])


def in_lake(lake: Path, topic: str, format: str = "delta") -> list[tuple[Any, ...]]:
    opened = open_lake(str(lake), format)
    rows = [row for batch in opened.scan("default", topic, columns=COLUMNS) for row in batch.to_pylist()]
    return [tuple(row[name] or None if name == "headers" else row[name] for name in COLUMNS) for row in rows]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
