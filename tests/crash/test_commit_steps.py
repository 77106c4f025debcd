"""A commit that takes several steps, cut at every change of the disk: whoever goes on publishes the rest, once.

Some of what was staged is not named by the commit: it shows after no cut, whoever goes on and whatever he names.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from mqueue import Conflict, Draft
from mqueue.model.times import to_datetime
from mqueue.store import transact
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk
from tests.simulation.images import images, moments
from tests.simulation.recall import tiny
from tests.simulation.world import World

ID = "x/1"
PARTS = 6
BODIES = [[b"%d-%d" % (part, n) for n in range(3)] for part in range(PARTS)]
ALL = sorted(body for part in BODIES for body in part)
NAMES = [str(part) for part in range(PARTS)]


def opened(disk: SimDisk, now: int) -> World:
    return World(disk, ManualClock(to_datetime(now)), Random("entropy").randbytes)


def shown(world: World) -> list[bytes]:
    world.broker.metrics()  # lets time pass: in a new process what has begun goes on by a step
    known = world.broker.topics()
    return sorted(m.payload for topic in ("a", "b", "c") if topic in known for m in world.broker.scan(topic))


def staged(world: World) -> None:
    world.broker.configure("a", partitions=2)
    world.broker.stage(ID, "a", [b"replaced"], part="3")
    world.broker.stage(ID, "a", [b"of a task that failed"] * 3, part="first")
    for part, payloads in enumerate(BODIES):
        keys = (None, "k1", "k2")
        drafts = [Draft(payload, key=key, priority=part) for payload, key in zip(payloads, keys, strict=True)]
        world.broker.stage(ID, "b" if part == 4 else "a", drafts, part=str(part))
        world.broker.stage(ID, "c", [b"of a task that was too slow"] * 3, part=f"slow {part}")
    world.broker.publish("a", b"0-0 of somebody else")


def go_on(world: World) -> None:
    begun = world.broker.transaction(ID).state != "staged"
    done = world.broker.commit(ID, ["first", "slow 0"] if begun else NAMES)
    assert (done.parts, done.messages, done.topics) == (PARTS, len(ALL), ("a", "b"))


def wait(world: World) -> None:
    """Nobody calls again: what has begun is finished all the same."""
    for _ in range(PARTS):
        world.clock.advance("2s")
        world.broker.metrics()


@pytest.mark.parametrize("finish", [go_on, wait])
def test_a_commit_in_steps_survives_every_cut(monkeypatch: pytest.MonkeyPatch, finish: Callable[[World], None]) -> None:
    monkeypatch.setattr(transact, "COMMIT_STEP_MESSAGES", 3)
    found: set[int] = set()
    rng = Random("images")
    with tiny():
        world = opened(SimDisk(), ManualClock().now())
        staged(world)
        now = world.clock.now()

        def look() -> None:
            for kind, make in images(world.disk, rng):
                after = opened(make(), now)
                before = [body for body in shown(after) if body in ALL]
                assert len(before) == len(set(before)), kind
                assert len(before) % 3 == 0, f"{kind}: a step is torn"
                found.add(len(before))
                if before and len(before) < len(ALL):
                    found_open = after.broker.transaction(ID)
                    assert (found_open.state, found_open.messages) == ("committing", len(ALL))
                    with pytest.raises(Conflict):
                        after.broker.abort(ID)
                if before or finish is go_on:
                    finish(after)
                    assert shown(after) == sorted([*ALL, b"0-0 of somebody else"]), kind
                    assert after.broker.commit(ID).state == "committed"
                    assert len(shown(after)) == len(ALL) + 1

        moments(world.disk, look)
        go_on(world)
        world.disk.hook = None
    assert found == {0, *range(6, len(ALL) + 1, 3)}, "every step was cut from the next"
