"""The log: below the heart, the one thing that is durable. Memory, segment files and PostgreSQL are logs.

Two kinds of entries: frames (the messages) and events (what became of them). Folding all entries in order gives the
state of the heart. A log knows offsets, ids and times; it knows no groups, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from mqueue.heart.bulk import Table
from mqueue.heart.checkpoint import Checkpoint
from mqueue.heart.dedup import Claim
from mqueue.heart.fold import Entry
from mqueue.heart.marks import Marks
from mqueue.model.events import Event
from mqueue.wire.frame import Frame
from mqueue.wire.rows import Extras


class Packing(Protocol):
    def read(self) -> tuple[Sequence[bytes | memoryview], int | None]:
        """Packed frames in order, nothing in them but what was asked for and is not dropped; and where to go on.

        None: that was all. No frames, but a place to go on: things have moved meanwhile, so look again.
        """


class Log(Protocol):
    durability: str
    """What an answer means: memory, os, fsync, wal, shard or quorum."""

    reports: list[str]
    """What was found to be damaged, in sentences."""

    lag: int
    """How many events may wait before they are recorded: 1 where an event has to be durable."""

    remembers: bool
    """Whether what is trimmed can still be folded, so that no checkpoint need be taken before."""

    frames_tell: bool
    """Whether checkpoints leave it to the frames to tell of idempotency keys: see `claims`."""

    @property
    def full(self) -> str:
        """Why no messages can be taken; empty while they can."""

    def append(self, frame: Frame, id: int, now: int) -> None:
        """Put a whole frame at the end of its partition; this gives it its base, ids and time."""

    def extend(self, topic: int, partition: int, payload: bytes, extras: Extras | None, id: int, now: int) -> int:
        """Append one message, in a frame together with others that arrive alone; its offset."""

    def record(self, events: list[Event]) -> None:
        """Write down what happened; the list is the log's from now on."""

    def standbys(self, at: int) -> Sequence[str]:
        """The servers that confirmed what was appended at a time, beside the one that keeps this log."""

    def frame(self, topic: int, partition: int, offset: int) -> Frame | None:
        """The frame that holds an offset; None if it is gone or not there yet."""

    def frames(self, topic: int, partition: int, start: int, stop: int) -> Iterator[Frame]:
        """The frames that touch [start, stop), in order."""

    def packed(self, topic: int, partition: int, start: int, stop: int, bytes_max: int) -> Packing:
        """About so many bytes of the frames that touch [start, stop), one frame at least, to be read without a lock."""

    def seal(self, frame: Frame) -> None:
        """Nothing is added to this frame any more: somebody wants to read it without holding a lock."""

    def find(self, id: int) -> tuple[Frame, int] | None:
        """The frame and the row of a message."""

    def offset_at(self, topic: int, partition: int, at: int) -> int:
        """The first offset that was appended at `at` or later; the end if none was."""

    def size(self, topic: int, partition: int) -> int:
        """How many bytes the frames of a partition take."""

    def sizes(self, topic: int, partition: int) -> Iterator[tuple[int, int, int]]:
        """(stop, time of the last message, bytes) of each frame, oldest first: what retention needs to know."""

    def claims(self, topic: int) -> Iterable[tuple[bytes, Claim]]:
        """What the frames of a topic tell of idempotency keys, if checkpoints leave it to them."""

    def checkpoint(self, point: Checkpoint) -> None:
        """Keep this: what is folded later starts from here, for the topics that are in it."""

    def load(self) -> Checkpoint | None:
        """What the last checkpoints say, of each topic the newest."""

    def overdue(self, topic: int) -> bool:
        """Whether so much is kept of what happened to a topic that a checkpoint should make it shorter."""

    def events(self, topic: int, partition: int, start: int, stop: int) -> Iterable[Event]:
        """What happened to the messages from `start` to before `stop`, oldest first, as far back as it is kept; and
        what else happened to their topic.

        Unlike what other verbs give, it may be walked while others go on.
        """

    def stretches(self, topic: int, partition: int) -> Table:
        """The order keys of what there is of a partition, in the order of offsets: for who rebuilds the state."""

    def entries(self) -> Iterator[Entry]:
        """Everything since the last checkpoint, in an order that gives the same state when folded.

        Frames from before it may come along: what is there already is passed over.
        """

    def trim(self, topic: int, floors: tuple[int, ...], kept: Sequence[Marks]) -> None:
        """Drop everything below these floors but what is kept, one of each for every partition, and its history.

        A floor is the end of a frame. A frame of which some rows are kept is shown as slices from now on, one for each
        stretch of neighbours, so a row's place in its frame is always its offset less the frame's base. What was kept
        before and is not in `kept` any more is dropped now. The marks are the log's from now on.
        """

    def drop(self, topic: int) -> None:
        """Forget a topic."""


def alone(log: object, at: int) -> Sequence[str]:
    """The standbys of a log that has none."""
    return ()
