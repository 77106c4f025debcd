"""What is administered while a server runs: durable before it holds, and nothing of it where that fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping

import pytest

from mqueue.model.errors import BadName, BadSetting, Conflict, Corrupt, DiskFull, NotFound, Refused, Unavailable
from mqueue.server.administration import Administrator
from mqueue.server.quotas import NAME, QuotaFile
from mqueue.server.security.keyfile import KeyFile
from mqueue.server.security.keys import Keys
from mqueue.server.security.principal import Rejected
from mqueue.server.shelf import DiskShelf
from mqueue.testing import ManualClock
from mqueue.testing.disk import SimDisk

PEPPER = b"pepper-pepper-pepper-pepper-pepper"


class Failing:
    """A file that cannot be written."""

    def __init__(self, number: int) -> None:
        self._number = number

    def is_stale(self) -> bool:
        return False

    def save(self, _: object) -> bool:
        raise OSError(self._number, os.strerror(self._number))


class House:
    """An administrator over a disk, and what it made hold."""

    def __init__(self, disk: SimDisk, **instead: object) -> None:
        self.clock = ManualClock()
        self.files = {"key_file": KeyFile(DiskShelf(disk), PEPPER), "quota_file": QuotaFile(DiskShelf(disk))}
        self.keys: Keys = self.files["key_file"].load()
        self.quotas: tuple[Mapping[str, int], int | None] = ({}, None)
        given = {**self.files, "keys": self.keys, "quotas": self.files["quota_file"].load(), **instead}
        self.administrator = Administrator(self.clock, os.urandom, self._take_keys, self._take_quotas, **given)

    def _take_keys(self, keys: Keys) -> None:
        self.keys = keys

    def _take_quotas(self, quotas: Mapping[str, int], default: int | None) -> None:
        self.quotas = (dict(quotas), default)


@pytest.fixture
def disk() -> SimDisk:
    found = SimDisk()
    found.lock()
    return found


def test_keys_and_quotas_outlive_the_server(disk: SimDisk) -> None:
    house = House(disk)

    async def story() -> str:
        first = await house.administrator.add_key("first", ["read:a"], None)
        await house.administrator.add_key("second", ["write:a"], None)
        await house.administrator.revoke_key("second")
        await house.administrator.set_quota("a", 10)
        await house.administrator.set_quota("b", 20)
        await house.administrator.set_quota("b", None)
        return first

    key = asyncio.run(story())
    assert house.keys.verify(key, house.clock.now()).subject == "first"
    again = House(disk)
    assert again.keys.verify(key, again.clock.now()).subject == "first"
    assert [(record.name, record.revoked_at is None) for record in again.keys.records] == [
        ("first", True),
        ("second", False),
    ]
    again.administrator.configure({}, None)
    assert again.quotas == ({"a": 10}, None)


def test_what_was_set_stands_above_the_configuration_until_it_is_taken_away(disk: SimDisk) -> None:
    house = House(disk)

    async def story() -> None:
        house.administrator.configure({"a": 1, "c": 3}, 100)
        await house.administrator.set_quota("a", 10)
        assert house.quotas == ({"a": 10, "c": 3}, 100)
        house.administrator.configure({"a": 2}, None)
        assert await house.administrator.quotas() == {"a": 10}
        await house.administrator.set_quota("a", None)
        assert house.quotas == ({"a": 2}, None)

    asyncio.run(story())


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, Unavailable)])
def test_what_cannot_be_written_does_not_hold(disk: SimDisk, number: int, kind: type[Exception]) -> None:
    house = House(disk, key_file=Failing(number), quota_file=Failing(number))

    async def story() -> None:
        with pytest.raises(kind):
            await house.administrator.set_quota("a", 10)
        with pytest.raises(kind):
            await house.administrator.add_key("first", ["read:a"], None)
        assert await house.administrator.quotas() == {}
        assert list(await house.administrator.keys()) == []

    asyncio.run(story())
    assert house.keys.records == ()
    assert house.quotas == ({}, None)


def test_bad_input_changes_nothing(disk: SimDisk) -> None:
    house = House(disk)

    async def story() -> None:
        for call, kind in (
            (house.administrator.set_quota("no name", 1), BadName),
            (house.administrator.set_quota("a", -1), BadSetting),
            (house.administrator.add_key("no name", ["read:a"], None), BadName),
            (house.administrator.add_key("k", ["sing:a"], None), BadSetting),
            (house.administrator.add_key("k", ["read:a"], house.clock.now()), BadSetting),
            (house.administrator.revoke_key("k"), NotFound),
        ):
            with pytest.raises(kind):
                await call
        await house.administrator.add_key("k", ["read:a"], None)
        with pytest.raises(Conflict):
            await house.administrator.add_key("k", ["read:b"], None)

    asyncio.run(story())
    assert [record.name for record in house.keys.records] == ["k"]


def test_a_caller_who_leaves_does_not_part_the_disk_from_what_holds(disk: SimDisk) -> None:
    house = House(disk)

    async def story() -> None:
        changing = asyncio.ensure_future(house.administrator.set_quota("a", 10))
        while not house.administrator._turn.locked():
            await asyncio.sleep(0)
        changing.cancel()
        await asyncio.wait([changing])
        await house.administrator.set_quota("b", 20)

    asyncio.run(story())
    assert QuotaFile(DiskShelf(disk)).load() == house.quotas[0]


def test_a_key_ends_at_its_time(disk: SimDisk) -> None:
    house = House(disk)
    key = asyncio.run(house.administrator.add_key("k", ["read:a"], house.clock.now() + 1000))
    assert house.keys.verify(key, house.clock.now()).subject == "k"
    house.clock.advance("1s")
    with pytest.raises(Rejected):
        house.keys.verify(key, house.clock.now())


def test_without_keys_as_a_way_in_none_are_made(disk: SimDisk) -> None:
    house = House(disk, keys=None)
    with pytest.raises(Refused, match=r"security\.auth") as caught:
        asyncio.run(house.administrator.add_key("k", ["read:a"], None))
    assert caught.value.code == "keys_off"
    assert asyncio.run(house.administrator.keys()) == ()


def test_a_damaged_file_of_quotas_is_told(disk: SimDisk) -> None:
    QuotaFile(DiskShelf(disk)).save({"a": 1})
    file = disk.open(NAME)
    disk.pwrite(file, b"x", 12)
    disk.close(file)
    with pytest.raises(Corrupt, match=r"quotas\.json"):
        QuotaFile(DiskShelf(disk)).load()
