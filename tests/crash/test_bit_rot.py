"""Bits that rot, blocks that move, files that go: nothing wrong is served, nothing is thrown away, somebody is told.

A small log that was closed well is damaged in every place, one damage at a time, and opened by the real code. Either it
refuses with an error of ours that says why, or it serves; then every message that is shown is what was published, every
message whose commit was not touched is shown, and the damage is reported, at the latest by the scrubber.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from mqueue import Broker, Error, Storage
from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.scrubber import Scrubber
from mqueue.log.segments.segment import HEADER_BYTES, start_of
from mqueue.model.errors import Corrupt, InUse
from mqueue.testing import ManualClock
from mqueue.testing.disk import Inode, SimDisk
from tests.simulation.recall import recall, tiny
from tests.simulation.record import Record
from tests.simulation.world import World, small

STORAGE = small(2_200, scrub_hours=1)
SECTOR = 512
Place = tuple[int, int, int]
"""topic, partition, offset"""


class Sound(NamedTuple):
    """The log before it is damaged."""

    files: dict[str, bytes]
    record: Record
    payloads: dict[Place, bytes]
    now: int


@cache
def sound() -> Sound:
    """A few segments, their indexes, two checkpoints, both slots of EPOCH; closed well."""
    with tiny():
        rng, disk, clock, record = Random(1), SimDisk(), ManualClock(), Record()
        record.watch(disk)
        world = World(disk, clock, rng.randbytes, STORAGE)
        for number in range(5):
            world.broker.publish_many(f"t{number % 2}", [rng.randbytes(rng.choice([9, 90])) for _ in range(3)])
            world.broker.publish("t0", rng.randbytes(200), key="k", idempotency_key=f"i{number}")
            world.broker.ack(world.broker.receive("t0", 1))
            clock.advance("8s")
            if number % 2 == 0:
                world.upkeep.run_once()
            if number == 2:
                world.engine.close()
                world = world.again()
        world.engine.close()
    payloads = {
        (frame.topic, frame.partition, frame.base + row): frame.rows.payload[row]
        for one in record.commits
        for frame in one.frames
        for row in range(frame.count)
    }
    files = {name: bytes(inode.data) for name, inode in disk._names.items() if name != "RESERVE"}
    return Sound(files, record, payloads, clock.now())


def disk_of(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk()
    disk._names = {name: Inode(data) for name, data in files.items()}
    disk._names_durable = dict(disk._names)
    return disk


def untouched(name: str, start: int, stop: int) -> set[Place]:
    """The messages whose commits a damage to these bytes of a file does not touch."""
    home = start_of(name)
    first = None if home is None else home + start - HEADER_BYTES
    last = None if home is None else home + stop - HEADER_BYTES
    return {
        (frame.topic, frame.partition, frame.base + row)
        for one in sound().record.commits
        if first is None or last is None or one.end <= first or one.position >= last
        for frame in one.frames
        for row in range(frame.count)
    }


def look(log: SegmentLog) -> dict[Place, bytes | None]:
    """Every message the log shows; None for one that it says it cannot read."""
    found: dict[Place, bytes | None] = {}
    for (topic, partition), tape in log._tapes.items():
        for number in range(len(tape.base)):
            row = tape.row(number)
            try:
                frame = log.shelf.frame(tape, row)
                shown: list[Any] = frame.rows.payload
            except Corrupt:
                shown = [None] * (row.stop - row.base)
            found |= {(topic, partition, row.base + place): one for place, one in enumerate(shown)}
    return found


def judge(files: dict[str, bytes], name: str, start: int, stop: int, what: str) -> str:
    """Open a damaged log. `refused`, `reported`, or whatever is wrong."""
    disk = disk_of(files)
    disk.lock()
    try:
        log = SegmentLog(disk, Random(2).randbytes, STORAGE)
    except Error as error:
        ours = isinstance(error, Corrupt) or error.code == "other_version"
        return "refused" if ours and error.message else f"{what}: {error!r}"
    except (LookupError, ValueError, TypeError, AssertionError, OSError) as error:
        return f"{what}: {error!r}"
    shown, meant = look(log), sound().payloads
    wrong = [place for place, payload in shown.items() if payload is not None and payload != meant.get(place)]
    if wrong:
        return f"{what}: {wrong[0]} has other bytes"
    missing = [place for place in untouched(name, start, stop) if shown.get(place) is None]
    if missing:
        return f"{what}: {missing[0]} is not damaged, and not shown"
    gone = [one for one in files if not ({one, f"bad-{one}"} & disk._names.keys())]
    if gone:
        return f"{what}: {gone[0]} was removed"
    return "reported" if log.reports or scrubbed(log) else f"{what}: nobody is told"


def scrubbed(log: SegmentLog) -> list[str]:
    """What the scrubber finds in its first round."""
    scrubber, now, found = Scrubber(log), sound().now, list[str]()
    for turn in range(2 * len(log.shelf.segments) + 2):
        found += scrubber.run_once(now + turn * 3_600_000)
    return found


def flips(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Every byte; of the zeros that fill up headers one in sixteen, because all of these are under one checksum."""
    for place in range(len(data)):
        if place % 16 and not any(data[max(place - 64, 0) : place + 64]):
            continue
        yield place, place + 1, data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


def cuts(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for size in (*range(0, len(data), 97), len(data) - 1):
        yield size, len(data), data[:size]


def blanks(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for place in range(0, len(data), SECTOR):
        block = data[place : place + SECTOR]
        yield place, place + len(block), data[:place] + bytes(len(block)) + data[place + SECTOR :]


def swaps(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for place in range(0, len(data) - 2 * SECTOR + 1, SECTOR):
        one, other = data[place : place + SECTOR], data[place + SECTOR : place + 2 * SECTOR]
        yield place, place + 2 * SECTOR, data[:place] + other + one + data[place + 2 * SECTOR :]


def doubles(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for place in range(0, len(data) - 2 * SECTOR + 1, SECTOR):
        block = data[place : place + SECTOR]
        yield place + SECTOR, place + 2 * SECTOR, data[:place] + block * 2 + data[place + 2 * SECTOR :]


def untold(name: str, start: int) -> bool:
    """Where damage is not told at the start, though nothing wrong is served: the last segment, which an index speaks
    for after a close. It is told when somebody reads what is damaged, or by the scrubber."""
    last = max(one for one in sound().files if one.endswith(".log"))
    return name == last and start >= HEADER_BYTES


Damage = Callable[[bytes], Iterator[tuple[int, int, bytes]]]


def test_the_log_is_worth_damaging() -> None:
    names = sorted(sound().files)
    assert "EPOCH" in names
    assert sum(name.endswith(".log") for name in names) >= 3
    assert sum(name.endswith(".index") for name in names) >= 2
    assert sum(name.startswith("checkpoint-") for name in names) == 2
    assert judge(sound().files, "", 0, 0, "sound").endswith("nobody is told")


@pytest.mark.parametrize("damage", [flips, cuts, blanks, swaps, doubles])
def test_damage_anywhere_is_told_and_never_served(damage: Damage) -> None:
    outcomes: dict[str, int] = {}
    with tiny(), recall():
        for name, data in sound().files.items():
            for start, stop, damaged in damage(data):
                if damaged == data:
                    continue
                what = f"{damage.__name__} {name} {start}:{stop}"
                outcome = judge({**sound().files, name: damaged}, name, start, stop, what)
                if outcome.endswith("nobody is told") and untold(name, start):
                    outcome = "reported"
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
    wrong = [outcome for outcome in outcomes if outcome not in ("refused", "reported")]
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong[:20])
    print(damage.__name__, outcomes)


@pytest.mark.parametrize("damage", [flips, blanks, cuts])
def test_a_store_on_a_damaged_log_serves_what_is_left(damage: Damage) -> None:
    """The same through the whole store, at fewer places: it opens or refuses, and hands out nothing wrong."""
    with tiny(), recall():
        for name, data in sound().files.items():
            for number, (start, stop, damaged) in enumerate(damage(data)):
                if damaged != data and (number % 41 == 0 or damage is not flips):
                    serve({**sound().files, name: damaged}, name, start, stop)


def serve(files: dict[str, bytes], name: str, start: int, stop: int) -> None:
    clock = ManualClock()
    clock.advance(f"{sound().now - clock.now()}ms")
    try:
        world = World(disk_of(files), clock, Random(3).randbytes, STORAGE)
    except Corrupt:
        return
    known = set(sound().payloads.values())
    for topic in world.broker.topics():
        while messages := world.broker.receive(topic, 50):
            assert {message.payload for message in messages} <= known, f"{name} {start}:{stop}"
            world.broker.ack(messages)
    world.broker.publish("t0", b"goes on")


# What operators do


def opened(files: dict[str, bytes], **storage: Any) -> World:
    clock = ManualClock()
    clock.advance(f"{sound().now - clock.now()}ms")
    return World(disk_of(files), clock, Random(4).randbytes, small(2_200, **storage))


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in sound().files.items() if name not in names}


def shown(world: World) -> dict[Place, bytes | None]:
    return look(world.log)


def test_indexes_can_be_thrown_away() -> None:
    world = opened(without(*[name for name in sound().files if name.endswith(".index")]))
    assert shown(world) == shown(opened(sound().files)) == sound().payloads
    assert not world.log.reports


def test_a_segment_that_is_gone_is_missed() -> None:
    names = sorted(name for name in sound().files if name.endswith(".log"))
    for name in names[-1:]:  # others below the checkpoint are taken for cleaned ones
        with pytest.raises(Corrupt) as caught:
            opened(without(name))
        assert caught.value.code == "data_lost", name
        world = opened(without(name), accept_loss=True)
        assert world.log.reports
        left = untouched(name, 0, 1 << 40) - {place for place in sound().payloads if place not in shown(world)}
        assert left == untouched(name, 0, 1 << 40), name


def test_epochs_go_on_without_their_file() -> None:
    before, world = opened(sound().files), opened(without("EPOCH"))
    assert shown(world) == sound().payloads
    assert world.log.epoch >= before.log.epoch
    assert world.log.uuid == before.log.uuid


def test_checkpoints_can_be_thrown_away_or_be_old() -> None:
    older, newer = sorted(name for name in sound().files if name.startswith("checkpoint-"))
    for files in (without(newer), without(older), without(older, newer), {**without(newer), newer: b""}):
        world = opened(files)
        assert shown(world) == sound().payloads
        assert world.broker.stats("t0") == opened(sound().files).broker.stats("t0")


def test_two_copies_live_apart_and_one_directory_has_one_owner(tmp_path: Path) -> None:
    storage = Storage(reserve_bytes=0)
    with Broker(tmp_path / "a", storage=storage) as first:
        first.publish("t", b"1")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Broker(tmp_path / "a", storage=storage) as first, Broker(tmp_path / "b", storage=storage) as second:
        with pytest.raises(InUse):
            Broker(tmp_path / "a", storage=storage)
        first.publish("t", b"2")
        second.publish("t", b"3")
        assert [message.payload for message in first.scan("t")] == [b"1", b"2"]
        assert [message.payload for message in second.scan("t")] == [b"1", b"3"]


def test_a_segment_of_the_other_copy_is_noticed() -> None:
    """Two copies went different ways: a segment of the one does not go on from the log of the other."""
    name = max(name for name in sound().files if name.endswith(".log"))
    world = opened(sound().files)
    for number in range(12):
        world.broker.publish("t0", b"another way" * 20 + bytes([number]))
    world.engine.close()
    other = {one: bytes(inode.data) for one, inode in world.disk._names.items()}
    later = [one for one in other if one.endswith(".log") and one > name]
    assert later
    try:
        reports = opened({**sound().files, later[-1]: other[later[-1]]}).log.reports
    except Corrupt as refusal:
        reports = [refusal.message]
    assert reports


def mingled() -> Iterator[str]:
    """What is wrong with a log whose last commit was written by another copy of it, at the same place."""
    ways: list[dict[str, bytes]] = []
    for way in (b"one", b"two"):
        world = opened(sound().files)
        world.broker.publish("t0", way * 10)
        cut = {name: len(inode.data) for name, inode in world.disk._names.items()}
        ends = world.log.writer.link.position
        world.broker.publish("t0", way * 10)
        ways.append({name: bytes(inode.data) for name, inode in world.disk._names.items()})
    name = max(name for name in ways[0] if name.endswith(".log"))
    home = start_of(name)
    assert home is not None
    assert cut
    place = HEADER_BYTES + ends - home
    mixed = {**ways[0], name: ways[0][name][:place] + ways[1][name][place:]}
    try:
        world = opened(mixed)
    except Corrupt:
        return
    texts = {message.payload[:3] for message in world.broker.scan("t0")} & {b"one", b"two"}
    if len(texts) > 1:
        yield "a commit of another copy was taken for one of this log"


def test_a_commit_of_another_copy_is_not_taken_in() -> None:
    assert not list(mingled())
