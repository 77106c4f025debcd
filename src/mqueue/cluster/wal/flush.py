"""Stretches of a log into their shard: by one statement, which takes each stretch once, whoever brings it.

Blocking: for a thread, on a link of its own. Does not know where the stretches come from, nor who waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from mqueue.cluster.meters import Meters
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
    virtual shard, as far as we know."""

    def __init__(
        self, link: Link, stamp: Callable[[], int | None], epoch_of: Callable[[int], int], meters: Meters
    ) -> None:
        self.link = link
        self._stamp = stamp
        self._epoch_of = epoch_of
        self._meters = meters

    def append(self, log: UUID, stretches: Sequence[Stretch], *, once: bool) -> list[Appended] | None:
        """Where each frame went. None: the log is flushed up to another place than where these begin; ask how far.

        `once`: what is in the shard already is left out, also if it did not come from the log.
        """
        start, stop = stretches[0].start, stretches[-1].stop
        sheets = [sheet for stretch in stretches for sheet in stretch.sheets]
        epochs: dict[int, int] = {}
        dropped: set[int] = set()
        for _ in range(_ATTEMPTS):
            kept = [self._placed(sheet, epochs) for sheet in sheets if sheet.topic not in dropped]
            try:
                found = appends.append(self.link, kept, self._stamp(), wal=(log, start, stop), once=once)
            except Flushed:
                return None
            except NoTopic:
                dropped |= self._missing(kept)
            except Moved:
                epochs, once = {row[0]: row[1] for row in owning.owners(self.link)}, True
            else:
                return None if found is None else self._spread(sheets, dropped, found)
        raise ShardDown(f"what lies in the log of the node cannot be flushed to {self.link.server} now")

    def _placed(self, sheet: Sheet, epochs: dict[int, int]) -> Sheet:
        """With the place of its virtual shard."""
        try:
            return replace(sheet, map_epoch=epochs.get(sheet.vshard) or self._epoch_of(sheet.vshard))
        except KeyError:
            raise ShardDown(f"virtual shard {sheet.vshard} is not at {self.link.server}") from None

    def _missing(self, sheets: Iterable[Sheet]) -> set[int]:
        """Topics that were deleted meanwhile."""
        topics = {sheet.topic for sheet in sheets}
        return topics - {row.id for row in catalog.rows_of(self.link, sorted(topics))}

    def _spread(self, sheets: list[Sheet], dropped: set[int], found: list[Appended]) -> list[Appended]:
        """A place for every sheet."""
        places = iter(found)
        if dropped:
            count = sum(sheet.count for sheet in sheets if sheet.topic in dropped)
            self._meters.flush_dropped += count
            LOGGER.warning("%d messages of topics that were deleted meanwhile are dropped: %s", count, sorted(dropped))
        return [GONE if sheet.topic in dropped else next(places) for sheet in sheets]


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
