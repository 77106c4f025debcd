"""Nodes are restarted one after the other, and no client notices. More of it: `make rolling`."""

from __future__ import annotations

from pathlib import Path

from mqueue.testing import PostgresServer
from tests.cluster.faults.run import HELD_BRIEFLY
from tests.cluster.faults.stage import Stage
from tests.cluster.rolling.run import run


def test_nobody_notices_that_nodes_are_restarted(postgres: PostgresServer, tmp_path: Path) -> None:
    databases = [postgres.create(f"rolling_{number}") for number in range(2)]
    with Stage(tmp_path, nodes=2, databases=databases) as stage:
        outcome = run(stage, rounds=1, seed=0, held=HELD_BRIEFLY, rate=300)
    assert outcome.messages > 100
    assert not outcome.failed, str(outcome)
    assert not outcome.wrong, str(outcome)
