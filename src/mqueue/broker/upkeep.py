"""What goes on in the background of a log on disk: one loop, once a second, and `run_once` for whoever steps it.

What was answered without being durable becomes so; what frames cannot tell is written down; segments get their index,
dead ones go, old ones are read through; room is kept for when the disk is full.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from mqueue.broker.commits import Gate
from mqueue.broker.engine import Engine
from mqueue.heart.checkpoint import checkpoint
from mqueue.log.segments import checkpoint as files
from mqueue.log.segments.cleaner import Cleaner
from mqueue.log.segments.disk import RealDisk
from mqueue.log.segments.log import NOTHING, SegmentLog
from mqueue.log.segments.reserve import NO_ROOM
from mqueue.log.segments.scrubber import Scrubber
from mqueue.model.errors import Closed, DiskFull, Poisoned, Unavailable

LOGGER = logging.getLogger("mqueue")
PERIOD_SECONDS = 1.0
_QUIET_BYTES = 4096
"""If no more than this was written since the last checkpoint, nothing happens that would lead to the next."""
_TOPICS_AT_ONCE = 256
"""So many topics are written down in one go: others wait meanwhile."""


class Upkeep:
    def __init__(self, engine: Engine, log: SegmentLog) -> None:
        gate = engine.gate
        assert isinstance(gate, Gate), "a log on disk has one"
        self._engine = engine
        self._gate = gate
        self._inside = gate.at(NOTHING)
        """The lock: leaving it waits for nothing."""
        self._clock = engine.clock
        self._log = log
        self._cleaner = Cleaner(log)
        self._scrubber = Scrubber(log)
        self._checkpoint_at = self._clock.now()
        self._proven = log.writer.link.position
        self._turn = threading.RLock()
        """One at a time: the loop, and whoever steps it."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="mqueue-upkeep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.run_once()
            except (Closed, Poisoned):
                return
            except Exception:
                LOGGER.exception("upkeep failed; it is tried again")

    def run_once(self) -> None:
        """Everything that is due."""
        with self._turn:
            self._run_once()

    def _run_once(self) -> None:
        """One duty that finds no room keeps none from the next, which may give some back."""
        with self._inside:
            self._engine.tick()
        for duty in (self._settle, self._prove, self._save_points, self._clean, self._index, self._scrub):
            try:
                duty()
            except (DiskFull, OSError) as error:
                if isinstance(error, OSError) and error.errno not in NO_ROOM:
                    raise
                if not self._log.full:
                    LOGGER.warning("the disk is full: %s", error)
                self._log.reserve.release()
            except (Closed, Poisoned):
                raise
            except Unavailable as error:
                LOGGER.warning("%s has to wait: %s", duty.__name__.strip("_"), error)
        self._log.reserve.keep()

    def close(self) -> None:
        """Make everything durable, and note where the next start can begin."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        try:
            if not self._log.writer.dead:
                self._settle()
                self.save_points()
                with suppress(Unavailable):  # an index can be made anew
                    self._index()
                    if self._log.writer.active is not None:
                        self._log.history.file(self._log.writer.active)
                self._log.finish()
        finally:
            self._gate.close()
            self._log.close()

    def abandon(self) -> None:
        """This process is a fork: the directory belongs to the other one."""
        if isinstance(self._log.disk, RealDisk):
            self._log.disk.abandon()

    def _settle(self) -> None:
        """What was handed in without waiting becomes durable."""
        self._gate.commits.sync(self._log.batch)

    def _prove(self) -> None:
        """When all is quiet, say once that the last commit was durable: else it could be taken for a torn one."""
        writer = self._log.writer
        if writer.link.position == self._proven or writer.synced_position != writer.link.position:
            return
        self._gate.commits.prove()
        self._proven = writer.link.position

    def _save_points(self) -> None:
        now = self._clock.now()
        storage = self._log.storage
        since = self._log.writer.link.position - self._log.told[-1]
        late = now - self._checkpoint_at >= storage.checkpoint_seconds * 1000 and bool(self._log.dirty)
        if since >= storage.checkpoint_bytes or late:
            self.save_points()
        elif since <= _QUIET_BYTES and self._cleaner.waits():
            self._gate.commits.prove()  # a second checkpoint needs a position of its own
            self.save_points()

    def save_points(self) -> None:
        """Write a checkpoint: the topics that changed are taken anew, a few at a time."""
        with self._turn:
            self._do_save_points()

    def _do_save_points(self) -> None:
        log, state = self._log, self._engine.store.state
        self._checkpoint_at = self._clock.now()
        with self._inside:
            changed = list(log.mark())
        for first in range(0, len(changed), _TOPICS_AT_ONCE):
            with self._inside:
                topics = [
                    state.topics[number]
                    for number in changed[first : first + _TOPICS_AT_ONCE]
                    if number in state.topics
                ]
                now = self._clock.now()
                self._engine.pass_time(now)  # what is due by now belongs into it
                log.checkpoint(checkpoint(state, topics, now, frames_tell=log.frames_tell))
        self._gate.commits.sync(log.batch)
        with self._inside:
            pack = log.collect()
        if pack is not None:
            saved = pack()
            files.save(log.disk, saved)
            with self._inside:
                log.saved(saved)

    def _clean(self) -> None:
        self._cleaner.run_once(self._inside, self._gate.commits.sync)

    def _scrub(self) -> None:
        for report in self._scrubber.run_once(self._clock.now()):
            LOGGER.error("%s", report)

    def _index(self) -> None:
        for segment in list(self._log.shelf.segments):
            if segment.sealed and not segment.indexed:
                self._log.history.file(segment)
