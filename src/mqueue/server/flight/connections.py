"""The connections of a Flight server, found among the open files of this process, and cut.

Arrow's server ends only when all its calls have, and has no way to end a call whose caller is silent. So what is left
in the end loses its connection, which its caller is told as UNAVAILABLE.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def cut(port: int) -> None:
    """End every connection that was accepted on a port of this process."""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError), _second(int(name)) as line:
            if line.family in (socket.AF_INET, socket.AF_INET6) and line.getsockname()[1] == port:
                line.getpeername()  # raises: this one listens
                line.shutdown(socket.SHUT_RDWR)


def _second(number: int) -> socket.socket:
    """Another hold on an open file. Raises OSError if that is no socket, or is not there any more."""
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def check_free(host: str, port: int) -> None:
    """Raise OSError if a port cannot be listened on. Arrow would only say that something went wrong."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
