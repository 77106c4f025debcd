"""The crash proof: hundreds of thousands of disks that a crash could leave, each recovered by the real code.

`MQUEUE_SIM_STATES` sets how many states; `make sim SEED=n` shows what a seed does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context

import pytest

from tests.simulation.recall import recall, tiny
from tests.simulation.run import Outcome, simulate

STATES = int(os.environ.get("MQUEUE_SIM_STATES") or 200_000)
SEEDS_MAX = 10_000
FIRST_SEED = int(os.environ.get("MQUEUE_SIM_SEED") or 0)


def run(seed: int) -> Outcome:
    with recall(), tiny():
        return simulate(seed)


def outcomes() -> Iterator[Outcome]:
    """Seed after seed, on all processors, for as long as somebody wants more."""
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        yield from pool.imap(run, range(FIRST_SEED, FIRST_SEED + SEEDS_MAX))


@pytest.mark.timeout(0)
def test_no_crash_breaks_a_promise(record_property: pytest.RecordProperty) -> None:
    states = stores = 0
    with closing(outcomes()) as found:
        for outcome in found:
            assert not outcome.violations, f"make sim SEED={outcome.seed}\n" + "\n".join(outcome.violations)
            states, stores = states + outcome.states, stores + outcome.stores
            if states >= STATES:
                break
    assert states >= STATES
    record_property("states", states)
    print(f"seeds {FIRST_SEED} to {outcome.seed}: {states} states, {stores} of them as whole stores")


def test_the_same_seed_does_the_same() -> None:
    with tiny():
        with recall():
            first = [simulate(seed, steps=12) for seed in range(3)]
        second = [simulate(seed, steps=12) for seed in range(3)]  # and recovery comes out the same without recall
    assert first == second
    assert len({outcome.digest for outcome in first}) == 3
