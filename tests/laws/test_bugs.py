"""Every planted bug must be caught, by the checker that is there for it: one that misses its bug fails the build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tests.laws.bugs_retention  # noqa: F401  (it adds its bugs to the board)
from tests.laws.bugs import BUGS, Bug
from tests.laws.checkers import CHECKERS
from tests.laws.probes import by_ids, by_model, by_walks, by_workload
from tests.laws.profile import SEED

SEEDS = range(6)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    caught: set[str] = set()
    for seed in SEEDS:
        caught |= {checker for checker, _ in look(bug.where, seed)}
        if bug.caught_by in caught:
            return
    pytest.fail(f"{bug.name} was not caught by {bug.caught_by}, only by {sorted(caught) or 'nobody'}")


def look(where: str, seed: int) -> Iterator[tuple[str, str]]:
    if where == "ids":
        return by_ids()
    if where == "walks":
        return by_walks(seed)
    if where == "model":
        return by_model(SEED + seed)
    return by_workload(where, seed)


def test_there_are_enough_bugs_and_every_checker_has_one() -> None:
    assert len(BUGS) >= 20
    assert set(CHECKERS) | {"fold", "model"} == {bug.caught_by for bug in BUGS}
