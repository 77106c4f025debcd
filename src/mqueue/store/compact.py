"""Compaction: below the floor of a topic that asks for it only the last message of each key is kept.

The floor rises over frames that every group has read and nothing was added to for a minute, some of them at a visit.
The last message of a key is the one that became visible last. What is scheduled, leased or given back is kept besides
it while that lasts; what ended for everybody is nobody's last message; what has no key follows the other rules. An
empty payload is a value like any other: nothing marks a key as deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mqueue.heart.marks import BLOCK, Marks
from mqueue.heart.needs import shown_since
from mqueue.heart.partition import Partition
from mqueue.heart.runs import each, full
from mqueue.heart.topic import Topic
from mqueue.model.settings import Retention
from mqueue.policy.retention import REST_MS, allowed, oldest
from mqueue.store.order import order_key
from mqueue.store.store import Store
from mqueue.store.visits import Cut, Latest
from mqueue.wire.frame import Frame

_ROWS_PER_VISIT = 32_768
"""So many messages are gone through at a visit: some 30 ms."""


def compact(
    store: Store,
    topic: Topic,
    partition: Partition,
    known: dict[int, Latest],
    rule: Retention,
    line: int,
    needs: Marks,
    now: int,
) -> Cut:
    """How far the floor of a partition rises, what is kept below it, and what need not be kept any more."""
    latest = known.get(partition.number)
    if latest is None or latest.floor != partition.floor:
        latest = known[partition.number] = Latest(partition.floor)
    sweep = _Sweep(store, topic, partition, latest, needs, now)
    sweep.drop_ended()
    sweep.read(line)
    sweep.look_again()
    sweep.drop_keyless(_line(store, topic, partition, rule, now), late(store, topic, partition, rule, line, now))
    floor = latest.floor = max(partition.floor, latest.upto)
    gone = list(sweep.dropped.within(0, partition.floor))
    return Cut(floor, _others(sweep.dropped, partition.floor, floor), gone)


class _Sweep:
    """One visit to a partition: collects what is not kept any more."""

    def __init__(
        self, store: Store, topic: Topic, partition: Partition, latest: Latest, needs: Marks, now: int
    ) -> None:
        self.store = store
        self.topic = topic
        self.partition = partition
        self.latest = latest
        self.needs = needs
        self.now = now
        self.dropped = Marks()

    def drop_ended(self) -> None:
        """What ended after it was kept is nobody's last message any more, and need not be beaten to go."""
        void, kept = self.partition.void.blocks, self.partition.kept.blocks
        for block in void.keys() & kept.keys():
            for offset in each(block * BLOCK, void[block] & kept[block]):
                frame = self.store.log.frame(self.topic.id, self.partition.number, offset)
                if frame is not None:
                    self.latest.forget(frame.keys()[offset - frame.base], offset)
                    self._let_go(offset)

    def read(self, line: int) -> None:
        """Go through the frames that come next: first those below the floor, if a restart has made us forget them."""
        rows = 0
        for frame in self.store.log.frames(self.topic.id, self.partition.number, self.latest.upto, line):
            if frame.stop > line or frame.at[-1] > self.now - REST_MS or rows >= _ROWS_PER_VISIT:
                return
            self._read(frame)
            self.latest.upto = frame.stop
            rows += frame.count

    def _read(self, frame: Frame) -> None:
        """The messages of a frame, one by one; mostly they are visible and have a key."""
        now, beaten, rest = self.now, self.latest.beaten, set[int]()
        ended = set(each(frame.base, self.partition.void.mask(frame.base, frame.stop)))
        for offset, key, at in zip(range(frame.base, frame.stop), frame.keys(), self._times(frame), strict=True):
            if key is None or at > now or offset in ended:
                self._judge(offset, key, at, offset in ended)
            elif (loser := beaten(key, at, offset)) is not None:
                rest.add(loser)
        if self.needs:
            self.latest.loose.update(offset for offset in rest if offset in self.needs)
            rest -= self.latest.loose
        self.dropped.add_all(sorted(rest))

    def look_again(self) -> None:
        """What was needed and is needed no more is kept only if it is the last of its key."""
        for offset in sorted(offset for offset in self.latest.loose if offset not in self.needs):
            self.latest.loose.discard(offset)
            frame = self.store.log.frame(self.topic.id, self.partition.number, offset)
            if frame is not None:
                row = offset - frame.base
                _, at, _ = order_key(self.topic, frame, row)
                self._judge(offset, frame.keys()[row], at, offset in self.partition.void)

    def drop_keyless(self, line: int, late: Iterable[tuple[int, int]]) -> None:
        """What has no key goes as the other rules say."""
        for start, mask in late:
            self.needs.add(start, mask)
        for start, mask in list(self.latest.keyless.within(0, min(line, self.latest.upto))):
            free = mask & ~self.needs.mask(start, start + mask.bit_length())
            self.latest.keyless.remove(start, free)
            self.dropped.add(start, free)

    def _judge(self, offset: int, key: bytes | None, at: int, ended: bool) -> None:
        if ended:
            self._let_go(offset)
        elif at > self.now:
            self.latest.loose.add(offset)
        elif key is None:
            self.latest.keyless.add(offset, 1)
        else:
            beaten = self.latest.beaten(key, at, offset)
            if beaten is not None:
                self._let_go(beaten)

    def _let_go(self, offset: int) -> None:
        if offset in self.needs:
            self.latest.loose.add(offset)
        else:
            self.dropped.add(offset, 1)

    def _times(self, frame: Frame) -> list[int]:
        """When each message of a frame became or becomes visible."""
        times: list[int] = np.maximum(frame.column_at(), np.asarray(frame.deliver_at, np.int64)).tolist()
        due = self.partition.due
        for offset in due.keys() & set(range(frame.base, frame.stop)) if due else ():
            times[offset - frame.base] = max(frame.at_of(offset - frame.base), abs(due[offset]))
        if self.partition.upto is not None:
            for row, (time, at) in enumerate(zip(times, frame.column_at().tolist(), strict=True)):
                if time > at:
                    times[row] = self.partition.time_of(time, frame.base + row)
        return times


def late(
    store: Store, topic: Topic, partition: Partition, rule: Retention, line: int, now: int
) -> Iterator[tuple[int, int]]:
    """(start, mask) of what is too old, but was visible for a part of that time only: that is what counts."""
    since = oldest(rule, now)
    if since < 0 or rule.on_ack:
        return iter(())
    too_old = store.log.offset_at(topic.id, partition.number, since + 1)
    return shown_since(partition, since, min(max(line, partition.floor), too_old))


def _line(store: Store, topic: Topic, partition: Partition, rule: Retention, now: int) -> int:
    """How far the other rules would drop."""
    log, number = store.log, partition.number
    line = partition.next if rule.on_ack else 0
    if rule.hours is not None:
        line = max(line, log.offset_at(topic.id, number, oldest(rule, now) + 1))
    size = log.size(topic.id, number)
    if rule.bytes is not None and size > rule.bytes:
        line = max(line, allowed(log.sizes(topic.id, number), 0, rule, size, now))
    return line


def _others(dropped: Marks, start: int, stop: int) -> list[tuple[int, int]]:
    """(start, mask) of what is not dropped in [start, stop)."""
    kept = []
    for first in range(start, stop, BLOCK):
        last = min(stop, first + BLOCK)
        mask = full(last - first) & ~dropped.mask(first, last)
        if mask:
            kept.append((first, mask))
    return kept
