"""Events of many messages over HTTP: Arrow, page by page."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mqueue.broker import occurrences
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.stream import read_table
from tests.integration.asking import Asking

PATH = "/v1/topics/orders/events"


@pytest.fixture
def ask() -> Iterator[Asking]:
    with RunningServer(clock=ManualClock()) as server:
        yield Asking(server.url)


def test_pages_follow_each_other(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("POST", "/v1/topics/orders/messages", {"messages": [{"payload": "x"}] * 50})
    ask("POST", "/v1/topics/orders/receive", {"limit": 20})
    whole = ask("GET", f"{PATH}?partition=0")
    assert whole.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert "x-mqueue-next" not in whole.headers
    monkeypatch.setattr(occurrences, "PAGE_BYTES_MAX", 2000)
    pages, place = [], "0"
    while place:
        answer = ask("GET", f"{PATH}?partition=0&start_offset={place}&stop_offset=50")
        pages.append(read_table(answer.body))
        place = answer.headers.get("x-mqueue-next", "")
    assert len(pages) > 4
    assert pa.concat_tables(pages).equals(read_table(whole.body))
    assert read_table(whole.body).num_rows == 70


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "bad_query"),
        ("?partition=x", 400, "bad_query"),
        ("?partition=7", 404, "not_found"),
        ("?partition=0&start_offset=-1", 400, "bad_position"),
        ("?partition=0&stop_offset=1.5", 400, "bad_query"),
    ],
)
def test_bad_input(ask: Asking, query: str, status: int, code: str) -> None:
    ask("PUT", "/v1/topics/orders", {})
    answer = ask("GET", PATH + query)
    assert (answer.status, answer.error) == (status, code)
    assert ask("GET", "/v1/topics/nowhere/events?partition=0").status == 404
