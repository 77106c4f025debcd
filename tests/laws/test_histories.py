"""Seeded workloads on the real broker: every checker, and the fold of the log, must have nothing to say."""

from __future__ import annotations

import pytest

from tests.laws.probes import by_ids, by_threads, by_walks, by_workload
from tests.laws.profile import LONG
from tests.laws.workload import SCENES, Workload

pytestmark = pytest.mark.timeout(0 if LONG else 300)
SEEDS = range(60 if LONG else 6)


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_a_workload_keeps_every_promise(scene: str) -> None:
    for seed in SEEDS if scene != "crowd" else SEEDS[:2]:
        assert not list(by_workload(scene, seed)), f"scene {scene}, seed {seed}"


def test_threads_keep_every_promise() -> None:
    for seed in SEEDS:
        assert not list(by_threads(seed)), f"seed {seed}"


def test_retention_keeps_every_promise() -> None:
    for seed in SEEDS:
        assert not list(by_walks(seed)), f"seed {seed}"


def test_ids_under_a_jumping_clock() -> None:
    assert not list(by_ids())


def test_a_run_can_be_repeated() -> None:
    """The same seed gives the same history: nothing but the seed decides."""

    def story(seed: int) -> list[object]:
        records = Workload("admin", seed).run().history.of("receive", "settle", "publish", res=None)
        return [(r.op, r.at, r.res, _told(r.val)) for r in records]

    assert story(3) == story(3)
    assert story(3) != story(4)


def _told(val: object) -> object:
    """Without tokens, which are random."""
    return val[1] if isinstance(val, tuple) else val
