"""Lets the kernel find out that the machine at the other end of a connection is gone without a word."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SETTINGS = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


def keep_alive(number: int) -> None:
    """Of a socket, by its file descriptor; what a socket that listens has, its connections get, too."""
    with suppress(OSError), twin(number) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SETTINGS:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def twin(number: int) -> socket.socket:
    """The same socket once more: loops do not let one touch theirs."""
    return socket.socket(fileno=os.dup(number))
