"""Bugs to plant in the store on disk, one at a time, so that we know what the crash tests are worth.

Each is patched in by a test and taken out again; nothing of this is in the shipped code. A bug names the probe that has
to find it. They are the mistakes that stores of this kind are known to have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mqueue.broker import foundation
from mqueue.broker.commits import Commits
from mqueue.log.segments import checkpoint, commit, index, recovery, scan, sealed, segment
from mqueue.log.segments.cleaner import Cleaner
from mqueue.log.segments.commit import Commit, Link
from mqueue.log.segments.committer import Batch, Committer
from mqueue.log.segments.disk import RealDisk
from mqueue.log.segments.history import History
from mqueue.log.segments.log import NOTHING, SegmentLog
from mqueue.log.segments.recovery import Recovery
from mqueue.log.segments.scan import Scan
from mqueue.log.segments.writer import Writer
from mqueue.model.events import Leased
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Plant
    probe: str
    """walk, tidy, storm, rot, faults, files or short: see test_planted."""


BUGS: list[Bug] = []


def bug(probe: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(Bug(plant.__name__, plant, probe))
        return plant

    return add


def around(patch: Patch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put `wrapper(real, *args)` in place of a function or method."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kw: wrapper(real, *args, **kw))


class Deaf:
    """A disk on which some calls do nothing."""

    def __init__(self, disk: Any, *calls: str) -> None:
        self._disk = disk
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return (lambda *args: None) if name in self._calls else getattr(self._disk, name)


# Syncing


@bug("walk")
def no_sync(patch: Patch) -> None:
    patch.setattr(Writer, "_sync", lambda self, file: None)


@bug("walk")
def answered_before_the_sync(patch: Patch) -> None:
    patch.setattr(Commits, "sync", lambda self, batch: self.write(batch))


@bug("walk")
def sync_of_the_file_before(patch: Patch) -> None:
    """After a roll the old segment is synced instead of the new one."""

    def sync_to(real: Any, self: Writer, number: int, position: int, active: Any) -> None:
        first = self.__dict__.setdefault("first", active)
        real(self, number, position, first)

    around(patch, Writer, "sync_to", sync_to)


@bug("walk")
def name_of_a_new_segment_not_synced(patch: Patch) -> None:
    def roll(real: Any, self: Writer) -> Any:
        disk, self._disk = self._disk, Deaf(self._disk, "sync_dir")  # type: ignore[assignment]
        try:
            return real(self)
        finally:
            self._disk = disk

    around(patch, Writer, "_roll", roll)


@bug("walk")
def checkpoint_renamed_without_a_sync(patch: Patch) -> None:
    around(patch, checkpoint, "save", lambda real, disk, saved: real(Deaf(disk, "sync"), saved))


@bug("walk")
def recovered_tail_not_synced(patch: Patch) -> None:
    def judge(real: Any, self: Recovery, *args: Any) -> Any:
        disk, self._disk = self._disk, Deaf(self._disk, "sync")  # type: ignore[assignment]
        try:
            return real(self, *args)
        finally:
            self._disk = disk

    around(patch, Recovery, "_judge", judge)


@bug("walk")
def names_found_after_a_kill_not_synced(patch: Patch) -> None:
    around(patch, Recovery, "open", lambda real, self: _without_dir_syncs(real, self))


def _without_dir_syncs(real: Any, self: Recovery) -> Any:
    self._disk = Deaf(self._disk, "sync_dir")  # type: ignore[assignment]
    return real(self)


@bug("faults")
def sync_tried_again_after_an_error(patch: Patch) -> None:
    def sync(self: Writer, file: int) -> None:
        try:
            self._disk.sync(file)
        except OSError:
            self._disk.sync(file)

    patch.setattr(Writer, "_sync", sync)


@bug("short")
def short_write_ignored(patch: Patch) -> None:
    patch.setattr(RealDisk, "_pwrite_rest", lambda self, *args: None)


# Reading back


@bug("rot")
def log_cut_at_damage_in_the_middle(patch: Patch) -> None:
    def cut(real: Any, data: bytes, first: Link, proven: int, stop: int | None, *good: Any) -> Scan:
        found: Scan = real(data, first, proven, stop, *good)
        if found.holes:
            start = found.holes[0].start
            found.commits = [one for one in found.commits if one.end <= start]
            found.holes, found.torn, found.missing = [], stop is None, False
            found.link = found.link._replace(position=start)
        return found

    around(patch, recovery, "scan", cut)


def _read_with(check: Callable[[bytes, int], bool]) -> Callable[..., Commit | None]:
    def read(data: memoryview, offset: int, home: int, position: int) -> Commit | None:
        if offset + commit.HEADER_BYTES > len(data):
            return None
        fields = commit._HEADER.unpack_from(data, offset)
        magic, crc, length, _, _, where, of, epoch, previous, synced, at, entries, _ = fields
        if magic != commit.MAGIC or where != position or of != home:
            return None
        if length < commit.HEADER_BYTES or length % 8 or offset + length > len(data):
            return None
        if not check(bytes(data[offset : offset + length]), crc):
            return None
        return Commit(position, length, crc, epoch, previous, synced, at, entries)

    return read


def _put_read(patch: Patch, read: Any) -> None:
    from mqueue.log.segments import history, shelf

    for module in (commit, scan, shelf, history):
        if hasattr(module, "read"):
            patch.setattr(module, "read", read)


@bug("walk")
def checksum_not_looked_at(patch: Patch) -> None:
    _put_read(patch, _read_with(lambda data, crc: True))


@bug("rot")
def checksum_without_the_header(patch: Patch) -> None:
    """What is believed of the header is not checked: how far the log was durable, when, and by whom."""
    real = commit.read
    zeros = slice(40, 56)
    known: dict[bytes, bool] = {}

    def check(data: bytes, crc: int) -> bool:
        bare = data[: zeros.start] + data[zeros.stop :]
        if bare not in known:
            known[bare] = real(memoryview(data), 0, _home(data), _where(data)) is not None
        return known[bare]

    _put_read(patch, _read_with(check))


def _where(data: bytes) -> int:
    return int.from_bytes(data[16:24], "little")


def _home(data: bytes) -> int:
    return int.from_bytes(data[24:32], "little")


@bug("files")
def chain_not_followed(patch: Patch) -> None:
    for module in (commit, scan):
        patch.setattr(module, "follows", lambda *args: True)


@bug("rot")
def index_believed_without_its_checksum(patch: Patch) -> None:
    class Equal:
        def __ne__(self, other: object) -> bool:
            return False

    class Blind:
        value = staticmethod(lambda data: Equal())

    real = sealed.google_crc32c

    def load(original: Any, *args: Any) -> Any:
        sealed.google_crc32c = Blind
        try:
            return original(*args)
        finally:
            sealed.google_crc32c = real

    around(patch, index, "load", load)


@bug("files")
def segments_removed_when_epoch_is_missing(patch: Patch) -> None:
    def epoch(real: Any, self: Recovery) -> Any:
        found = real(self)
        for name in [name for name in self._names if found is None and segment.start_of(name) is not None]:
            self._disk.unlink(name)
            self._names.remove(name)
        return found

    around(patch, Recovery, "_epoch", epoch)


@bug("files")
def checkpoint_newer_than_the_log_accepted(patch: Patch) -> None:
    patch.setattr(Recovery, "_lose", lambda self, what: None)


# What a restart forgets


def _after_recovery(patch: Patch, change: Callable[[Any, SegmentLog], None]) -> None:
    def state(real: Any, log: SegmentLog) -> Any:
        found = real(log)
        change(found, log)
        return found

    around(patch, foundation, "_state", state)


@bug("walk")
def idempotency_keys_forgotten(patch: Patch) -> None:
    def change(state: Any, log: SegmentLog) -> None:
        for topic in state.topics.values():
            topic.dedup.buckets.clear()

    _after_recovery(patch, change)


@bug("tidy")
def offsets_start_again_when_all_is_trimmed(patch: Patch) -> None:
    def change(state: Any, log: SegmentLog) -> None:
        for topic in state.topics.values():
            for partition in topic.partitions:
                if not any(log.frames(topic.id, partition.number, partition.floor, partition.next)):
                    partition.next = 0

    _after_recovery(patch, change)


@bug("walk")
def tokens_of_the_same_epoch_again(patch: Patch) -> None:
    around(patch, Tokens, "__init__", lambda real, self, epoch, entropy: real(self, 1, entropy))


@bug("storm")
def traces_end_at_the_crash(patch: Patch) -> None:
    patch.setattr(History, "batches", lambda self, *args: iter(()))


# Order of writing


@bug("walk")
def lease_handed_out_before_it_is_written(patch: Patch) -> None:
    def record(real: Any, self: SegmentLog, events: Any) -> None:
        wants, only = self.wants, all(isinstance(event, Leased) for event in events)
        real(self, events)
        self.wants = NOTHING if only and wants == NOTHING else self.wants

    around(patch, SegmentLog, "record", record)


@bug("walk")
def batch_torn_into_two_commits(patch: Patch) -> None:
    def cut(real: Any, self: Committer, **options: Any) -> Batch | None:
        rest, self.items = self.items[1:], self.items[:1]
        batch: Batch | None = real(self, **options)
        self.items = rest
        return batch

    around(patch, Committer, "cut", cut)


@bug("storm")
def dead_letter_in_a_commit_of_its_own(patch: Patch) -> None:
    def bury(real: Any, self: Store, now: int) -> None:
        self.flush()
        assert isinstance(self.log, SegmentLog)
        self.log.writer.write(self.log.take())
        real(self, now)

    around(patch, Store, "_bury", bury)


# Giving room back


@bug("tidy")
def segments_removed_before_the_checkpoint_is_durable(patch: Patch) -> None:
    """Whoever removes them believes that it is."""
    patch.setattr(checkpoint, "save", lambda disk, saved: None)


@bug("tidy")
def survivors_dropped_by_the_cleaner(patch: Patch) -> None:
    patch.setattr(SegmentLog, "copy_on", lambda self, segment: self.batch)


@bug("tidy")
def original_removed_before_its_copy_is_durable(patch: Patch) -> None:
    def run_once(real: Any, self: Cleaner, lock: Any, sync: Any, *rest: Any) -> None:
        commits = sync.__self__
        real(self, lock, commits.write, *rest)

    around(patch, Cleaner, "run_once", run_once)


@bug("walk")
def time_passes_unseen_by_a_checkpoint(patch: Patch) -> None:
    """What fell due just now is in no group's lanes, though the checkpoint says that it was taken now."""
    from mqueue.broker import upkeep

    around(patch, upkeep, "checkpoint", lambda real, state, topics, now, **kw: real(state, topics, now + 40_000, **kw))
