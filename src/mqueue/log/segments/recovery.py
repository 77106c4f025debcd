"""Opening a data directory: from the files that a crash left to a log that can be written on.

    lock → EPOCH → checkpoints → segments (from their index where there is one) → cut the tail → sync → new epoch

Nothing is removed because something else is damaged. What cannot be read is reported and set aside; a tail that was
never durable is copied aside and cut. Opening twice gives the same, also if it is interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from mqueue.log.segments import checkpoint, epoch, index, poison, segment
from mqueue.log.segments.checkpoint import Saved
from mqueue.log.segments.commit import Link
from mqueue.log.segments.disk import CLOSED, Disk
from mqueue.log.segments.epoch import Epoch
from mqueue.log.segments.index import Index, Indexer
from mqueue.log.segments.scan import Scan, scan
from mqueue.log.segments.segment import HEADER_BYTES, Hole, Segment
from mqueue.model.errors import Corrupt, Refused

_OURS = ("LOCK", "EPOCH", "POISON", "RESERVE", checkpoint.TEMPORARY, index.TEMPORARY, "lost+found")
_OURS_PREFIXES = ("seg-", "checkpoint-", "torn-", "bad-")


class Opened(Struct):
    """What was found. The log goes on from `link`, in `epoch`."""

    uuid: bytes
    epoch: int
    link: Link
    segments: list[Segment]
    indexes: list[Index]
    saved: Saved | None
    holes: list[Hole]
    reports: list[str]
    """What was damaged, in sentences."""
    indexer: Indexer | None = None
    """Of the last segment, to go on with."""
    fresh_segment: bool = False
    """What comes next has to go into a new segment: the last one is damaged, and is left as it is."""


class Recovery:
    """One opening of a directory."""

    def __init__(self, disk: Disk, entropy: Callable[[int], bytes], accept_loss: bool) -> None:
        self._disk = disk
        self._entropy = entropy
        self._accept_loss = accept_loss
        self._names = disk.list()
        self.reports: list[str] = []
        self._files: list[int] = []
        self._bad: list[str] = []

    def open(self) -> Opened:
        try:
            return self._open()
        except BaseException:
            for file in self._files:
                self._disk.close(file)
            raise

    def _open(self) -> Opened:
        self._check_directory()
        self._clear_leftovers()
        known = self._epoch()
        saved = self._checkpoint(known)
        uuid = known.uuid if known else saved.uuid if saved else b""
        opened = Opened(uuid, known.number if known else 0, Link(0, 0, 0, 0), [], [], saved, [], self.reports)
        proven = max(known.synced if known else 0, saved.position if saved else 0)
        self._segments(opened, proven)
        if known is not None and known.number < opened.link.epoch:
            self.reports.append(f"{epoch.NAME} is damaged: it says {known.number}, the log {opened.link.epoch}")
        if not opened.uuid:
            opened.uuid = self._entropy(16)
        self._set_aside()
        self._disk.sync_dir()  # whoever made a name may have been killed before it was safe; we build on it
        opened.epoch = max(opened.epoch, opened.link.epoch) + 1
        epoch.save(self._disk, Epoch(opened.uuid, opened.epoch, opened.link.position))
        poison.clear(self._disk)
        return opened

    def _check_directory(self) -> None:
        """Somebody else's files are no place for ours."""
        foreign = [n for n in self._names if n not in _OURS and not n.startswith(_OURS_PREFIXES)]
        if foreign and epoch.NAME not in self._names:
            raise Refused(
                f"the directory holds {foreign[0]!r:.80} and is no data directory of mqueue; give an empty one",
                code="not_a_data_directory",
            )

    def _clear_leftovers(self) -> None:
        """A file that was being renamed may be there under both names; written on, it would damage the good one."""
        for name in (checkpoint.TEMPORARY, index.TEMPORARY):
            if name in self._names:
                self._disk.unlink(name)

    def _epoch(self) -> Epoch | None:
        if epoch.NAME not in self._names:
            return None
        found, damaged = epoch.load(self._disk)
        if damaged and (found is not None or any(segment.start_of(name) is not None for name in self._names)):
            self.reports.append(f"{epoch.NAME} is damaged; it was made anew from the log")
        return found

    def _checkpoint(self, known: Epoch | None) -> Saved | None:
        """The newest checkpoint that is whole. The others are looked at, too: one day they may be needed."""
        found: list[Saved] = []
        for name in checkpoint.names(self._disk):
            saved = checkpoint.load(self._disk, name)
            if saved is not None and (known is None or saved.uuid == known.uuid):
                found.append(saved)
            else:
                self._bad.append(name)
                self.reports.append(f"{name} is damaged; another one, or the whole log, tells the same")
        return found[0] if found else None

    def _segments(self, opened: Opened, proven: int) -> None:
        starts = sorted(start for start in map(segment.start_of, self._names) if start is not None)
        good = poison.load(self._disk)
        while starts and self._is_unborn(starts[-1], good):
            starts.pop()
        if proven and not starts:
            self._lose(f"no segment is there, but the log was durable up to position {proven}")
        fold_from = opened.saved.position if opened.saved else 0
        for number, start in enumerate(starts):
            stop = starts[number + 1] if number + 1 < len(starts) else None
            expected = opened.link.position
            if start != expected and max(start, expected) > fold_from:
                self._gap(opened, expected, start)
            self._segment(opened, start, stop, fold_from, proven, good)

    def _segment(
        self, opened: Opened, start: int, stop: int | None, fold_from: int, proven: int, good: int | None
    ) -> None:
        name = segment.name_of(start)
        file = self._disk.open(name)
        self._files.append(file)
        first = self._first(opened, file, start, name)
        place = Segment(start, file, start, first, sealed=stop is not None)
        opened.segments.append(place)
        known = self._indexed(opened.uuid, place, stop, fold_from)
        if stop is not None and stop <= fold_from:  # the next ones may have gone: where this one ends it tells itself
            stop = min(stop, place.origin + self._disk.size(file))
        if known is not None and stop is not None and known.link.position >= stop:
            if known.link.position > stop:
                self.reports.append(f"{name} is shorter than its index says")
            place.indexed = True
            self._note(opened, place, known)
            return
        indexer = Indexer(start, first) if known is None else Indexer.of(known)
        origin = place.origin if known is None else known.link.position
        data = self._disk.pread(file, self._disk.size(file), origin - place.origin)
        seen = scan(data, origin, start, indexer.link, proven, stop, good)
        self._judge(opened, place, seen, data, origin)
        for commit in seen.commits:
            indexer.add(data, commit.position - origin, commit)
        indexer.link = seen.link
        opened.indexer = indexer
        self._note(opened, place, indexer.index())

    def _note(self, opened: Opened, place: Segment, found: Index) -> None:
        place.end = found.link.position
        if place.sealed:  # there may be very many: it is opened again when somebody reads it
            self._disk.close(self._files.pop())
            place.file = CLOSED
        opened.link = found.link
        opened.indexes.append(found)

    def _first(self, opened: Opened, file: int, start: int, name: str) -> Link:
        """What a segment goes on from, by its header, or if that is damaged by the segment before it."""
        header = segment.unpack(self._disk.pread(file, HEADER_BYTES, 0), name)
        if header is None:
            self.reports.append(f"the header of {name} is damaged")
            if start == opened.link.position:
                return opened.link
            return Link(start, 0, 0, 0)
        uuid, first = header
        if opened.uuid and uuid != opened.uuid:
            raise Corrupt(f"{name} is of another log; it was copied here, or the others were", code="other_log")
        opened.uuid = uuid
        return first

    def _indexed(self, uuid: bytes, place: Segment, stop: int | None, fold_from: int) -> Index | None:
        """What the file beside a segment says, if it can be believed: of all of it, or of its beginning.

        Not of what a start has to read anyway: there damage has to be seen.
        """
        name = index.name_of(place.start)
        if name not in self._names:
            return None
        found = index.load(self._disk, uuid, place.start)
        end = place.origin + self._disk.size(place.file)
        if found is None or found.link.position > (end if stop is None else stop):
            self.reports.append(f"{name} is damaged; the segment was read instead")
            self._bad.append(name)
            return None
        return found if (stop or found.link.position) <= fold_from else None

    def _judge(self, opened: Opened, place: Segment, seen: Scan, data: bytes, origin: int) -> None:
        """What to do about what is not whole."""
        name = place.name
        if seen.torn:
            self._cut(place, seen.link.position, data[seen.link.position - origin :])
        for hole in seen.holes:
            if seen.missing and hole is seen.holes[-1]:
                self._lose(f"{name} ends at position {hole.start}, but was durable up to {hole.stop}")
            opened.holes.append(hole)
            self.reports.append(f"{name}: positions {hole.start} to {hole.stop}: {hole.reason}; they are set aside")
        if not place.sealed:
            opened.fresh_segment = bool(seen.holes) and seen.holes[-1].stop == seen.link.position
            self._disk.sync(place.file)  # what was only written may be gone tomorrow: nobody may build on it

    def _cut(self, place: Segment, position: int, tail: bytes) -> None:
        """Cut a tail that never was durable; what is in it is kept aside."""
        if any(tail):
            name = f"torn-{position:020}-{len(tail)}"
            file = self._disk.open(name, create=True)
            try:
                self._disk.pwrite(file, tail, 0)
                self._disk.sync(file)
            finally:
                self._disk.close(file)
            self._disk.sync_dir()
        self._disk.truncate(place.file, place.place(position))
        self._disk.sync(place.file)

    def _is_unborn(self, start: int, good: int | None) -> bool:
        """Whether the last segment was just being made: nothing in it was ever promised to anybody.

        After a failed sync not even its name is believed, if nothing before `good` is in it: a new one is made.
        """
        name = segment.name_of(start)
        if good is not None and start >= good:
            self._bad.append(name)
            return True
        file = self._disk.open(name)
        try:
            data = self._disk.pread(file, self._disk.size(file), 0)
        finally:
            self._disk.close(file)
        if segment.unpack(data[:HEADER_BYTES], name) is not None:
            return False
        if any(data[HEADER_BYTES:]):
            return False
        self._bad.append(name)
        return True

    def _gap(self, opened: Opened, expected: int, start: int) -> None:
        self._lose(f"the segments between positions {expected} and {start} are missing")
        opened.holes.append(Hole(expected, start, "the segment is missing"))

    def _lose(self, what: str) -> None:
        """What was promised is not there. Go on only if somebody said that this is accepted."""
        if not self._accept_loss:
            raise Corrupt(
                f"{what}; restore the files, or open with accept_loss=True to go on without", code="data_lost"
            )
        self.reports.append(f"{what}; accepted")

    def _set_aside(self) -> None:
        """Damaged files keep their bytes under another name."""
        for name in self._bad:
            with suppress(FileNotFoundError):
                self._disk.rename(name, f"bad-{name}")
        if self._bad:
            self._disk.sync_dir()
