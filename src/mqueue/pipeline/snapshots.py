"""Snapshots: topics as they were at a moment, under a name. A snapshot is a page beside the lake that has the messages.

It names offsets, not files: the lake only grows, and `compact` keeps every message, so what lies below these offsets is
the same in every later version of it. The ledger says whether it still is.

    {lake}/_snapshots/NAME.json
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Struct

from mqueue.lake.place import Place, make_directories, sync
from mqueue.model.errors import Conflict, Corrupt, NotFound
from mqueue.model.names import check_name
from mqueue.pipeline.book import Mark

FOLDER = "_snapshots"
_SUFFIX = ".json"


class TopicKept(Struct, frozen=True):
    """How a topic was set up, and which of its messages belong to the snapshot."""

    settings: dict[str, Any]
    partitions: dict[int, Mark]


class Snapshot(Struct, frozen=True):
    """`taken_at` is RFC 3339; `ledger` names the hash of the marks."""

    name: str
    namespace: str
    taken_at: str
    lake_version: int
    ledger: str
    topics: dict[str, TopicKept]

    @property
    def messages(self) -> int:
        return sum(mark.rows or 0 for topic in self.topics.values() for mark in topic.partitions.values())


def save(place: Place, snapshot: Snapshot) -> None:
    """Once and for all: a name is used once."""
    name = _file(snapshot.name)
    if place.size(name) is not None:
        raise _taken(snapshot.name, place)
    content = msgspec.json.format(msgspec.json.encode(snapshot), indent=2)
    if place.local:
        _link(place.path(name), content, lambda: _taken(snapshot.name, place))
    else:
        with place.sink(name) as file:
            file.write(content)


def load(place: Place, name: str) -> Snapshot:
    file = _file(name)
    if place.size(file) is None:
        known = ", ".join(names(place)) or "none"
        raise NotFound(f"snapshot {name!r} is not there in the lake {place}; there are: {known:.400}")
    try:
        with place.source(file) as opened:
            return msgspec.json.decode(opened.read(), type=Snapshot)
    except msgspec.DecodeError as problem:
        raise Corrupt(f"snapshot {name!r} in the lake {place} cannot be read: {problem}") from problem


def names(place: Place) -> list[str]:
    found = (path.removeprefix(f"{FOLDER}/") for path, _, _ in place.walk(FOLDER))
    return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX) and "/" not in name)


def _file(name: str) -> str:
    return f"{FOLDER}/{check_name(name, 'snapshot')}{_SUFFIX}"


def _taken(name: str, place: Place) -> Conflict:
    return Conflict(f"snapshot {name!r} is there already in the lake {place}: a snapshot never changes")


def _link(path: str, content: bytes, taken: Any) -> None:
    """Whole and synced before it has its name, and never in the place of another."""
    folder = os.path.dirname(path)
    make_directories(folder)
    draft = f"{path}.{os.getpid()}.draft"
    with open(draft, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        raise taken() from None
    finally:
        os.unlink(draft)
    sync(folder)
