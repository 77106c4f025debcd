"""The laws hold through every crash: one history, many lives of the store, all the checkers."""

from __future__ import annotations

import pytest

from tests.simulation.recall import tiny
from tests.simulation.stormy import SCENES, Stormy, complaints

SEEDS = 5


@pytest.mark.parametrize("scene", SCENES)
def test_a_workload_keeps_every_promise_through_crashes(scene: str) -> None:
    with tiny():
        for seed in range(SEEDS):
            found = list(complaints(scene, seed))
            assert not found, f"scene {scene}, seed {seed}: {found[:5]}"


def test_there_are_crashes_and_a_run_can_be_repeated() -> None:
    with tiny():
        first, second = Stormy("admin", 1).run(), Stormy("admin", 1).run()
    assert first.crashes > 10
    assert first.world.disk.digest() == second.world.disk.digest()
