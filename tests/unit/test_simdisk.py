"""The simulated disk: what each kind of power cut may leave, what it must, and that faults are as bad as real ones."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.log.segments.disk import Disk
from mqueue.model.errors import InUse
from mqueue.testing.disk import SimDisk
from mqueue.testing.power import BLOCK, KINDS, SECTOR

OLD, NEW = b"o" * 700, b"n" * 2000


def locked(**settings: int) -> SimDisk:
    disk = SimDisk(**settings)
    disk.lock()
    return disk


def written(name: str = "a", data: bytes = OLD, *, on: SimDisk | None = None) -> tuple[SimDisk, int]:
    """A disk with one file that is safe."""
    disk = on or locked()
    file = disk.open(name, create=True)
    disk.pwrite(file, data, 0)
    disk.sync(file)
    disk.sync_dir()
    return disk, file


def content(disk: SimDisk) -> dict[str, bytes]:
    disk.lock()
    return {name: disk.read(name) for name in disk.list()}


def images(disk: SimDisk, kind: str | None = None, number: int = 300) -> list[dict[str, bytes]]:
    before = disk.digest(), disk.ops
    found = [content(disk.crash(Random(seed), kind)) for seed in range(number)]
    assert (disk.digest(), disk.ops) == before
    return found


def bodies(disk: SimDisk, kind: str) -> set[bytes]:
    return {image["a"] for image in images(disk, kind)}


def test_it_is_a_disk_that_reads_what_was_written() -> None:
    disk, file = written(data=b"hello")
    same: Disk = disk
    same.pwrite(file, b"!", 7)
    assert same.pread(file, 100, 3) == b"lo\0\0!"
    assert same.size(file) == 8
    same.truncate(file, 2)
    assert disk.read("a") == b"he"
    same.truncate(file, 4)
    assert disk.read("a") == b"he\0\0"
    same.rename("a", "b")
    assert same.list() == ["b"]
    assert same.pread(file, 2, 0) == b"he"
    assert same.size(same.open("b", create=True)) == 0
    same.unlink("b")
    assert same.list() == []
    assert same.pread(file, 2, 0) == b""


def test_errors_are_those_of_the_system() -> None:
    disk, file = written()
    for call in (lambda: disk.open("x"), lambda: disk.unlink("x"), lambda: disk.rename("x", "y")):
        with pytest.raises(FileNotFoundError):
            call()
    disk.close(file)
    for call in (lambda: disk.sync(file), lambda: disk.pwrite(file, b"", 0), lambda: disk.close(file)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
    assert disk.open("a") != file
    with pytest.raises(InUse):
        disk.lock()
    disk.unlock()
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.list()


def test_none_and_all() -> None:
    disk, file = written()
    disk.pwrite(file, NEW, 100)
    disk.open("b", create=True)
    assert images(disk, "none", 1) == [{"a": OLD}]
    assert images(disk, "all", 1) == [{"a": OLD[:100] + NEW, "b": b""}]


def test_sectors_survive_each_for_itself() -> None:
    disk, file = written(data=b"o" * 4 * SECTOR)
    disk.pwrite(file, b"n" * 3 * SECTOR, SECTOR // 2)
    found = bodies(disk, "sectors")
    assert len(found) == 2**4
    marks = {tuple(body[at] == ord("n") for at in (300, 600, 1100, 1540)) for body in found}
    assert len(marks) == 2**4
    assert all(body[: SECTOR // 2] == b"o" * (SECTOR // 2) for body in found)
    assert {body[SECTOR : 2 * SECTOR] for body in found} == {b"o" * SECTOR, b"n" * SECTOR}


def test_a_sector_that_is_missing_before_one_that_is_not_reads_as_zeros() -> None:
    disk, file = written(data=b"")
    disk.pwrite(file, b"n" * 2 * SECTOR, 0)
    assert bytes(SECTOR) + b"n" * SECTOR in bodies(disk, "sectors")


def test_torn_is_all_up_to_a_point() -> None:
    disk, file = written()
    disk.pwrite(file, NEW, len(OLD))
    disk.pwrite(file, b"m" * 1000, len(OLD) + len(NEW))
    whole = OLD + NEW + b"m" * 1000
    found = bodies(disk, "torn")
    assert all(whole.startswith(body) and len(body) >= len(OLD) for body in found)
    assert any(len(body) % SECTOR == 0 for body in found)
    assert any(len(body) % SECTOR for body in found)
    assert any(len(body) > len(OLD + NEW) for body in found)


def test_reordered_is_all_but_the_first() -> None:
    disk, file = written(data=b"")
    for number in range(4):
        disk.pwrite(file, bytes([number + 1]) * SECTOR, number * SECTOR)
    marks = {bytes(body[::SECTOR]) for body in bodies(disk, "reordered")}
    assert marks == {b"\0\2\3\4", b"\0\0\3\4", b"\0\0\0\4"}


def test_zeros_has_the_size_without_the_bytes() -> None:
    disk, file = written()
    disk.pwrite(file, NEW, 500)
    assert bodies(disk, "zeros") == {OLD + bytes(1800)}


def test_stale_has_what_another_file_left() -> None:
    disk, _ = written("b", b"s" * 3 * BLOCK)
    disk.unlink("b")
    disk.sync_dir()
    _, file = written(data=b"o" * 10, on=disk)
    disk.pwrite(file, b"n" * 2 * BLOCK, 10)
    zeros = b"o" * 10 + bytes(2 * BLOCK)
    assert bodies(disk, "stale") == {zeros, zeros[:BLOCK] + b"s" * (BLOCK + 10)}


def test_names_without_bytes_and_bytes_without_names() -> None:
    disk = locked()
    file = disk.open("tmp", create=True)
    disk.pwrite(file, NEW, 0)
    disk.rename("tmp", "a")
    assert images(disk, "hollow", 1) == [{"a": b""}]
    assert images(disk, "nameless", 1) == [{}]
    disk.sync(file)
    assert {tuple(image) for image in images(disk)} == {(), ("tmp",), ("a",), ("a", "tmp")}
    assert all(body == NEW for image in images(disk) for body in image.values())


def test_a_rename_over_a_file_leaves_the_old_or_the_new() -> None:
    disk, _ = written()
    written("tmp", NEW, on=disk)
    disk.rename("tmp", "a")
    both = {"a": OLD, "tmp": NEW}, {"a": NEW}, {"a": NEW, "tmp": NEW}
    found = images(disk)
    assert all(image in both for image in found)
    assert all(image in found for image in both)


def test_names_survive_each_for_itself() -> None:
    disk = locked()
    for name in "abc":
        disk.open(name, create=True)
    assert {"".join(image) for image in images(disk, "sectors")} == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}
    assert {"".join(image) for image in images(disk, "torn")} == {"", "a", "ab", "abc"}
    assert {"".join(image) for image in images(disk, "reordered")} == {"", "c", "bc", "abc"}


@pytest.mark.parametrize("kind", ["sectors", "torn", None])
def test_what_was_cut_off_or_removed_may_be_back(kind: str | None) -> None:
    disk, file = written()
    written("b", NEW, on=disk)
    disk.truncate(file, 100)
    disk.unlink("b")
    found = images(disk, kind)
    assert {image["a"] for image in found} == {OLD, OLD[:100]}
    assert {image.get("b") for image in found} == {None, NEW}


def test_each_file_meets_its_own_cut() -> None:
    disk, file = written()
    _, other = written("b", OLD, on=disk)
    disk.pwrite(file, NEW, 0)
    disk.pwrite(other, NEW, 0)
    found = {(image["a"] == OLD, image["a"] == NEW, image["b"] == OLD, image["b"] == NEW) for image in images(disk)}
    pure = {(True, False), (False, True), (False, False)}
    assert found == {(*a, *b) for a in pure for b in pure}


def test_a_killed_process_loses_nothing_until_the_power_goes() -> None:
    disk, file = written()
    disk.pwrite(file, NEW, 0)
    disk.open("b", create=True)
    after = disk.kill()
    assert content(after) == {"a": NEW, "b": b""}
    assert images(after, "none", 1) == [{"a": OLD}]
    again = after.open("a")
    with pytest.raises(OSError, match="Bad file"):
        after.pread(file, 1, 0)
    after.pwrite(again, b"x", 0)
    after.sync(again)
    after.sync_dir()
    assert images(after, "none", 1) == [{"a": b"x" + NEW[1:], "b": b""}]
    assert disk.read("a") == NEW


def test_a_crash_image_is_all_durable_and_lives_on_its_own() -> None:
    disk, file = written()
    disk.pwrite(file, NEW, 0)
    after = disk.crash(Random(1), "all")
    assert images(after, "none", 1) == [{"a": NEW}]
    after = disk.crash(Random(1), "none")
    after.lock()
    again = after.open("a")
    after.pwrite(again, b"x", 0)
    after.sync(again)
    assert disk.read("a") == NEW
    assert images(disk, "none", 1) == [{"a": OLD}]


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["write", "truncate", "create", "rename", "unlink", "sync", "sync_dir", "kill"]),
        st.sampled_from("abc"),
        st.sampled_from("abc"),
        st.integers(0, 2000),
        st.integers(0, 3000),
    ),
    max_size=30,
)


def _play(disk: SimDisk, steps: list[tuple[str, str, str, int, int]]) -> SimDisk:
    for number, (op, name, other, offset, length) in enumerate(steps):
        if op == "kill":
            disk = disk.kill()
            disk.lock()
        elif op == "sync_dir":
            disk.sync_dir()
        elif op == "create" or name in disk.list():
            _step(disk, op, name, other, offset, bytes([number + 1]) * length)
    return disk


def _step(disk: SimDisk, op: str, name: str, other: str, offset: int, data: bytes) -> None:
    if op in ("rename", "unlink"):
        disk.rename(name, other) if op == "rename" else disk.unlink(name)
        return
    file = disk.open(name, create=op == "create")
    does: dict[str, Callable[[], None]] = {
        "write": lambda: disk.pwrite(file, data, offset),
        "truncate": lambda: disk.truncate(file, offset),
        "sync": lambda: disk.sync(file),
    }
    does.get(op, lambda: None)()
    disk.close(file)


@given(WRITES, st.integers())
def test_what_was_synced_is_there_to_the_byte_after_every_cut(steps: list, seed: int) -> None:
    disk = _play(locked(), steps)
    rng = Random(seed)
    for kind in (None, *KINDS):
        content(disk.crash(rng, kind))  # whatever is pending: a cut always leaves a disk
    for name in disk.list():
        disk.sync(disk.open(name))
    disk.sync_dir()
    expected = {name: disk.read(name) for name in disk.list()}
    for kind in (None, None, *KINDS):
        assert content(disk.crash(rng, kind)) == expected
        assert content(disk.kill().crash(rng, kind)) == expected


@given(WRITES, st.integers())
def test_what_may_be_found_was_once_written(steps: list, seed: int) -> None:
    """No cut makes up bytes: at each place lies what some write put there, or zero."""
    disk = _play(locked(), steps)
    known = {0, *(number + 1 for number, (op, *_) in enumerate(steps) if op == "write")}
    for image in (content(disk.crash(Random(seed), kind)) for kind in (None, *KINDS)):
        assert all(set(data) <= known for data in image.values())


def test_the_nth_call_fails() -> None:
    disk, file = written()
    disk.fail("pread", 2, errno.EIO)
    disk.fail("rename", error=errno.ENOSPC)
    disk.fail("open", error=errno.EMFILE)
    assert disk.pread(file, 1, 0) == b"o"
    with pytest.raises(OSError, match="Input/output error"):
        disk.pread(file, 1, 0)
    assert disk.pread(file, 1, 0) == b"o"
    with pytest.raises(OSError, match="No space left"):
        disk.rename("a", "b")
    with pytest.raises(OSError, match="Too many open files"):
        disk.open("b", create=True)
    assert disk.list() == ["a"]


def test_a_failed_write_leaves_half_of_it() -> None:
    disk, file = written()
    disk.fail("pwrite", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(file, NEW, len(OLD))
    assert disk.read("a") == OLD + NEW[:1000]


def test_what_a_failed_sync_forgot_is_read_but_never_safe() -> None:
    lost = kept = 0
    for seed in range(40):
        disk, file = written(on=locked(seed=seed))
        disk.pwrite(file, NEW, 0)
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(file)
        disk.sync(file)  # and says that all is well
        assert disk.read("a") == NEW
        assert len(set(map(str, images(disk, number=5)))) == 1
        kept += images(disk, number=1) == [{"a": NEW}]
        lost += images(disk, number=1) == [{"a": OLD}]
    assert kept + lost == 40
    assert min(kept, lost) > 5


def test_what_a_failed_sync_of_names_forgot_is_never_safe() -> None:
    found = set()
    for seed in range(40):
        disk, _ = written(on=locked(seed=seed))
        disk.open("b", create=True)
        disk.unlink("a")
        disk.fail("sync_dir")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_dir()
        disk.sync_dir()
        assert disk.list() == ["b"]
        found.add("".join(images(disk, number=1)[0]))
    assert found == {"", "a", "b", "ab"}


def test_a_small_disk_gets_full_and_has_room_again() -> None:
    disk, file = written(on=locked(capacity=1000))
    assert disk.free() == 300
    disk.pwrite(file, OLD, 0)  # takes no new room
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(file, NEW, 600)
    assert disk.read("a") == OLD[:600] + NEW[:400]
    assert disk.free() == 0
    disk.truncate(file, 100)
    assert disk.free() == 900
    written("b", bytes(900), on=disk)
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(file, b"x", 100)
    disk.unlink("a")
    assert disk.free() == 0  # it is still open
    disk.close(file)
    assert disk.free() == 100
    assert disk.kill().capacity == disk.crash(Random(0)).capacity == 1000


def test_a_bit_rots() -> None:
    disk, file = written()
    disk.flip("a", 3, 0)
    assert disk.pread(file, 2, 2) == b"on"
    assert images(disk, "none", 1)[0]["a"][3:4] == b"n"
    with pytest.raises(IndexError):
        disk.flip("a", len(OLD), 0)


def test_a_hook_sees_each_operation_and_can_stop_it() -> None:
    disk = locked()
    seen: list[tuple[int, str, str]] = []
    disk.hook = lambda op, name: seen.append((disk.ops, op, name))
    written(on=disk)
    assert seen == [(1, "open", "a"), (2, "pwrite", "a"), (3, "sync", "a"), (4, "sync_dir", "")]

    def stop(op: str, name: str) -> None:
        raise KeyboardInterrupt

    disk.hook = stop
    with pytest.raises(KeyboardInterrupt):
        disk.unlink("a")
    disk.hook = None
    assert disk.list() == ["a"]
    assert disk.ops == 6


def test_the_digest_tells_any_two_histories_apart() -> None:
    def play(data: bytes, name: str = "a", *, read: bool = False) -> str:
        disk, file = written(name, data)
        if read:
            disk.pread(file, 1, 0)
        return disk.digest()

    histories = [play(OLD), play(NEW), play(OLD, "b"), play(OLD, read=True)]
    assert len(set(histories)) == 4
    assert histories[0] == play(OLD)


def test_the_same_seed_gives_the_same_disk() -> None:
    disk, file = written()
    for number in range(20):
        disk.pwrite(file, bytes([number]) * 900, number * 300)
        disk.open(f"f{number}", create=True)
    for seed in range(50):
        assert content(disk.crash(Random(seed))) == content(disk.crash(Random(seed)))
