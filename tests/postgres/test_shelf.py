"""Keys and quotas that several servers keep at one place: no change is lost, and each takes force everywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.migrate import migrate
from mqueue.model.errors import Conflict, Corrupt, ShardDown
from mqueue.server.administration import Administrator
from mqueue.server.placing.shelf import SharedShelf
from mqueue.server.quotas import QuotaFile
from mqueue.server.security.keyfile import NAME, KeyFile
from mqueue.server.security.keys import Keys
from mqueue.server.security.principal import Rejected
from mqueue.testing import ManualClock, PostgresServer

PEPPER = b"pepper-pepper-pepper-pepper-pepper"


class House:
    """An administrator of one node, and what it made hold."""

    def __init__(self, link: Link) -> None:
        self.clock = ManualClock()
        self.shelf = SharedShelf(link)
        key_file, quota_file = KeyFile(self.shelf, PEPPER), QuotaFile(self.shelf)
        self.keys = key_file.load()
        self.quotas: Mapping[str, int] = {}
        self.administrator = Administrator(
            self.clock,
            os.urandom,
            self._take_keys,
            self._take_quotas,
            keys=self.keys,
            key_file=key_file,
            quotas=quota_file.load(),
            quota_file=quota_file,
        )

    def _take_keys(self, keys: Keys) -> None:
        self.keys = keys

    def _take_quotas(self, quotas: Mapping[str, int], default: int | None) -> None:
        self.quotas = dict(quotas)


@pytest.fixture
def houses(links: Callable[[], Link]) -> list[House]:
    return [House(links()), House(links())]


def test_what_one_changes_holds_at_the_other_after_a_look(houses: list[House]) -> None:
    first, second = houses

    async def story() -> None:
        key = await first.administrator.add_key("shop", ["read:a"], None)
        await first.administrator.set_quota("a", 10)
        with pytest.raises(Rejected):
            second.keys.verify(key, 0)
        await second.administrator.look()
        assert second.keys.verify(key, 0).subject == "shop"
        assert second.quotas == {"a": 10}
        await second.administrator.revoke_key("shop")
        assert first.keys.verify(key, 0).subject == "shop"
        await first.administrator.look()
        with pytest.raises(Rejected):
            first.keys.verify(key, 0)

    asyncio.run(story())


def test_a_change_is_made_to_what_is_there_not_to_what_was_known(houses: list[House]) -> None:
    first, second = houses

    async def story() -> None:
        await first.administrator.add_key("shop", ["read:a"], None)
        with pytest.raises(Conflict):
            await second.administrator.add_key("shop", ["read:b"], None)
        await second.administrator.add_key("mill", ["read:b"], None)
        await first.administrator.set_quota("a", 10)
        await second.administrator.set_quota("b", 20)
        assert [record.name for record in await first.administrator.keys()] == ["shop", "mill"]
        assert await first.administrator.quotas() == {"a": 10, "b": 20}

    asyncio.run(story())


def test_nothing_is_lost_though_both_change_at_once(houses: list[House]) -> None:
    async def story() -> None:
        changes = [
            house.administrator.set_quota(f"{name}-{number}", number)
            for number in range(10)
            for name, house in zip("ab", houses, strict=True)
        ]
        await asyncio.gather(*changes)
        for house in houses:
            await house.administrator.look()

    asyncio.run(story())
    everything = {f"{name}-{number}": number for number in range(10) for name in "ab"}
    assert houses[0].quotas == houses[1].quotas == everything


def test_what_somebody_else_wrote_there_is_told_and_changes_nothing(houses: list[House], link: Link) -> None:
    first, _ = houses

    async def story() -> None:
        key = await first.administrator.add_key("shop", ["read:a"], None)
        link.call("update mqueue.documents set version = 7, body = 'x' where name = %b::text", (NAME,))
        with pytest.raises(Corrupt, match=r"keys\.json was changed by somebody else, or the pepper is another one"):
            await first.administrator.look()
        assert first.keys.verify(key, 0).subject == "shop"

    asyncio.run(story())


def test_while_the_server_is_away_what_is_known_holds_and_nothing_can_be_changed() -> None:
    with PostgresServer() as server:
        link = Link(server.create("mine"), "test")
        migrate(link)
        house = House(link)

        async def story() -> None:
            key = await house.administrator.add_key("shop", ["read:a"], None)
            server.stop()
            for call in (
                house.administrator.look(),
                house.administrator.revoke_key("shop"),
                house.administrator.set_quota("a", 10),
            ):
                with pytest.raises(ShardDown):
                    await call
            assert house.keys.verify(key, 0).subject == "shop"
            assert [record.revoked_at for record in await house.administrator.keys()] == [None]
            assert await house.administrator.quotas() == {}

        asyncio.run(story())
        link.close()
