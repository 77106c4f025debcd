"""What the network of the tests does to connections, each seen by both sides."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.cluster.network.proxy import Weather
from tests.cluster.network.wires import CUT, HOLE, NO_ANSWERS, NO_REQUESTS, Wire, Wires

PATIENCE = 30.0
SILENCE = 0.2


@pytest.fixture(scope="module")
def wires() -> Iterator[Wires]:
    with Wires() as wires:
        yield wires


class Pair:
    """Both sides of one connection over a wire."""

    def __init__(self, wires: Wires) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.wire: Wire = wires.open(self.listener.getsockname()[1])
        self.near = self.connect()
        self.far = self.accept()
        self.near.sendall(b"!")
        assert hears(self.far, b"!")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.wire.port), PATIENCE)

    def accept(self) -> socket.socket:
        found = self.listener.accept()[0]
        found.settimeout(PATIENCE)
        return found

    def close(self) -> None:
        for one in (self.near, self.far, self.listener):
            one.close()


@pytest.fixture
def pair(wires: Wires) -> Iterator[Pair]:
    pair = Pair(wires)
    yield pair
    pair.close()


def hears(end: socket.socket, words: bytes) -> bool:
    heard = b""
    while len(heard) < len(words) and (more := end.recv(len(words) - len(heard))):
        heard += more
    return heard == words


def silent(end: socket.socket) -> bool:
    end.settimeout(SILENCE)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(PATIENCE)
    return False


def until(wire: Wire, connections: int) -> None:
    end = time.monotonic() + PATIENCE
    while wire.connections != connections:
        assert time.monotonic() < end, wire.connections


def test_it_carries_both_ways_and_hands_on_each_end(pair: Pair) -> None:
    many = bytes(range(256)) * 4096
    pair.near.sendall(many)
    assert hears(pair.far, many)
    pair.near.shutdown(socket.SHUT_WR)
    assert pair.far.recv(1) == b""
    pair.far.sendall(b"the other way goes on")
    assert hears(pair.near, b"the other way goes on")
    pair.far.close()
    assert pair.near.recv(1) == b""
    until(pair.wire, 0)


def test_cut_resets_both_sides_and_whoever_connects(pair: Pair) -> None:
    pair.wire.set(CUT)
    for end in (pair.near, pair.far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with pytest.raises(ConnectionResetError), pair.connect() as late:
        late.recv(1)
    pair.wire.heal()
    with pair.connect() as near, pair.accept() as far:
        near.sendall(b"!")
        assert hears(far, b"!")


def test_a_hole_is_silent_and_hands_on_later(pair: Pair) -> None:
    pair.wire.set(HOLE)
    pair.near.sendall(b"asked")
    pair.far.sendall(b"said")
    with pair.connect() as late:
        late.sendall(b"late")
        assert silent(pair.near)
        assert silent(pair.far)
        pair.wire.heal()
        assert hears(pair.far, b"asked")
        assert hears(pair.near, b"said")
        with pair.accept() as far:
            assert hears(far, b"late")


def test_a_hole_takes_so_much_and_no_more(pair: Pair) -> None:
    pair.wire.set(HOLE)
    pair.near.settimeout(SILENCE)
    sent = 0
    with suppress(TimeoutError):
        while sent < 1 << 30:
            sent += pair.near.send(bytes(1 << 20))
    assert 0 < sent < 64 << 20
    pair.wire.heal()
    pair.near.settimeout(PATIENCE)
    assert hears(pair.far, bytes(sent))


@pytest.mark.parametrize("loses_answers", [True, False])
def test_one_way_only(pair: Pair, loses_answers: bool) -> None:
    pair.wire.set(NO_ANSWERS if loses_answers else NO_REQUESTS)
    pair.near.sendall(b"asked")
    pair.far.sendall(b"said")
    if loses_answers:
        assert hears(pair.far, b"asked")
        assert silent(pair.near)
    else:
        assert hears(pair.near, b"said")
        assert silent(pair.far)


def test_what_was_held_can_be_lost(pair: Pair) -> None:
    pair.wire.set(NO_ANSWERS)
    pair.far.sendall(b"said")
    assert silent(pair.near)
    pair.wire.heal(reset=True)
    with pytest.raises(ConnectionResetError):
        pair.near.recv(1)


def test_slow_is_late_and_keeps_the_order(pair: Pair) -> None:
    pair.wire.set(Weather(latency=0.2, rate=1e6))
    begun = time.monotonic()
    pair.near.sendall(b"a")
    assert hears(pair.far, b"a")
    assert time.monotonic() - begun >= 0.2
    pair.near.sendall(bytes(200_000) + b"z")
    assert hears(pair.far, bytes(200_000) + b"z")
    assert time.monotonic() - begun >= 0.4


def test_flapping_is_cut_and_good_again_and_again(pair: Pair) -> None:
    pair.wire.set(Weather(flaps=(0.6, 0.2)))
    with pytest.raises(ConnectionResetError):
        pair.near.recv(1)
    outcomes: list[bool] = []
    end = time.monotonic() + PATIENCE
    while [*dict.fromkeys(outcomes)] != [True, False] and time.monotonic() < end:
        try:
            with pair.connect() as near:
                outcomes.append(silent(near))
        except ConnectionResetError:
            outcomes.append(False)
        if outcomes[0] is False:
            outcomes.clear()
    assert [*dict.fromkeys(outcomes)] == [True, False]


@pytest.mark.parametrize("side", ["client", "server"])
def test_who_is_gone_without_a_word_leaves_the_other_waiting(pair: Pair, side: str) -> None:
    gone, left = (pair.near, pair.far) if side == "client" else (pair.far, pair.near)
    assert pair.wire.abandon(side) == 1
    with pytest.raises(ConnectionResetError):
        gone.recv(1)
    left.sendall(b"is anybody there?")
    assert silent(left)
    assert pair.wire.connections == 1
    left.close()
    until(pair.wire, 0)


def test_all_of_it_ends_when_it_is_closed() -> None:
    with Wires() as wires:
        pair = Pair(wires)
    with pytest.raises(ConnectionResetError):
        pair.near.recv(1)
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    pair.close()
