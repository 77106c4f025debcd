"""A primary dies under a load, and then comes back as if nothing had happened; more of them: `make failover`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.failover.campaign import BACK_SECONDS_MAX, run, staged
from tests.cluster.failover.engines import Primaries, Sentinels


def test_a_primary_dies_and_nothing_is_lost(tmp_path: Path) -> None:
    with closing(Primaries()) as engine, staged(tmp_path, engine, [engine.url], 2) as stage:
        result = run(stage, engine, 1, rate=100)
    assert not result.wrong, str(result)
    assert result.sure > 0
    assert max(result.gaps) < BACK_SECONDS_MAX


@pytest.mark.long
@pytest.mark.timeout(600)
def test_masters_of_redis_die_and_nothing_is_lost(tmp_path: Path, database: str) -> None:
    with closing(Sentinels()) as engine, staged(tmp_path, engine, [database], 2) as stage:
        result = run(stage, engine, 3, rate=100)
    assert not result.wrong, str(result)
    assert result.sure > 0
