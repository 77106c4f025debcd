"""The real disk: what it asks of the operating system, and what it makes of its answers."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqueue.log.segments.disk import LOCK, Disk, RealDisk
from mqueue.model.errors import InUse

ROOM = 64 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    disk = RealDisk(tmp_path / "data")
    disk.lock()
    yield disk
    disk.unlock()


def run(code: str, *args: object) -> subprocess.Popen[str]:
    """A process of its own, in which `disk` is locked."""
    start = "import sys; from mqueue.log.segments.disk import RealDisk; disk = RealDisk(sys.argv[1]); disk.lock()\n"
    command = [sys.executable, "-c", start + code, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_is_a_disk() -> None:
    disk: Disk = RealDisk("somewhere")
    assert disk


def test_what_is_written_is_read(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    disk.pwrite(file, b"hello world", 0)
    disk.pwrite(file, b"W", 6)
    disk.sync(file)
    disk.sync_dir()
    assert disk.size(file) == 11
    assert disk.pread(file, 5, 6) == b"World"
    assert disk.pread(file, 100, 6) == b"World"
    assert disk.pread(file, 100, 11) == b""
    disk.pwrite(file, b"!", 13)
    assert disk.pread(file, 100, 10) == b"d\0\0!"
    disk.truncate(file, 5)
    assert disk.pread(file, 100, 0) == b"hello"
    disk.close(file)


def test_names_are_made_changed_and_removed(disk: RealDisk) -> None:
    for name in ("b", "a", "c"):
        disk.close(disk.open(name, create=True))
    os.mkdir(Path(disk.path, "folder"))
    assert disk.list() == ["a", "b", "c"]
    disk.rename("a", "c")
    disk.unlink("b")
    disk.sync_dir()
    assert disk.list() == ["c"]


def test_create_empties_and_open_does_not(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    disk.pwrite(file, b"old", 0)
    assert disk.size(disk.open("a")) == 3
    assert disk.size(disk.open("a", create=True)) == 0
    assert disk.size(file) == 0


def test_errors_come_as_they_are(disk: RealDisk) -> None:
    for call in (lambda: disk.open("a"), lambda: disk.unlink("a"), lambda: disk.rename("a", "b")):
        with pytest.raises(FileNotFoundError):
            call()
    file = disk.open("a", create=True)
    disk.close(file)
    for call in (lambda: disk.sync(file), lambda: disk.size(file), lambda: disk.pwrite(file, b"x", 0)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "deep" / "data")
    before = os.umask(0)
    try:
        disk.lock()
        disk.close(disk.open("a", create=True))
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"deep": 0o700, "deep/data": 0o700, f"deep/data/{LOCK}": 0o600, "deep/data/a": 0o600}
    disk.unlock()


def test_links_are_not_followed_and_files_not_inherited(disk: RealDisk, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    Path(disk.path, "a").symlink_to(victim)
    for create in (False, True):
        with pytest.raises(OSError, match="symbolic link") as caught:
            disk.open("a", create=create)
        assert caught.value.errno == errno.ELOOP
    assert victim.read_bytes() == b"precious"
    assert disk.list() == []
    assert fcntl.fcntl(disk.open("b", create=True), fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_directory_may_be_moved_while_it_is_open(disk: RealDisk, tmp_path: Path) -> None:
    os.rename(disk.path, tmp_path / "moved")
    disk.close(disk.open("a", create=True))
    disk.sync_dir()
    assert disk.list() == ["a"]
    assert (tmp_path / "moved" / "a").exists()


def test_the_path_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in ("file", "file/below"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            RealDisk(tmp_path / path).lock()


def test_names_on_the_way_are_synced_also_if_they_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    disk = RealDisk(tmp_path / "a" / "b")
    for expected in ([tmp_path.parent, tmp_path, tmp_path / "a"], [tmp_path / "a"]):
        disk.lock()
        disk.unlock()
        assert synced == [str(path) for path in expected]
        synced.clear()


def test_one_at_a_time(disk: RealDisk) -> None:
    other = RealDisk(disk.path)
    with pytest.raises(InUse, match=f"{disk.path} is in use by process {os.getpid()}$"):
        other.lock()
    disk.unlock()
    other.lock()
    other.unlock()
    other.unlock()


def test_another_process_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    process = run("print('locked', flush=True); sys.stdin.read()", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(InUse, match=f"in use by process {process.pid}$"):
        disk.lock()
    process.kill()
    process.communicate()
    disk.lock()
    disk.unlock()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = """if True:
        import os
        if not (child := os.fork()):
            sys.stdin.read()
            os._exit(0)
        disk.unlock()
        RealDisk(sys.argv[1]).lock()
        print("again", flush=True)
        os.waitpid(child, 0)
    """
    out, _ = run(code, tmp_path).communicate("", timeout=120)
    assert out == "again\n"


def test_a_failed_lock_leaves_no_file_open(disk: RealDisk) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InUse):
        RealDisk(disk.path).lock()
    assert os.listdir("/proc/self/fd") == before


def test_a_short_write_is_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:3], offset))
    file = disk.open("a", create=True)
    disk.pwrite(file, b"0123456789", 2)
    assert disk.pread(file, 100, 0) == b"\0\x000123456789"
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: 0)
    with pytest.raises(OSError, match="Input/output error"):
        disk.pwrite(file, b"0123456789", 2)


def test_a_short_read_is_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    disk.pwrite(file, b"0123456789", 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, offset: pread(file, min(length, 3), offset))
    assert disk.pread(file, 8, 1) == b"12345678"
    assert disk.pread(file, 100, 1) == b"123456789"


def test_a_write_that_the_system_cuts_short_is_an_error(tmp_path: Path) -> None:
    code = """if True:
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        file = disk.open("a", create=True)
        try:
            disk.pwrite(file, bytes(1500), 0)
        except OSError as error:
            print(error.errno, disk.size(file))
    """
    out, _ = run(code, tmp_path).communicate(timeout=120)
    assert out == f"{errno.EFBIG} 1000\n"


def test_signals_do_not_tear_a_write(tmp_path: Path) -> None:
    code = """if True:
        import signal
        rings = []
        signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        file, data = disk.open("a", create=True), bytes(range(256)) * 4096
        while len(rings) < 50:
            disk.pwrite(file, data, 0)
            disk.sync(file)
            assert disk.pread(file, len(data), 0) == data
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("whole")
    """
    out, _ = run(code, tmp_path).communicate(timeout=120)
    assert out == "whole\n"


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[RealDisk]:
    """A disk of 64 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root, to mount a tiny file system")
    disk = RealDisk(tmp_path)
    disk.lock()
    yield disk
    disk.unlock()
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk_says_so_and_goes_on_when_there_is_room(tiny: RealDisk) -> None:
    free = tiny.free()
    assert 0 < free < ROOM
    file = tiny.open("a", create=True)
    with pytest.raises(OSError, match="No space left") as caught:
        tiny.pwrite(file, bytes(ROOM * 2), 0)
    assert caught.value.errno == errno.ENOSPC
    assert tiny.free() == 0
    assert tiny.size(file) == free  # what fitted is there: a caller has to cut it off
    tiny.unlock()
    tiny.lock()  # opens though it is full
    tiny.truncate(file, 100)
    assert tiny.free() > 0
    tiny.pwrite(file, b"x", 100)
    tiny.sync(file)
    tiny.close(file)
