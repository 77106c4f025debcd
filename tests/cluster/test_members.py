"""A group of 8 whose members come and go under a load; longer, and how long it pauses: `tests.cluster.members`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.faults.stage import Stage
from tests.cluster.members import alone, killed

LEASE_SECONDS = 30.0


@pytest.mark.timeout(300)
def test_members_come_and_go() -> None:
    outcome = alone(6.0, seed=0)
    assert not outcome.wrong, str(outcome)
    assert outcome.joins > 8
    assert outcome.told == outcome.rebalances > 8
    assert outcome.paused < LEASE_SECONDS, "what moved waited for no lease to run out"
    assert outcome.acked == outcome.sent


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_owner_is_killed(tmp_path: Path) -> None:
    with Stage(tmp_path, servers=1) as stage:
        outcome = killed(stage, 16.0, seed=0)
    assert not outcome.wrong, str(outcome)
