"""The crash proof: hundreds of thousands of disks that a crash could leave, each recovered by the real code.

`MQUEUE_SIM_STATES` sets how many states; `make sim SEED=n` shows what a seed does.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.recall import recall, tiny
from tests.simulation.run import simulate

STATES = int(os.environ.get("MQUEUE_SIM_STATES") or 200_000)
FIRST_SEED = int(os.environ.get("MQUEUE_SIM_SEED") or 0)


@pytest.mark.timeout(0)
def test_no_crash_breaks_a_promise(record_property: pytest.RecordProperty) -> None:
    states, stores, seed = 0, 0, FIRST_SEED
    with recall(), tiny():
        while states < STATES:
            outcome = simulate(seed)
            assert not outcome.violations, f"make sim SEED={seed}\n" + "\n".join(outcome.violations)
            states, stores, seed = states + outcome.states, stores + outcome.stores, seed + 1
    record_property("states", states)
    print(f"seeds {FIRST_SEED} to {seed - 1}: {states} states, {stores} of them as whole stores")


def test_the_same_seed_does_the_same() -> None:
    with tiny():
        with recall():
            first = [simulate(seed, steps=12) for seed in range(3)]
        second = [simulate(seed, steps=12) for seed in range(3)]  # and recovery comes out the same without recall
    assert first == second
    assert len({outcome.digest for outcome in first}) == 3
