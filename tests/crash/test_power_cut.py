"""The rig that cuts the power of a real kernel's disk: it finds nothing wrong, it finds a liar out, it cleans up."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "power_cut"
NOT_HERE = 2


def start(*args: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(TOOLS / "run.py"), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    if process.returncode == NOT_HERE:
        pytest.skip(err.strip())
    assert f"power_cut-{process.pid}-" not in Path("/proc/mounts").read_text()
    return out + err


@pytest.mark.system
def test_two_cuts_lose_nothing_and_a_disk_that_does_not_sync_is_found_out() -> None:
    process = start("--cuts", "2", "--control")
    said = finish(process)
    assert process.returncode == 0, said
    assert "2 cuts, 0 failed" in said
    assert "1 controls, 1 found out" in said


@pytest.mark.system
def test_nothing_stays_mounted_when_it_is_stopped() -> None:
    process = start("--cuts", "100", "--file-system", "ext4")
    assert process.stdout is not None
    if process.stdout.readline():
        process.send_signal(signal.SIGINT)
    said = finish(process)
    assert "KeyboardInterrupt" in said
    assert not list(Path("/dev/shm").glob(f"power_cut-{process.pid}-*"))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The disk as nbdkit sees it, without nbdkit."""
    nbdkit = SimpleNamespace(FLAG_FUA=2, FUA_NATIVE=2, set_error=lambda number: None)
    monkeypatch.setitem(sys.modules, "nbdkit", nbdkit)
    spec = importlib.util.spec_from_file_location("plugin", TOOLS / "plugin.py")
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    (tmp_path / "image").write_bytes(bytes(8 * 512))
    for key, value in (("image", tmp_path / "image"), ("cut", tmp_path / "cut"), ("seed", 0)):
        plugin.config(key, str(value))
    return plugin


def test_the_disk_keeps_what_was_flushed_and_forced(plugin: Any, tmp_path: Path) -> None:
    disk = plugin.open(False)
    plugin.pwrite(disk, b"a" * 1024, 0, 0)
    plugin.flush(disk, 0)
    plugin.pwrite(disk, b"b" * 512, 512, 0)
    plugin.pwrite(disk, b"c" * 512, 1024, 0)
    plugin.pwrite(disk, b"d" * 512, 1024, 2)  # forced to the medium, alone
    durable = b"a" * 1024 + b"d" * 512 + bytes(5 * 512)
    assert (tmp_path / "image").read_bytes() == durable
    buffer = bytearray(1536)
    plugin.pread(disk, buffer, 0, 0)
    assert buffer == b"a" * 512 + b"b" * 512 + b"d" * 512


def test_a_cut_leaves_each_sector_old_or_new(plugin: Any, tmp_path: Path) -> None:
    found = set()
    for seed in range(60):
        (tmp_path / "image").write_bytes(b"o" * 4 * 512)
        plugin.config("seed", str(seed))
        disk = plugin.Disk(tmp_path / "image")
        plugin.pwrite(disk, b"n" * 3 * 512, 0, 0)
        plugin.pwrite(disk, b"m" * 512, 0, 0)
        (tmp_path / "cut").touch()
        with pytest.raises(RuntimeError, match="the power is off"):
            plugin.flush(disk, 0)
        (tmp_path / "cut").unlink()
        (tmp_path / "cut.done").unlink()
        image = (tmp_path / "image").read_bytes()
        assert all(len(set(image[at : at + 512])) == 1 for at in range(0, len(image), 512))
        found.add(image[::512])
    assert {sector[0:1] for sector in found} == {b"o", b"n", b"m"}
    assert {sector[1:3] for sector in found} == {b"oo", b"on", b"no", b"nn"}
    assert {sector[3:4] for sector in found} == {b"o"}
