"""A shard that Patroni manages: it promotes by itself, under a load. More: `make failover ARGS="--only patroni"`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.failover.campaign import BACK_SECONDS_MAX, run, staged
from tests.cluster.failover.patroni import Patroni, missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.system,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.mark.timeout(600)
def test_patroni_promotes_and_nothing_is_lost(tmp_path: Path) -> None:
    """Twice the machine of the primary dies; then nobody watches it, and it takes itself for the primary."""
    with closing(Patroni()) as engine, staged(tmp_path, engine, [engine.url], 2) as stage:
        result = run(stage, engine, 3, rate=100)
    assert not result.wrong, str(result)
    assert result.sure > 0
    assert max(result.gaps) < BACK_SECONDS_MAX
