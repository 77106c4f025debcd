"""Keys as they are pressed at a terminal, one by one; where there is no keyboard nobody presses any."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from types import TracebackType

_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
}
_BYTES_MAX = 64
_REST_SECONDS = 0.025
"""So soon the rest of a key that is several bytes is there, also through a slow line."""


class Keys:
    """While the block runs keys are not shown as they are typed, and need no Enter."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._before: list[object] = []
        self._never = threading.Event()

    def __enter__(self) -> Keys:
        if sys.stdin.isatty():
            try:
                self._file = sys.stdin.fileno()
                self._before = termios.tcgetattr(self._file)
                tty.setcbreak(self._file)
            except (OSError, termios.error):  # it only looks like a terminal
                self._file = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> list[str]:
        """The keys that are pressed within this time: at the first of them it is over."""
        if self._file is None:
            self._never.wait(seconds)
            return []
        if not select.select([self._file], [], [], max(0.0, seconds))[0]:
            return []
        data = os.read(self._file, _BYTES_MAX)
        if data == b"\x1b" and select.select([self._file], [], [], _REST_SECONDS)[0]:
            data += os.read(self._file, _BYTES_MAX)
        return named(data.decode(errors="ignore")) if data else ["q"]  # nobody is there any more


def named(text: str) -> list[str]:
    """What was typed, key by key."""
    found: list[str] = []
    while text:
        length = next((size for size in (4, 3) if text[:size] in _NAMES), 1)
        found.append(_NAMES.get(text[:length], text[:length]))
        text = text[length:]
    return found
