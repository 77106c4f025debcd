"""A user of Redis with the rights that docs/cluster.md names can do all that a node does there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from mqueue.cluster.redis.lending import Lender
from mqueue.cluster.redis.line import Access
from mqueue.cluster.redis.outpost import Outpost
from mqueue.cluster.redis.wake import Wake
from mqueue.cluster.shares import SharedQuotas
from mqueue.cluster.wal.copies import Copies
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.tape import Place
from mqueue.model.errors import QuotaExceeded
from mqueue.testing import RedisServer
from tests.cluster.patience import PATIENCE_SECONDS, wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
HEARD: list[Wake] = []
NOW = 1_800_000_000_000


@pytest.fixture
def outpost() -> Iterator[Outpost]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (command,) = [line.split() for line in lines if line.startswith("ACL SETUSER")]
    with RedisServer() as server:
        with closing(Redis("127.0.0.1", server.port, password=server.password, protocol=2)) as client:
            client.execute_command(*command)
        access = Access((f"127.0.0.1:{server.port}",), username="mq", password="secret")
        with closing(Outpost(access, uuid4(), heard=HEARD.append)) as outpost:
            outpost.start()
            yield outpost


def test_the_rights_suffice(outpost: Outpost) -> None:
    assert outpost.ear.listens.wait(PATIENCE_SECONDS)
    annex, arrival = outpost.annex("shard0"), Arrival(3, 1, 40, 2, 7_000, 5, 9, b"h" * 88, None, b"body")
    annex.keep([arrival])
    annex.wake(1, [arrival], lambda: None)
    wait_until(lambda: bool(HEARD))
    assert annex.find(3, 1, [Place(40, 2, 7_000, 5, 9, 40)])
    _lends(outpost)
    _logs(outpost)


def _lends(outpost: Outpost) -> None:
    quotas = [SharedQuotas({"shop": 60}) for _ in range(2)]
    lenders = [Lender(outpost.line, each, number, lambda: 2, lambda: NOW) for number, each in enumerate(quotas)]
    for lender in lenders:
        lender.run_once()
    with pytest.raises(QuotaExceeded):
        quotas[0].admit("shop", 50, NOW)
    for lender in (*lenders, *lenders):
        lender.run_once()
    assert lenders[1].lent
    assert lenders[0].borrowed


def _logs(outpost: Outpost) -> None:
    logs, log = Copies(outpost.line, "shard0"), uuid4()
    logs.put(log, uuid4(), [(0, b"x")])
    assert [listed.uuid for listed in logs.listed()] == [log]
    logs.drop_before(log, 1)
    assert logs.listed() == []
