"""Assigned groups under random lives, and that our checks would notice if they were broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mqueue.heart import checkpoint, members
from mqueue.heart.crew import Crew, CrewPoint, crew_point
from mqueue.heart.schedule import NEVER
from mqueue.heart.turns import Turns
from mqueue.policy.assignment import assign
from tests.laws.crews import Lives
from tests.laws.profile import LONG

SEEDS = range(400 if LONG else 25)


def problems_of(seeds: range, steps: int = 120) -> list[str]:
    for seed in seeds:
        lives = Lives(seed)
        lives.run(steps)
        if lives.problems:
            return [f"seed {seed}", *lives.problems]
    return []


def test_random_lives_keep_every_promise() -> None:
    assert problems_of(SEEDS) == []


def _all_move(members: Any, owners: Any) -> list[str]:
    turned = assign(members, [""] * len(owners))
    return turned[1:] + turned[:1]


def _uneven(members: Any, owners: Any) -> list[str]:
    return [members[0] if members else ""] * len(owners)


def _hasty(crew: Crew) -> tuple[int, ...]:
    return tuple(sorted(number for number in crew.moving if crew.targets[number]))


def _keeps_taking(crew: Crew, member: str) -> tuple[int, ...]:
    return tuple(crew.owned_by(member))


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "everything moves": lambda patch: patch.setattr(members, "assign", _all_move),
    "one gets all": lambda patch: patch.setattr(members, "assign", _uneven),
    "handed on while it is held": lambda patch: patch.setattr(Crew, "ripe", property(_hasty)),
    "what is revoked is still delivered": lambda patch: patch.setattr(Crew, "seats_of", _keeps_taking),
    "the dead keep their leases": lambda patch: patch.setattr(members, "_give_up", lambda *_: None),
    "nobody looks after them": lambda patch: patch.setattr(Crew, "next_at", NEVER),
    "what is settled is not counted": lambda patch: patch.setattr(Crew, "let_go", lambda *_: None),
    "turns go by all partitions": lambda patch: patch.setattr(Turns, "take", _of_all),
    "what was lined up is forgotten with its owner": lambda patch: patch.setattr(Turns, "_may_go", lambda *_: False),
    "a checkpoint forgets what moves": lambda patch: patch.setattr(checkpoint, "crew_point", _forgetful),
}


def _of_all(turns: Turns, limit: int, deadline: int, now: int, only: Any, real: Any = Turns.take) -> Any:
    return real(turns, limit, deadline, now)


def _forgetful(crew: Crew) -> CrewPoint:
    return replace(crew_point(crew), moving=())


@pytest.mark.parametrize("name", BUGS)
def test_the_checks_notice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    try:
        found = problems_of(range(20))
    except (AssertionError, KeyError, IndexError):  # the state itself falls over it
        return
    assert found, "nobody noticed"
