"""docs/scale.md says what the model says, and the model is arithmetic that can be checked by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import scale_model
from benchmarks.scale_model import Cost, Machines, chosen, kept, need
from mqueue.policy.routing import VIRTUAL_SHARDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
ONE = Cost("publish", 1, 100, 1, 1.0, 1000.0, 500.0, 0.01, 0.01, 10.0, 20.0, 1.0, 200.0, 0.0, 0.1, 0.0)


def test_the_page_has_the_tables_of_the_model() -> None:
    assert scale_model.page(kept()) in PAGE


def test_all_sizes_were_measured() -> None:
    found = {(cost.verb, cost.batch, cost.payload) for cost in kept()}
    assert found == {
        (verb, batch, payload)
        for verb in ("publish", "receive and ack")
        for batch in (1, 10, 100, 1000)
        for payload in (100, 1024)
    }
    for cost in kept():
        assert cost.wal_bytes > 0
        assert cost.node_cpu > 0
        assert cost.verb != "publish" or cost.wal_bytes > 0.9 * cost.payload, "random bytes cannot be made smaller"


def test_the_arithmetic() -> None:
    """A million a second: 1 GB/s of WAL is 6.7 servers of 250 MB/s that are 60 % busy, 10 µs are 1.04 of 16 cores."""
    found = need([ONE], 1e6, Machines())
    assert (found.shards, found.by) == (7, "WAL")
    assert found.nodes == math.ceil(20 / 0.6)
    assert found.redis == 2
    assert found.redis_gib == pytest.approx(200e6 * 60 / 2**30)
    assert found.wal_gb_per_second == pytest.approx(1.0)
    assert found.tables_tb_per_day == pytest.approx(43.2)
    assert (found.connections_per_shard, found.breaks) == (34 * 6, ())


def test_what_breaks_is_told() -> None:
    assert need([ONE], 1e9).breaks == ("connections", "looks", "nodes > virtual shards", "shards > virtual shards")


def test_more_is_never_less() -> None:
    for batch in (1, 10, 100, 1000):
        costs = chosen(kept(), batch, 100)
        assert len(costs) == 2
        before, after = (need(costs, rate) for rate in scale_model.RATES.values())
        assert before.shards <= after.shards
        assert before.nodes < after.nodes


def test_the_design_has_the_limits_that_it_is_said_to_have() -> None:
    assert scale_model.VIRTUAL_SHARDS == VIRTUAL_SHARDS
