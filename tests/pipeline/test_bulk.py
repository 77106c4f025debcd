"""Frames by the shortest way: the same as the client's, page by page; and what is no page is the client's to tell."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

import mqueue
from mqueue.pipeline.bulk import frames
from mqueue.pipeline.connection import Connection
from mqueue.pipeline.offsets import Range
from mqueue.testing.server import RunningServer
from mqueue.wire.pack import pack


def test_pages_are_the_frames_that_the_client_gives(disk_server: RunningServer, disk_client: mqueue.Client) -> None:
    for n in range(30):
        disk_client.publish_many("t", [bytes([n]) * 1_000_000])
    disk_client.publish_many("t", [b"%d" % n for n in range(5000)])
    connection = Connection(disk_server.url)
    for start, stop in ((0, 5030), (3, 5030), (29, 40), (100, 100), (5000, 5029)):
        told = [pack(frame) for frame in frames(connection, Range("t", 0, start, stop))]
        assert told == [pack(frame) for frame in disk_client.scan_frames("t", 0, start, stop)]


def test_errors_are_those_of_the_client(server: RunningServer) -> None:
    with pytest.raises(mqueue.NotFound, match="nowhere"):
        list(frames(Connection(server.url), Range("nowhere", 0, 0, 1)))
    with pytest.raises(mqueue.Unavailable, match="cannot be reached"):
        list(frames(Connection("http://127.0.0.1:9", timeout="1s"), Range("t", 0, 0, 1)))


@pytest.fixture
def cut_off(server: RunningServer) -> Iterator[str]:
    """Hands requests on to the server, and hangs up in the middle of the second page."""
    asked: list[str] = []

    class Between(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = server.url.removeprefix("http://")
            line = http.client.HTTPConnection(place, timeout=120)
            line.request("GET", self.path, headers=dict(self.headers))
            answer = line.getresponse()
            body = answer.read()
            asked.append(self.path)
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Length", "X-Mqueue-Next"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            if len(asked) == 2:
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
            else:
                self.wfile.write(body)
            line.close()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between) as between:
        between.daemon_threads = True
        thread = threading.Thread(target=between.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{between.server_port}"
        between.shutdown()
        thread.join(120)
    assert len(asked) > 2


def test_a_line_that_breaks_loses_and_doubles_nothing(client: mqueue.Client, cut_off: str) -> None:
    for n in range(30):
        client.publish_many("t", [bytes([n]) * 1_000_000])
    told = [frame.base for frame in frames(Connection(cut_off), Range("t", 0, 0, 30))]
    assert told == [frame.base for frame in client.scan_frames("t", 0, 0, 30)]
