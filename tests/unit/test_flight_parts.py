"""Parts of the Flight face that need no server: headers, addresses, statuses, connections."""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from base64 import b64encode
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyarrow import flight

from mqueue.model import errors
from mqueue.server.flight import door
from mqueue.server.flight.bridge import Bridge
from mqueue.server.flight.connections import check_free, cut
from mqueue.server.flight.statuses import Untraced, status_of


@pytest.mark.parametrize(
    ("given", "bearer"),
    [
        ("Bearer x.y.z", "Bearer x.y.z"),
        ("Basic " + b64encode(b"anna:key:with:colons").decode(), "Bearer key:with:colons"),
        ("basic " + b64encode(b"anna").decode(), "Bearer "),
        ("Basic not base64", "Bearer "),
        ("Basic " + b64encode(b"\xff").decode(), "Bearer "),
        ("Digest x", "Digest x"),
    ],
)
def test_a_basic_is_the_bearer_in_its_password(given: str, bearer: str) -> None:
    assert door._headers({"Authorization": [given]})["authorization"] == bearer


def test_headers_that_came_twice_are_joined_and_bytes_are_none() -> None:
    told = door._headers({"authorization": ["Bearer a", "Bearer b"], "x-bin": [b"\xff"]})
    assert told == {"authorization": "Bearer a, Bearer b", "x-bin": ""}


@pytest.mark.parametrize(
    ("socket", "address"),
    [("ipv4:127.0.0.1:41000", "127.0.0.1"), ("ipv6:%5B::1%5D:41000", "::1"), ("ipv6:[::1]:41000", "::1"), ("", "")],
)
def test_addresses_as_grpc_writes_them(socket: str, address: str) -> None:
    assert door._address(socket) == address


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.BadName("x"), ValueError),
        (errors.TooLarge("x"), ValueError),
        (errors.NotFound("x"), KeyError),
        (errors.Unauthorized("x"), flight.FlightUnauthenticatedError),
        (errors.Forbidden("x"), flight.FlightUnauthorizedError),
        (errors.QuotaExceeded("x"), flight.FlightUnavailableError),
        (errors.Stopping("x"), flight.FlightUnavailableError),
        (errors.DiskFull("x"), flight.FlightUnavailableError),
        (errors.Corrupt("x"), flight.FlightInternalError),
        (errors.Conflict("x"), flight.FlightServerError),
        (errors.LeaseLost("x"), flight.FlightServerError),
    ],
)
def test_statuses(error: errors.Error, kind: type[Exception]) -> None:
    status = status_of(error)
    assert isinstance(status, kind)
    assert str(status) == f"{error.code}: x"


def test_nobody_can_write_the_traceback_of_what_clients_are_told() -> None:
    status = status_of(errors.NotFound("x"))
    assert isinstance(status, Untraced)
    with pytest.raises(AttributeError):
        traceback.format_exception(type(status), status, None)


class Late(Future[str]):
    """Of work that ends between a look at it that timed out and the next."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self._failure = failure

    def result(self, timeout: float | None = None) -> str:
        if self.done():
            return super().result(timeout)
        if self._failure is None:
            self.set_result("published")
        else:
            self.set_exception(self._failure)
        raise TimeoutError


def test_what_ends_just_after_a_look_has_ended() -> None:
    with closing(asyncio.new_event_loop()) as loop:
        bridge = Bridge(loop)
        assert bridge.end(Late()) == "published"
        with pytest.raises(TimeoutError, match="its own"):
            bridge.end(Late(TimeoutError("its own")))


def test_cut_ends_the_connections_of_a_port_and_no_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        pair = socket.socketpair()
        lines = [socket.create_connection(server.getsockname(), timeout=60) for server in (one, other)]
        accepted = [server.accept()[0] for server in (one, other)]
        cut(one.getsockname()[1])
        assert lines[0].recv(1) == b""
        accepted[1].sendall(b"x")
        assert lines[1].recv(1) == b"x"
        with socket.create_connection(one.getsockname(), timeout=60):
            pass  # it still listens
        for each in (*pair, *lines, *accepted):
            each.close()


def test_cut_keeps_no_file_open(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/dev/fd"))

    with ExitStack() as files:
        for number in range(10):
            files.enter_context((tmp_path / str(number)).open("w"))
        before = count()
        cut(9)
        assert count() == before


def test_a_port_that_is_taken_is_found_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            check_free("127.0.0.1", port)
    check_free("127.0.0.1", port)
    check_free("127.0.0.1", 0)
