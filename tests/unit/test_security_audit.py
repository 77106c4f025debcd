"""The audit log and the filter: every decision in one line, no canary anywhere."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest

from mqueue.server.security.audit import MASK, TEXT_LENGTH_MAX, Audit, Decision, RedactingFilter, Redactor
from mqueue.server.security.keys import make_key

NOW = 1_768_402_800_000
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ"
KEY = make_key(b"canary-canary-canary-canary-1234")
PEM = "-----BEGIN PRIVATE KEY-----\nMIGHcanaryAgEA\nMBMGcanary\n-----END PRIVATE KEY-----"
SECRET = "correct horse battery canary"


@pytest.mark.parametrize(
    ("text", "canary"),
    [
        (f"Authorization: Bearer {TOKEN}", TOKEN),
        (f"authorization=bearer {KEY}", KEY),
        (f"GET /v1/topics?token={TOKEN}&x=1", TOKEN),
        (f"a {TOKEN}.", TOKEN),
        (TOKEN.rpartition(".")[0], "eyJzdWIiOiJjYW5hcnkifQ"),
        (f"topic {KEY} is unknown", KEY),
        (f"x{KEY}y", KEY),
        ("Authorization: Basic Y2FuYXJ5OmNhbmFyeQ==", "Y2FuYXJ5OmNhbmFyeQ"),
        ("postgresql://user:canary-pw@db:5432/x", "canary-pw"),
        ("redis://:canary-pw@cache", "canary-pw"),
        ("password=canary-pw host=db", "canary-pw"),
        ('{"api_key": "canary-pw"}', "canary-pw"),
        ("{'JWT_SECRET': 'canary-pw'}", "canary-pw"),
        ("MQUEUE_TOKEN=canary-pw", "canary-pw"),
        ("Bearer opaque-canary", "opaque-canary"),
        (PEM, "canary"),
        (PEM[:60], "canary"),
        (f"failed with {SECRET}!", SECRET),
    ],
)
def test_a_canary_is_masked_wherever_it_sings(text: str, canary: str) -> None:
    shown = Redactor([SECRET])(text)
    assert canary not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "text", ["published 3 messages to orders", "mq_ready", "https://host:8080/v1", "eyJ", "tokens: none left"]
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert Redactor(["short"])(text) == text


def test_short_secrets_do_not_blot_out_words() -> None:
    assert Redactor(["", "a", "orders"])("orders and a") == "orders and a"


@pytest.mark.parametrize(
    "text",
    ["eyJ" * 50_000, "a:" * 50_000, "://" * 50_000, "-----BEGIN " * 10_000, "bearer " * 30_000, "token=" * 30_000],
)
def test_no_text_is_slow_to_redact(text: str) -> None:
    """By the time of the processor that it takes, which other programs have no part in; it should be milliseconds."""
    began = time.thread_time()
    Redactor([SECRET])(text)
    assert time.thread_time() - began < 5


def test_a_decision_is_one_line_of_json() -> None:
    lines: list[str] = []
    Audit(lines.append).record(
        Decision(NOW, "svc", "publish", "refused", "no grant", "a", "orders", "198.51.100.7", "token")
    )
    assert [json.loads(line) for line in lines] == [
        {
            "at": NOW,
            "who": "svc",
            "what": "publish",
            "outcome": "refused",
            "why": "no grant",
            "namespace": "a",
            "topic": "orders",
            "peer": "198.51.100.7",
            "via": "token",
        }
    ]


def test_nothing_from_outside_breaks_a_line_or_leaks_through_it() -> None:
    evil = f'x\n{{"who":"admin"}}\r\u2028\u202e\x00 {TOKEN} {KEY}'
    line = Audit(print).line(Decision(NOW, evil, evil, "refused", evil, evil, evil, evil))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["outcome"] == "refused"
    for canary in (TOKEN, KEY, TOKEN[:30], KEY[:20]):
        assert canary not in line


def test_a_secret_at_the_cut_is_masked_before_it_is_cut() -> None:
    line = Audit(print).line(Decision(NOW, "x" * (TEXT_LENGTH_MAX - 15) + " " + KEY, "read", "refused"))
    assert KEY[:12] not in line
    assert len(json.loads(line)["who"]) <= TEXT_LENGTH_MAX


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter(Redactor([SECRET])))
    logger = logging.Logger("canary")
    logger.addHandler(handler)
    return logger, out


def test_no_log_call_shows_a_canary(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, out = log
    logger.info("token %s", TOKEN)
    logger.info("%(key)s", {"key": KEY})
    logger.info(f"in the text: {SECRET}")
    logger.info("broken %d", TOKEN)
    logger.info(ValueError(KEY))
    logger.info("stack", stack_info=True)
    try:
        raise ValueError(f"cannot read {TOKEN}") from KeyError(KEY)
    except ValueError:
        logger.exception("failed with %s", SECRET)
    shown = out.getvalue()
    assert shown.count(MASK) >= 7
    assert "Traceback" in shown
    for canary in (TOKEN, TOKEN[:25], KEY, KEY[:20], SECRET):
        assert canary not in shown


def test_a_formatter_that_renders_tracebacks_by_itself_finds_none() -> None:
    error = ValueError(TOKEN)
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed", (), (ValueError, error, None))
    assert RedactingFilter(Redactor()).filter(record)
    assert record.exc_info is None
    assert record.exc_text is not None
    assert TOKEN not in record.exc_text
