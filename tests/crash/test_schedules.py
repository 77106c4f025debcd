"""A schedule at work, cut at every change of the disk: whoever goes on publishes each occurrence once."""

from __future__ import annotations

from random import Random

from mqueue.model.times import rfc3339, to_datetime
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from tests.simulation.images import images, moments
from tests.simulation.world import World

START = ManualClock().now()
SECONDS = 8
THIN = 3
"""Of the images that differ from each other one in so many is looked at."""


def opened(disk: SimDisk, now: int) -> World:
    return World(disk, ManualClock(to_datetime(now)), Random("entropy").randbytes)


def occurrences(world: World) -> list[str]:
    """What was published by now; time passes first."""
    world.broker.metrics()
    return [str(m.headers["mqueue-occurrence"]) for m in world.broker.scan("t")]


def expected(now: int) -> list[str]:
    return [rfc3339(at) for at in range(START + 1000, now + 1, 1000)]


def test_each_occurrence_is_published_once_whatever_is_cut() -> None:
    rng = Random("images")
    looked = 0
    world = opened(SimDisk(), START)
    world.broker.schedules("t").add(b"x", every="1s", misfire="all", name="n")

    def look() -> None:
        nonlocal looked
        for kind, make in images(world.disk, rng, THIN):
            now = world.clock.now()
            after = opened(make(), now)
            assert occurrences(after) == expected(now), kind
            after.clock.advance("2s")
            assert occurrences(after) == expected(now + 2000), kind
            looked += 1

    moments(world.disk, look)
    for second in range(SECONDS):
        world.clock.advance("1s")
        world.broker.metrics()
        if second % 3 == 2:
            world.upkeep.save_points()
    world.disk.hook = None
    assert occurrences(world) == expected(START + SECONDS * 1000)
    assert world.broker.schedules("t").get("n").count == SECONDS
    assert looked > 50
