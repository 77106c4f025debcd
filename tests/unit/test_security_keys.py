"""API keys: shown once, kept hashed, ended and taken back; their file survives power cuts and shows tampering."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.log.segments.disk import RealDisk
from mqueue.model.errors import BadName, BadSetting, Conflict, Corrupt, NotFound, Unauthorized
from mqueue.server.security.keyfile import NAME, KeyFile
from mqueue.server.security.keys import KEY_LENGTH, Keys, make_key, well_formed
from mqueue.server.security.principal import UNIFORM, Rejected
from mqueue.server.shelf import DiskShelf
from mqueue.testing.disk import SimDisk

NOW = 1_768_402_800_000
PEPPER = bytes(range(32))
ENTROPY = bytes(range(100, 132))


def refused(keys: Keys, text: str, now: int = NOW) -> str:
    with pytest.raises(Unauthorized) as caught:
        keys.verify(text, now)
    assert caught.value.message == UNIFORM
    assert isinstance(caught.value, Rejected)
    return caught.value.why


@given(st.binary(min_size=32, max_size=32))
def test_every_key_has_one_shape(entropy: bytes) -> None:
    key = make_key(entropy)
    assert len(key) == KEY_LENGTH
    assert key.startswith("mq_")
    assert key.isascii()
    assert key[3:].isalnum()
    assert well_formed(key)


def test_the_ends_of_the_range_are_told_apart() -> None:
    assert len({make_key(bytes(32)), make_key(b"\xff" * 32), make_key(bytes(31) + b"\x01")}) == 3
    for wrong in (b"", bytes(31), bytes(33)):
        with pytest.raises(BadSetting):
            make_key(wrong)


def test_a_typing_error_is_seen_without_looking_anything_up() -> None:
    key = make_key(ENTROPY)
    for place in range(len(key)):
        assert not well_formed(key[:place] + ("x" if key[place] != "x" else "y") + key[place + 1 :])
        assert not well_formed(key[:place])
    for wrong in (key + "0", " " + key, key.upper(), "", "mq_", key[:-1] + "\u0660"):
        assert not well_formed(wrong)


def test_a_key_opens_what_it_was_made_for() -> None:
    keys = Keys(PEPPER)
    key = keys.add("billing", ["write:a/invoices"], now=NOW, entropy=ENTROPY)
    who = keys.verify(key, NOW)
    assert (who.subject, who.via) == ("billing", "key")
    assert who.allows("publish", "a", "invoices")
    assert not who.allows("publish", "a", "orders")
    assert refused(keys, make_key(bytes(32))) == "unknown key"
    assert refused(keys, key[:-1]) == "not a key"
    assert refused(keys, "") == "not a key"


def test_a_key_ends_and_is_taken_back() -> None:
    keys = Keys(PEPPER)
    key = keys.add("a", ["read:a"], now=NOW, entropy=ENTROPY, expires_at=NOW + 10)
    other = keys.add("b", ["read:a"], now=NOW, entropy=bytes(32))
    assert keys.verify(key, NOW + 9)
    assert refused(keys, key, NOW + 10) == "key expired"
    keys.revoke("b", NOW + 5)
    keys.revoke("b", NOW + 6)
    assert refused(keys, other, NOW) == "key revoked"
    assert [record.revoked_at for record in keys.records] == [None, NOW + 5]
    with pytest.raises(NotFound):
        keys.revoke("c", NOW)
    with pytest.raises(Conflict):
        keys.add("b", ["read:a"], now=NOW, entropy=b"\x01" * 32)


def test_bad_keys_are_not_made() -> None:
    keys = Keys(PEPPER)
    with pytest.raises(BadName):
        keys.add("a b", ["read:a"], now=NOW, entropy=ENTROPY)
    with pytest.raises(BadSetting):
        keys.add("a", ["read:a*"], now=NOW, entropy=ENTROPY)
    with pytest.raises(BadSetting):
        keys.add("a", ["read:a"], now=NOW, entropy=ENTROPY, expires_at=NOW)
    with pytest.raises(BadSetting):
        Keys(b"short")
    assert keys.records == ()


def test_another_pepper_opens_nothing() -> None:
    keys = Keys(PEPPER)
    key = keys.add("a", ["read:a"], now=NOW, entropy=ENTROPY)
    assert refused(Keys(b"p" * 32, keys.records), key) == "unknown key"
    assert Keys(b"p" * 100).add("a", ["read:a"], now=NOW, entropy=ENTROPY) == key, "long peppers work too"


def saved(disk: SimDisk) -> tuple[Keys, str]:
    disk.lock()
    keys = Keys(PEPPER)
    key = keys.add("a", ["read:a"], now=NOW, entropy=ENTROPY)
    KeyFile(DiskShelf(disk), PEPPER).save(keys)
    return keys, key


def contents(disk: SimDisk) -> bytes:
    file = disk.open(NAME)
    try:
        return disk.pread(file, disk.size(file), 0)
    finally:
        disk.close(file)


def test_a_file_gives_back_what_it_was_given(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "keys")
    disk.lock()
    try:
        book = KeyFile(DiskShelf(disk), PEPPER)
        keys = book.load()
        assert keys.records == ()
        key = keys.add("a", ["read:a"], now=NOW, entropy=ENTROPY)
        book.save(keys)
        assert book.load().verify(key, NOW).subject == "a"
        path = tmp_path / "keys" / NAME
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert key.encode() not in path.read_bytes()
        assert ENTROPY.hex().encode() not in path.read_bytes()
        assert PEPPER.hex().encode() not in path.read_bytes()
    finally:
        disk.unlock()


def test_every_changed_byte_is_noticed() -> None:
    disk = SimDisk()
    saved(disk)
    good = contents(disk)
    for place in range(len(good) - 1):
        disk.pwrite(file := disk.open(NAME), bytes([good[place] ^ 1]), place)
        with pytest.raises(Corrupt):
            KeyFile(DiskShelf(disk), PEPPER).load()
        disk.pwrite(file, good[place : place + 1], place)
        disk.close(file)
    assert KeyFile(DiskShelf(disk), PEPPER).load().records
    with pytest.raises(Corrupt):
        KeyFile(DiskShelf(disk), b"p" * 32).load()


@pytest.mark.parametrize("text", [b"", b"\n", b"{}", b"x\n{}\n"])
def test_what_is_not_ours_is_not_read(text: bytes) -> None:
    disk = SimDisk()
    disk.lock()
    disk.pwrite(disk.open(NAME, create=True), text, 0)
    with pytest.raises(Corrupt):
        KeyFile(DiskShelf(disk), PEPPER).load()


def test_a_widened_scope_under_the_old_seal_is_noticed() -> None:
    disk = SimDisk()
    saved(disk)
    seal, sheet, _ = contents(disk).split(b"\n")
    wide = json.loads(sheet)
    wide["keys"][0]["scopes"] = ["*:*"]
    disk.pwrite(disk.open(NAME, create=True), seal + b"\n" + json.dumps(wide).encode() + b"\n", 0)
    with pytest.raises(Corrupt):
        KeyFile(DiskShelf(disk), PEPPER).load()


def test_a_version_to_come_is_not_guessed_at() -> None:
    disk = SimDisk()
    saved(disk)
    sheet = contents(disk).split(b"\n")[1].replace(b'"version":1', b'"version":2')
    seal = KeyFile(DiskShelf(disk), PEPPER)._seal(sheet)
    disk.pwrite(disk.open(NAME, create=True), seal + b"\n" + sheet + b"\n", 0)
    with pytest.raises(Corrupt, match="version"):
        KeyFile(DiskShelf(disk), PEPPER).load()


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_step_leaves_the_old_keys_or_the_new(seed: int) -> None:
    rng, step, done = Random(seed), 0, False
    while not done:
        disk = SimDisk(seed=seed)
        keys, key = saved(disk)
        keys.revoke("a", NOW + 1)
        left = step

        def cut(op: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut

        disk.hook = cut
        try:
            KeyFile(DiskShelf(disk), PEPPER).save(keys)
            done = True
        except PowerCut:
            pass
        disk.hook = None
        after = disk.crash(rng)
        after.lock()
        found = KeyFile(DiskShelf(after), PEPPER).load()
        assert [record.name for record in found.records] == ["a"]
        if done:
            assert refused(found, key) == "key revoked", "what was answered is durable"
        step += 1
    assert step > 4, "the save has several steps to be cut between"


@pytest.mark.parametrize("op", ["open", "pwrite", "sync", "rename"])
def test_a_failing_disk_leaves_the_old_keys(op: str) -> None:
    disk = SimDisk()
    keys, key = saved(disk)
    keys.add("b", ["read:a"], now=NOW, entropy=bytes(32))
    disk.fail(op)
    with pytest.raises(OSError, match="Errno"):
        KeyFile(DiskShelf(disk), PEPPER).save(keys)
    assert [record.name for record in KeyFile(DiskShelf(disk), PEPPER).load().records] == ["a"]
    assert KeyFile(DiskShelf(disk), PEPPER).load().verify(key, NOW)
