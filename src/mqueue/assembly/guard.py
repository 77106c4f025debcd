"""A process that stands over one server, so that the server ends when whoever started it does, however that ended.

    python guard.py <signal> <uid:gid or -> <directory or -> <command…>

Its input is the line to whoever started it: when that is closed, the guard ends the server, first by that signal, and
removes the directory. Its output is one line: the process id of the server. The server writes to the guard's error
output. The guard ends when all processes of the server have; where the kernel can, those that lose their parent become
the guard's.

It runs as a script, without site packages: it imports nothing but the standard library, and knows no kind of server.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

NONE = "-"
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127


def family(ancestor: int) -> dict[int, str]:
    """The living processes below one, parents before children, each with the letter of its state (T: it is stopped)."""
    everybody = _everybody()
    found: dict[int, str] = {}
    parents = [ancestor]
    while parents:
        above = parents.pop(0)
        for pid, (parent, state) in everybody.items():
            if parent == above and state != "Z" and pid not in found:
                found[pid] = state
                parents.append(pid)
    return found


def tell(pids: dict[int, str], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _everybody() -> dict[int, tuple[int, str]]:
    """All processes of the machine: parent and state."""
    if sys.platform != "linux":
        listed = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in listed.stdout.splitlines())
        return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                after_name = (place / "stat").read_bytes().rpartition(b")")[2].split()
                found[int(place.name)] = (int(after_name[1]), after_name[0].decode())
    return found


def main(last: str, owner: str, directory: str, *command: str) -> None:
    _kernel(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # so that there is a signal to be woken by
    signal.set_wakeup_fd(wakes)
    guard = os.getpid()
    server = os.fork()
    if server == 0:
        _become(guard, owner, command)
    sys.stdout.write(f"{server}\n")
    sys.stdout.close()
    alone = _watch(server, woken, signal.Signals(int(last)))
    if alone and directory != NONE:
        shutil.rmtree(directory, ignore_errors=True)


def _become(guard: int, owner: str, command: tuple[str, ...]) -> None:
    """Turn this process into the server."""
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        if owner != NONE:
            uid, gid = owner.split(":")
            os.setgroups([])
            os.setgid(int(gid))
            os.setuid(int(uid))
        # The guard may be killed too. It has one thread, so that its death is the one that counts here.
        _kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that would be inherited
            os.execv(command[0], command)  # noqa: S606 - no shell is what we want
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _watch(server: int, woken: int, last: signal.Signals) -> bool:
    """Until nobody is left. Whether the line was closed before."""
    lines = [0, woken]
    killing_at = float("inf")
    while _anybody():
        ready, _, _ = select.select(lines, [], [], None if 0 in lines else _LOOK_SECONDS)
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            lines.remove(0)
            killing_at = time.monotonic() + _PATIENCE_SECONDS
            tell(family(os.getpid()), signal.SIGCONT)
            tell({server: ""} if server in family(os.getpid()) else {}, last)
        if time.monotonic() >= killing_at:
            tell(family(os.getpid()), signal.SIGKILL)
    return 0 not in lines


def _anybody() -> bool:
    """Whether there are children, once those that ended are taken away."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _kernel(option: int, value: int) -> None:
    """Linux only. Without it whatever loses its parent is on its own, which it knows how to handle."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
