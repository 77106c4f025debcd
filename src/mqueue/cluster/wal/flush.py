"""Stretches of a log into their shard: by one statement, which takes each stretch once, whoever brings it.

Blocking: for a thread, on a link of its own. Does not know where the stretches come from, nor who waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from mqueue.cluster.meters import Meters
from mqueue.cluster.wal.abroad import Abroad
from mqueue.cluster.wal.records import Stretch
from mqueue.log.postgres import appends, catalog, owning
from mqueue.log.postgres.appends import Appended, Sheet
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Flushed, Moved, NoTopic
from mqueue.model.errors import ShardDown

LOGGER = logging.getLogger("mqueue.cluster")

FRAMES_MAX = 64
BYTES_MAX = 4 << 20
"""What goes with one statement, if it is more than one commit."""
_ATTEMPTS = 3
GONE = Appended(-1, 0)
"""In the place of a frame that has none: its topic was deleted, or it was there already."""


class Flush:
    """`stamp` gives the time for what is appended, None where the server's clock counts; `epoch_of` the map epoch of a
    virtual shard, as far as we know. `abroad`: where those go that live at another server by now."""

    def __init__(
        self,
        link: Link,
        stamp: Callable[[], int | None],
        epoch_of: Callable[[int], int],
        meters: Meters,
        abroad: Abroad | None = None,
    ) -> None:
        self.link = link
        self._stamp = stamp
        self._epoch_of = epoch_of
        self._meters = meters
        self._abroad = abroad

    def append(self, log: UUID, stretches: Sequence[Stretch], *, once: bool) -> list[Appended] | None:
        """Where each frame went. None: the log is flushed up to another place than where these begin; ask how far.

        `once`: what is in the shard already is left out, also if it did not come from the log.
        """
        sheets = [sheet for stretch in stretches for sheet in stretch.sheets]
        return self._append(self.link, sheets, (log, stretches[0].start, stretches[-1].stop), once, {})

    def close(self) -> None:
        self.link.close()
        if self._abroad is not None:
            self._abroad.close()

    def _append(
        self, link: Link, sheets: Sequence[Sheet], wal: tuple[UUID, int, int] | None, once: bool, epochs: dict[int, int]
    ) -> list[Appended] | None:
        gone: dict[int, Appended] = {}
        """By their numbers: those that have no place here, but perhaps elsewhere."""
        for _ in range(_ATTEMPTS):
            kept = [self._placed(sheet, epochs) for number, sheet in enumerate(sheets) if number not in gone]
            try:
                found = appends.append(link, kept, self._stamp(), wal=wal, once=once)
            except Flushed:
                return None
            except NoTopic:
                gone |= self._dropped(link, sheets, gone)
            except Moved:
                epochs, once = {row[0]: row[1] for row in owning.owners(link)}, True
                left = [n for n, sheet in enumerate(sheets) if n not in gone and sheet.vshard not in epochs]
                gone |= dict(zip(left, self._elsewhere([sheets[n] for n in left], wal), strict=True))
            else:
                if found is None:
                    return None
                places = iter(found)
                return [gone[number] if number in gone else next(places) for number in range(len(sheets))]
        raise ShardDown(f"what lies in the log of the node cannot be flushed to {link.server} now")

    def _placed(self, sheet: Sheet, epochs: dict[int, int]) -> Sheet:
        """With the place of its virtual shard."""
        return replace(sheet, map_epoch=epochs.get(sheet.vshard) or self._epoch_of(sheet.vshard))

    def _elsewhere(self, sheets: Sequence[Sheet], wal: tuple[UUID, int, int] | None) -> list[Appended]:
        """To where they live now. That is done before the log is noted as flushed: so it may be done again."""
        if not sheets:
            return []
        if self._abroad is None or wal is None:  # or it moves on while we are at it
            raise ShardDown(f"virtual shard {sheets[0].vshard} is not at {self.link.server}")
        places: dict[int, Appended] = {}
        for place, numbers in self._abroad.sorted_out(sheets).items():
            theirs = [sheets[number] for number in numbers]
            link = self._abroad.link(place)
            epochs = {row[0]: row[1] for row in owning.owners(link)}
            found = self._append(link, theirs, None, True, epochs)
            assert found is not None, "no log is flushed there"
            self._abroad.brought(place, theirs, found)
            places |= dict(zip(numbers, found, strict=True))
        return [places[number] for number in range(len(sheets))]

    def _dropped(self, link: Link, sheets: Sequence[Sheet], gone: Container[int]) -> dict[int, Appended]:
        """Those whose topics were deleted meanwhile."""
        topics = {sheet.topic for sheet in sheets}
        missing = topics - {row.id for row in catalog.rows_of(link, sorted(topics))}
        found = {number: GONE for number, one in enumerate(sheets) if one.topic in missing and number not in gone}
        count = sum(sheets[number].count for number in found)
        self._meters.flush_dropped += count
        LOGGER.warning("%d messages of topics that were deleted meanwhile are dropped: %s", count, sorted(missing))
        return found


def affordable(stretches: Iterable[Stretch]) -> list[Stretch]:
    """As many of these as go with one statement; the first at least, however large it is."""
    taken: list[Stretch] = []
    frames = size = 0
    for stretch in stretches:
        frames += len(stretch.sheets)
        size += sum(len(sheet.head) + len(sheet.body) for sheet in stretch.sheets)
        if taken and (frames > FRAMES_MAX or size > BYTES_MAX):
            break
        taken.append(stretch)
    return taken
