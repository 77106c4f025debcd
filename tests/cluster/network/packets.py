"""Wires whose packets are really dropped: by the kernel, in a network of our own, told by nftables.

    enter()                       # this process and all that it starts have a network of their own
    with Packets() as wires: …    # as `Wires`

    whoever connects ──► 127.0.0.1:<wire> ──► 127.0.0.1:<target>      the kernel changes the port, and nobody is between

So TCP does what it does when packets are lost: it sends again, waits longer each time, gives up; whoever connects waits
for an answer to his first packet; a side that is gone without a word leaves the other half open. Needs root and `nft`.
Latency is not to be had this way: a wire that loses every third packet is slow as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading

from msgspec import Struct, field

from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import Told, Wires

_NEW_NETWORK = 0x40000000
_TABLE = """
table ip mqueue {
  map wires { type inet_service : inet_service; }
  chain places {
    type nat hook output priority -100
    ip daddr 127.0.0.1 tcp dport @wires redirect to :tcp dport map @wires
  }
  chain weather {  # where they come in: who sends does not know
    type filter hook input priority 0
  }
}
"""
_REQUESTS, _ANSWERS = "original", "reply"


def missing() -> str:
    """Why packets cannot be dropped here; "": they can."""
    absent = [program for program in ("nft", "ip", "ss") if shutil.which(program) is None]
    if os.geteuid() != 0:
        return "dropping packets needs root"
    return f"dropping packets needs {', '.join(absent)}: tools/setup-system.sh long" if absent else ""


def enter() -> None:
    """From now on this thread, and all threads and processes that it begins, have a network with 127.0.0.1 alone. It is
    gone with the last of them, and so is all that was told to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "a network of our own cannot be made")
    _run("ip", "link", "set", "lo", "up")


class Packets(Wires):
    """In the network of who makes it, which has to be one of its own: see `enter`."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._places: dict[int, _Place] = {}
        _run("nft", "-f", "-", told=_TABLE)

    def close(self) -> None:
        with self._turn:
            for place in self._places.values():
                place.become(Weather())
                place.held.close()
            self._places.clear()
            _run("nft", "delete", "table", "ip", "mqueue")

    def tell(self, told: Told) -> int:
        with self._turn:
            if told.do == "open":
                return self._open(told.target)
            place = self._places[told.port]
            if told.do == "set":
                if told.reset:  # while nothing gets through: nobody hears of it
                    _kill(told.port)
                place.become(told.weather or Weather())
                self._flap(place)
                self._drop()
            elif told.do == "abandon":
                count = len(callers(told.port))
                place.become(Weather(requests=False, answers=False))
                self._drop()
                _kill(told.port)
                return count
            return len(callers(told.port))

    def _open(self, target: int) -> int:
        held = socket.socket()  # nobody else is to listen there
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        _run("nft", "add", "element", "ip", "mqueue", "wires", f"{{ {port} : {target} }}")
        self._places[port] = _Place(port, held)
        return port

    def _flap(self, place: _Place) -> None:
        """Good and silent in turn, until it is told something else."""
        if place.weather.flaps is None:
            return
        good, bad = place.weather.flaps
        over, silent = place.over, Weather(requests=False, answers=False)

        def turn() -> None:
            while not over.wait(good):
                self._become(place, silent, over)
                over.wait(bad)
                self._become(place, Weather(), over)

        threading.Thread(target=turn, name="flapping", daemon=True).start()

    def _become(self, place: _Place, weather: Weather, over: threading.Event) -> None:
        with self._turn:
            if not over.is_set():
                place.weather = weather
                self._drop()

    def _drop(self) -> None:
        """What is dropped from now on, told as a whole: connections go on."""
        lines = ["flush chain ip mqueue weather"]
        for place in self._places.values():
            lines += [f"add rule ip mqueue weather {rule}" for rule in place.rules()]
        _run("nft", "-f", "-", told="\n".join(lines))


class _Place(Struct):
    """One wire, and how it is."""

    port: int
    held: socket.socket
    weather: Weather = Weather()
    over: threading.Event = field(default_factory=threading.Event)
    """Set when it flaps no more."""

    def become(self, weather: Weather) -> None:
        self.over.set()
        self.weather, self.over = weather, threading.Event()

    def rules(self) -> list[str]:
        """A connection is known by where it was made to, also behind the change of its port."""
        weather, found = self.weather, []
        mine = f"meta l4proto tcp ct original proto-dst {self.port}"
        if weather.cut:
            found.append(f"{mine} tcp flags & rst == 0 reject with tcp reset")  # but not what says so
        for way, passes in ((_REQUESTS, weather.requests), (_ANSWERS, weather.answers)):
            if not passes:
                found.append(f"{mine} ct direction {way} drop")
            if weather.loss:
                found.append(f"{mine} ct direction {way} numgen random mod 1000 < {round(weather.loss * 1000)} drop")
            if weather.rate:
                found.append(f"{mine} ct direction {way} limit rate over {round(weather.rate)} bytes/second drop")
        return found


def callers(port: int) -> set[int]:
    """The ports of those who are connected over a wire: so whoever they talk to sees them."""
    lines = _run("ss", "-Htn", "state", "established", "dport", "=", f":{port}").splitlines()
    return {int(line.split()[2].rpartition(":")[2]) for line in lines}


def _kill(port: int) -> None:
    """The ends of those who connected over a wire."""
    _run("ss", "-HKtn", "dport", "=", f":{port}")


def _run(*command: str, told: str | None = None) -> str:
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
