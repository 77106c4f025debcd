"""A machine whose power can be cut, as far as its disk goes: a file system of this kernel on a disk that forgets.

plugin.py (nbdkit) ← nbdfuse, which makes it a file ← a loop device ← ext4 or xfs. After the cut the image of what
survived is checked and mounted as at the next start. Whatever happens, nothing stays mounted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

PLUGIN = Path(__file__).with_name("plugin.py")
SIZE = 320 << 20  # the least that xfs takes; memory is used only for what is written
FILE_SYSTEMS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard"),
    "ext4 without a journal": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-O", "^has_journal"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
UNREPAIRED = 4
PROGRAMS = ("nbdkit", "nbdfuse", "fusermount3", "losetup", "mount", "umount", "mkfs.ext4", "e2fsck")


def missing() -> str:
    """Why there can be no such machine here; nothing if there can."""
    if os.geteuid() != 0:
        return "needs root: it mounts file systems"
    os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    lost = [program for program in PROGRAMS if not shutil.which(program)]
    if lost:
        return f"needs {', '.join(lost)}: run `make setup-system`"
    if subprocess.run(["nbdkit", "--dump-plugin", "python"], capture_output=True).returncode:
        return "needs the Python plugin of nbdkit: run `make setup-system`"
    lost = [path for path in ("/dev/fuse", "/dev/loop-control") if not os.path.exists(path)]
    return f"needs {', '.join(lost)}, which this kernel or container does not offer" if lost else ""


def file_systems() -> list[str]:
    """Those that can be made and that the kernel knows."""
    with suppress(FileNotFoundError):
        subprocess.run(["modprobe", "--all", "--quiet", "ext4", "xfs"], capture_output=True)
    known = Path("/proc/filesystems").read_text().split()
    made = {name: command[0] for name, command in FILE_SYSTEMS.items() if shutil.which(command[0])}
    return [name for name, program in made.items() if program.removeprefix("mkfs.") in known]


MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
PREFIX = f"power_cut-{os.getpid()}-"


def sweep() -> None:
    """Remove what an interrupt left: it may come just when a folder was made, or while it is being removed."""
    for path in Path(MEMORY).glob(f"{PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


class Machine:
    """`folder` is on the disk that is cut; `beside` is not."""

    def __init__(self, file_system: str, seed: int) -> None:
        self._file_system = file_system
        self._seed = seed
        self._house = ExitStack()
        self._powered = ExitStack()

    def __enter__(self) -> Machine:
        self.beside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
        self._house.callback(shutil.rmtree, self.beside, ignore_errors=True)
        self._house.push(self._powered)
        try:
            self._start()
        except BaseException:
            self._house.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._house.close()

    @property
    def image(self) -> Path:
        return self.beside / "image"

    @property
    def folder(self) -> Path:
        return self.beside / "mount"

    def _start(self) -> None:
        with open(self.image, "wb") as image:
            image.truncate(SIZE)
        self.folder.mkdir()
        disk = self._attach_disk()
        device = self._attach_loop(disk)
        _run(*FILE_SYSTEMS[self._file_system], device)
        self._mount(device)
        _run("sync", "-f", str(self.folder))
        _flush(device)

    def _attach_disk(self) -> Path:
        point = self.beside / "disk"
        point.mkdir()
        settings = (f"image={self.image}", f"cut={self.beside / 'cut'}", f"seed={self._seed}")
        plugin = ("[", "nbdkit", "--exit-with-parent", "python", str(PLUGIN), *settings, "]")
        quiet = subprocess.DEVNULL
        fuse = subprocess.Popen(
            ["nbdfuse", str(point / "disk"), *plugin], stdout=quiet, stderr=quiet, start_new_session=True
        )
        self._powered.callback(_stop, fuse)
        self._powered.callback(_try, "umount", "-l", str(point))
        await_until((point / "disk").exists, "nbdfuse shows no disk")
        return point / "disk"

    def _attach_loop(self, file: Path) -> str:
        device = _run("losetup", "--find", "--show", str(file)).strip()
        self._powered.callback(_try, "losetup", "--detach", device)
        return device

    def _mount(self, device: str) -> None:
        _run("mount", device, str(self.folder))
        self._powered.callback(_try, "umount", "-l", str(self.folder))

    def cut(self) -> None:
        """The power goes off. What was not flushed is gone, or not, or in part."""
        (self.beside / "cut").touch()
        with suppress(OSError):
            _flush(str(self.beside / "disk" / "disk"))  # the disk sees the cut when somebody asks it for something
        await_until((self.beside / "cut.done").exists, "the disk did not notice the cut")

    def restart(self) -> None:
        """Power is back: check the file system as at boot, and mount what survived. Nobody may be using the old one."""
        self._powered.close()
        device = self._attach_loop(self.image)
        # xfs replays its journal when it is mounted.
        if self._file_system != "xfs" and _try("e2fsck", "-p", device) >= UNREPAIRED:
            _try("e2fsck", "-y", device)
        self._mount(device)


def await_until(true: Callable[[], bool], otherwise: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.005)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _try(*command: str) -> int:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode
    except subprocess.TimeoutExpired:
        return 255


def _flush(path: str) -> None:
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(2)  # it goes by itself when it is unmounted
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
