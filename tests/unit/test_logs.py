"""Logs: one line per record, whatever is in it; no canary anywhere; decisions at every level."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from mqueue.server import logs
from mqueue.server.security.audit import Audit, Decision
from mqueue.server.security.keys import make_key

KEY = make_key(b"canary-canary-canary-canary-1234")
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ"
SECRET = "correct horse battery canary"
LOGGER = logging.getLogger("mqueue.server")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    logs.take_down()


def test_a_record_is_one_line_of_json_with_its_fields(stream: io.StringIO) -> None:
    logs.set_up("info", "json", stream=stream)
    LOGGER.info("two\nlines of %s", "text", extra={"fields": {"status": 200, "ms": 1.5, "peer": "192.0.2.1"}})
    [line] = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "mqueue.server",
        "message": "two\nlines of text",
        "status": 200,
        "ms": 1.5,
        "peer": "192.0.2.1",
    }


def test_people_get_text_and_one_line_too(stream: io.StringIO) -> None:
    logs.set_up("info", "console", stream=stream)
    LOGGER.warning("two\nlines", extra={"fields": {"peer": "a\nb"}})
    [line] = stream.getvalue().splitlines()
    assert line.endswith("warning mqueue.server: two\\nlines peer=a\\nb")


@pytest.mark.parametrize("encoding", ["json", "console"])
@pytest.mark.parametrize("canary", [KEY, TOKEN, SECRET])
def test_no_canary_is_written_wherever_it_sits(stream: io.StringIO, encoding: str, canary: str) -> None:
    logs.set_up("debug", encoding, [SECRET], stream)
    LOGGER.info("message %s", canary)
    LOGGER.info(f"in the format {canary}")
    LOGGER.info("fields", extra={"fields": {"subject": canary, "other": [canary], "more": {"x": canary}}})
    LOGGER.info("%d", canary)
    try:
        raise ValueError(canary)
    except ValueError:
        LOGGER.exception("failed")
    Audit(logs.write_audit).record(Decision(1, canary, "enter", "refused", topic=canary))
    assert canary not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) >= 6


@pytest.mark.parametrize("level", ["debug", "error"])
def test_decisions_are_written_at_every_level(stream: io.StringIO, level: str) -> None:
    logs.set_up(level, "json", stream=stream)
    LOGGER.warning("chatter")
    Audit(logs.write_audit).record(Decision(1, "billing", "DELETE /v1/topics/x", "changed", peer="192.0.2.1"))
    line = json.loads(stream.getvalue().splitlines()[-1])
    assert (line["logger"], line["who"], line["outcome"]) == ("mqueue.audit", "billing", "changed")
    assert len(stream.getvalue().splitlines()) == (2 if level == "debug" else 1)


def test_changing_and_taking_down(stream: io.StringIO) -> None:
    logs.change("debug", "json", [])
    assert not [each for each in logging.getLogger("mqueue").handlers if isinstance(each, logs.LogHandler)]
    logs.set_up("error", "json", stream=stream)
    logs.change("info", "json", ["another canary to hide"])
    LOGGER.info("now with another canary to hide")
    logs.take_down()
    LOGGER.info("not seen")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "now with [redacted]"


def test_a_value_without_an_end_is_cut(stream: io.StringIO) -> None:
    logs.set_up("info", "json", stream=stream)
    LOGGER.info("x" * 100_000, extra={"fields": {"y": "y" * 100_000}})
    assert len(stream.getvalue()) < 3 * logs.TEXT_LENGTH_MAX
