"""What was written to the log, as the disk saw it: every commit, and what it has to be after a crash.

Written down from the bytes that went to the disk, by a reading of its own: a prefix of these commits is all that any
recovery may ever give back. Knows nothing of the writer that wrote them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from mqueue.heart.dedup import Claim, digest
from mqueue.heart.fold import Appended, fold
from mqueue.heart.heart import Heart
from mqueue.heart.state import State
from mqueue.log.segments.segment import HEADER_BYTES, start_of
from mqueue.model.events import Event, Leased, Settled
from mqueue.model.limits import SETTLED_MEMORY_MS
from mqueue.testing.disk import SimDisk
from mqueue.wire import journal
from mqueue.wire.frame import Frame
from mqueue.wire.pack import unpack
from tests.laws.snapshot import Snapshot, snapshot

_HEADER = struct.Struct("<4sIIHHQQIIQqII")
_FRAME, _EVENTS, _KEPT = 1, 2, 3


@dataclass(frozen=True)
class Written:
    """One commit. `entries`: its events and original frames, by time, as they are folded."""

    position: int
    end: int
    crc: int
    at: int
    data: bytes
    entries: tuple[Event | tuple[Frame, int], ...]
    frames: tuple[Frame, ...]

    @property
    def events(self) -> list[Event]:
        return [entry for entry in self.entries if isinstance(entry, Event)]


class Record:
    """The commits of one history of a log. A crash cuts it, and another branch goes on from there."""

    def __init__(self, commits: list[Written] | None = None) -> None:
        self.commits: list[Written] = []
        self.ends: dict[tuple[int, int], int] = {(0, 0): 0}
        """How many commits there are up to an end, by (position, crc)."""
        self.ids: dict[int, int] = {}
        """In which commit each message is, counted from 1."""
        self.settled: dict[tuple[bytes, str], int] = {}
        self.leased: dict[bytes, int] = {}
        self.unsafe: set[int] = set()
        """Commits that no sync of their segment has come after."""
        self._snapshots: dict[tuple[int, int], Snapshot] = {}
        for one in commits or ():
            self.add(one)

    def __len__(self) -> int:
        return len(self.commits)

    def cut(self, count: int) -> Record:
        """The history of a log that lost all but its first commits."""
        return Record(self.commits[:count])

    def watch(self, disk: SimDisk) -> None:
        """Take note of what is written to a disk from now on."""
        write, sync = disk.pwrite, disk.sync

        def pwrite(file: int, data: bytes, offset: int) -> None:
            name = disk._files[file][0] if file in disk._files else ""
            if start_of(name) is not None and offset >= HEADER_BYTES:
                self.add(read(bytes(data)))
                self.unsafe.add(len(self))
            write(file, data, offset)

        def sync_file(file: int) -> None:
            sync(file)
            start = start_of(disk._files[file][0])
            if start is not None:
                self.unsafe = {number for number in self.unsafe if self.commits[number - 1].position < start}

        disk.pwrite, disk.sync = pwrite, sync_file  # type: ignore[method-assign]

    def add(self, one: Written) -> None:
        number = len(self.commits) + 1
        self.commits.append(one)
        self.ends[one.end, one.crc] = number
        for frame in one.frames:
            for row in range(frame.count):
                self.ids.setdefault(frame.id_of(row), number)
        for event in one.events:
            if isinstance(event, Settled):
                self.settled[event.token, event.verb] = number
            elif isinstance(event, Leased):
                self.leased[event.token] = number

    def state(self, count: int) -> State:
        """The fold of the first commits, from the very beginning."""
        return fold(State(), (_folded(entry) for one in self.commits[:count] for entry in one.entries))

    def snapshot(self, count: int, at: int) -> Snapshot:
        """The same, at a time, to be compared."""
        found = self._snapshots.get((count, at))
        if found is None:
            found = self._snapshots[count, at] = ripe_snapshot(Heart(self.state(count)), at)
        return found

    def frames(self, count: int) -> dict[tuple[int, int], dict[int, tuple[Frame, int]]]:
        """Where each message of the first commits is: topic and partition → offset → frame and row."""
        found: dict[tuple[int, int], dict[int, tuple[Frame, int]]] = {}
        for one in self.commits[:count]:
            for frame in one.frames:
                place = found.setdefault((frame.topic, frame.partition), {})
                for row in range(frame.count):
                    place.setdefault(frame.base + row, (frame, row))
        return found


def ripe_snapshot(heart: Heart, at: int) -> Snapshot:
    """A state when everything that is due by a time has happened: when a fold does that does not matter."""
    heart.advance(at)
    for topic in heart.state.topics.values():
        topic.ripen(at)
    found = snapshot(heart.state, at)
    found["recent"] = {token: kept for token, events in found["recent"].items() if (kept := _lately(heart, events, at))}
    return found


def _lately(heart: Heart, events: list[Settled], at: int) -> list[Settled]:
    """What a repeated call can still be answered from: of a topic that is gone, or long ago, nobody is."""
    return [event for event in events if event.topic in heart.state.topics and event.at + SETTLED_MEMORY_MS >= at]


def read(data: bytes) -> Written:
    """A commit from the bytes that were written."""
    _, crc, length, _, _, position, _, _, _, _, at, count, _ = _HEADER.unpack_from(data, 0)
    assert not any(data[length:]), "one write is one commit, and zeros ahead of the next"
    data = data[:length]
    found: list[tuple[int, int, Any]] = []
    frames: list[Frame] = []
    place = _HEADER.size
    for _ in range(count):
        kind, size = data[place], struct.unpack_from("<I", data, place + 4)[0]
        body = data[place + 8 : place + 8 + size]
        place += 8 + size + -size % 8
        if kind == _EVENTS:
            found += [(event.at, len(found) + n, event) for n, event in enumerate(journal.decode(body))]
        elif kind in (_FRAME, _KEPT):
            frame = unpack(body)
            frames.append(frame)
            if kind == _FRAME:
                found += [(when, len(found) + n, (frame, n)) for n, when in enumerate(frame.at)]
    found.sort(key=lambda entry: entry[:2])
    return Written(position, position + length, crc, at, data, tuple(entry for *_, entry in found), tuple(frames))


def _folded(entry: Event | tuple[Frame, int]) -> Appended | Event:
    if isinstance(entry, Event):
        return entry
    frame, stamp = entry
    stretches = frame.stretches(stamp)
    rows = range(stretches[0][0] - frame.base, stretches[-1][1] - frame.base)
    return frame.topic, frame.partition, stretches, frame.at[stamp], _claims(frame, rows)


def _claims(frame: Frame, rows: range) -> list[tuple[bytes, Claim]]:
    """What some rows of a frame claim by their idempotency keys."""
    keys = frame.rows.idempotency_key or [None] * frame.count
    return [(digest(key.encode()), _claim(frame, row)) for row in rows if (key := keys[row]) is not None]


def _claim(frame: Frame, row: int) -> Claim:
    at, due = frame.at_of(row), frame.number("deliver_at", row)
    place = frame.partition, frame.base + row, frame.number("priority", row), max(at, due)
    return Claim(at, frame.id_of(row), *place, digest(frame.rows.payload[row]))
