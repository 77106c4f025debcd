"""Flushes what others left behind: earlier lives of this node on its disk, and nodes that are gone in Redis.

Blocking: for a thread, one statement at a time. The shard takes nothing twice: several nodes may do this at once.
"""

from __future__ import annotations

import logging
from uuid import UUID

from mqueue.cluster.meters import Meters
from mqueue.cluster.redis.line import Away
from mqueue.cluster.wal.abroad import arrival_of
from mqueue.cluster.wal.copies import Copies
from mqueue.cluster.wal.flush import Flush, affordable
from mqueue.cluster.wal.nodelog import Place
from mqueue.cluster.wal.records import Stretch
from mqueue.cluster.wal.remains import OwnRemains, Remains
from mqueue.log.postgres import flushing, owning
from mqueue.log.postgres.appends import Appended
from mqueue.log.postgres.batch import Arrival
from mqueue.model.errors import Error

LOGGER = logging.getLogger("mqueue.cluster")


class Drain:
    """`place`: where our logs lie, and `own` the one that is being written now; None: there are none."""

    def __init__(self, flush: Flush, copies: Copies, place: Place | None, own: UUID | None, meters: Meters) -> None:
        self._flush = flush
        self._copies = copies
        self._place = place
        self._own = own
        self._meters = meters
        self._waiting: list[UUID] = [] if place is None else [uuid for uuid in place.left() if uuid != own]
        """Logs on our disk that were not looked at yet."""
        self._remains: dict[UUID, Remains] = {}
        """Logs that may have something left, in the order they were found."""

    def look(self) -> None:
        """Find the logs of nodes whose sessions have ended. Without Redis there are none to be found."""
        try:
            listed = self._copies.listed()
        except Away:
            return
        alive = {owner for owner, _, _ in owning.alive(self._flush.link)} if listed else set()
        for log in listed:
            if log.owner not in alive and log.uuid != self._own and log.uuid not in self._waiting:
                self._remains.setdefault(log.uuid, Remains(log.uuid, self._copies))
        for uuid in self._remains.keys() - {log.uuid for log in listed if log.owner not in alive}:
            if type(self._remains[uuid]) is Remains:  # its node is back, or somebody else was quicker
                del self._remains[uuid]

    def run_once(self) -> list[Arrival] | None:
        """One statement's worth; what it appended. None: nothing is left that can be flushed now."""
        self._open()
        for remains in list(self._remains.values()):
            try:
                found = self._step(remains)
            except Away:
                continue
            if found is not None:
                return found
        return None

    def close(self) -> None:
        for remains in self._remains.values():
            remains.close()
        self._remains.clear()

    def _open(self) -> None:
        while self._waiting and self._place is not None:
            uuid = self._waiting.pop(0)
            try:
                self._remains[uuid] = OwnRemains(uuid, self._copies, self._place)
            except (Error, OSError) as problem:  # it stays where it is
                self._meters.flush_failures += 1
                LOGGER.error("the log %s cannot be read, and is left as it is: %s", uuid.hex, problem)

    def _step(self, remains: Remains) -> list[Arrival] | None:
        link = self._flush.link
        done = flushing.flushed(link, remains.uuid)
        stretches = affordable(remains.stretches(done))
        if not stretches:
            if remains.finish(done):
                del self._remains[remains.uuid]
                if remains.gone:
                    flushing.forget(link, remains.uuid)
                else:  # its node, or a Redis that is set back, may ask again
                    flushing.forget_older(link, remains.uuid)
            return None
        places = self._flush.append(remains.uuid, stretches, once=True)
        return [] if places is None else self._arrivals(stretches, places)

    def _arrivals(self, stretches: list[Stretch], places: list[Appended]) -> list[Arrival]:
        sheets = [sheet for stretch in stretches for sheet in stretch.sheets]
        found = [arrival_of(sheet, place) for sheet, place in zip(sheets, places, strict=True) if place.base >= 0]
        self._meters.flushed += sum(arrival.count for arrival in found)
        return found
