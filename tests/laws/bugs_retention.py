"""Bugs to plant in what retention drops and keeps. The model knows who is owed what, and which rule lets what go."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mqueue.heart import checkpoint, needs
from mqueue.heart.cursor import Cursor
from mqueue.heart.gaps import Gaps
from mqueue.heart.group import Group
from mqueue.heart.lanes import Lane
from mqueue.heart.partition import Partition
from mqueue.heart.schedule import Schedule
from mqueue.heart.state import State
from mqueue.log.memory import Tape
from mqueue.model import events as ev
from mqueue.store import compact, retain
from mqueue.store.store import Store
from mqueue.store.visits import Latest
from tests.laws.bugs import Patch, around, bug


@bug("walks", "model")
def retention_drops_what_is_scheduled(patch: Patch) -> None:
    patch.setattr(Schedule, "below", lambda self, offset: ())


@bug("walks", "model")
def retention_drops_what_is_leased(patch: Patch) -> None:
    def needed(real: Any, state: State, topic: Any, groups: Any, lines: Any) -> Any:
        tokens = {group: group.tokens for group in topic.groups.values()}
        for group in tokens:
            group.tokens = set()
        try:
            return real(state, topic, groups, lines)
        finally:
            for group, known in tokens.items():
                group.tokens = known

    around(patch, retain, "needed", needed)


@bug("walks", "model")
def retention_drops_what_was_given_back(patch: Patch) -> None:
    def needed(real: Any, state: State, topic: Any, groups: list[Group], lines: Any) -> Any:
        return real(state, topic, [], lines)

    around(patch, retain, "needed", needed)


@bug("walks", "model")
def what_is_kept_never_goes(patch: Patch) -> None:
    """Nobody is harmed, but compaction must let go of what was beaten: a fold of its log would not."""

    def keep(real: Any, self: Partition, floor: int, kept: Any, gone: Any) -> Gaps:
        gaps: Gaps = real(self, floor, kept, ())
        return gaps

    around(patch, Partition, "keep", keep)


@bug("walks", "model")
def compaction_overtakes_a_slow_group(patch: Patch) -> None:
    def ahead(
        real: Any, store: Any, topic: Any, partition: Partition, known: Any, rule: Any, line: int, *rest: Any
    ) -> Any:
        return real(store, topic, partition, known, rule, partition.next, *rest)

    around(patch, retain, "compact", ahead)


@bug("walks", "model")
def compaction_keeps_the_first_of_a_key(patch: Patch) -> None:
    def beaten(real: Any, self: Latest, key: bytes, at: int, offset: int) -> int | None:
        return offset if key in self.last else real(self, key, at, offset)

    around(patch, Latest, "beaten", beaten)


@bug("walks", "model")
def compaction_takes_what_ended_for_a_value(patch: Patch) -> None:
    def judge(real: Any, self: Any, offset: int, key: Any, at: int, ended: bool) -> None:
        real(self, offset, key, at, False)

    around(patch, compact._Sweep, "_judge", judge)


@bug("walks", "model")
def compaction_forgets_what_it_kept(patch: Patch) -> None:
    """After a restart it goes on above the floor, and older values stay for ever: a later look finds two of a key."""

    def read(real: Any, self: Any, line: int) -> None:
        self.latest.upto = max(self.latest.upto, self.partition.floor)
        real(self, line)

    around(patch, compact._Sweep, "read", read)


@bug("walks", "model")
def checkpoint_forgets_what_is_kept(patch: Patch) -> None:
    around(patch, checkpoint, "_partition_point", lambda real, partition: replace(real(partition), kept=()))


@bug("walks", "model")
def a_cursor_loses_its_place_when_its_lane_is_trimmed(patch: Patch) -> None:
    patch.setattr(Cursor, "follow", lambda self, lane: Cursor(lane, 0))


@bug("walks", "model")
def a_lane_lets_go_of_what_is_kept(patch: Patch) -> None:
    def without(real: Any, self: Lane, gaps: Gaps) -> Lane:
        return real(self, Gaps([(0, int(gaps.stops[-1]))]))

    around(patch, Lane, "without", without)


@bug("walks", "model")
def the_log_drops_what_is_kept(patch: Patch) -> None:
    def trim(real: Any, self: Tape, floor: int, kept: Any) -> None:
        real(self, floor, type(kept)())

    around(patch, Tape, "trim", trim)


@bug("walks", "model")
def the_log_still_shows_what_is_gone(patch: Patch) -> None:
    def touched(real: Any, self: Tape, floor: int, kept: Any) -> Any:
        return [index for index in real(self, floor, kept) if self.bases[index] >= self.floor]

    around(patch, Tape, "_touched", touched)


@bug("walks", "model")
def age_counts_from_the_publish_only(patch: Patch) -> None:
    patch.setattr(needs, "shown_since", lambda *args: iter(()))
    patch.setattr(compact, "shown_since", lambda *args: iter(()))


@bug("walks", "model")
def nobody_is_told_that_a_group_asks(patch: Patch) -> None:
    def hear(self: Store, group: Group, now: int) -> None:
        group.heard_at = now

    patch.setattr(Store, "_hear", hear)


@bug("walks", "model")
def a_trim_is_told_without_what_is_kept(patch: Patch) -> None:
    def event(real: Any, *args: Any) -> Any:
        told = real(*args)
        return told and ev.Trimmed(told.at, told.topic, told.floors, (), told.gone)

    around(patch, retain, "_event", event)
