"""Errors that say the same have the same fingerprint, in Python and in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mqueue.pipeline.jobs.dlq import transform
from mqueue.policy.fingerprint import TEXT_MAX, fingerprint, is_transient, normalise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERRORS = {
    "order 17 of 10.0.0.3:8080: timed out after 30.5s": "order <n> of <ip>: timed out after <n>s",
    "no row 550e8400-e29b-41d4-a716-446655440000": "no row <uuid>",
    "KeyError: 'name'": "KeyError: 'name'",
    "ada.l@example.co.uk bounced": "<email> bounced",
    "GET https://api.example.com/v1/orders?id=7 → 503": "GET <url> → <n>",
    "at 2026-01-14T15:00:00.123Z\n  in  <Thing object at 0x7f3a>": "at <time> in <Thing object at <hex>>",
    "since 2026-01-14 15:00:00+01:00, not 2026-01-14": "since <time>, not <time>",
    "peer [2001:db8::1]:443 reset": "peer <ip>:<n> reset",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is bad": "commit <hex> is bad",
    "invoice INV-2026/0042 has 1,234.50 EUR": "invoice INV-<n>/<n> has <n> EUR",
    "  ": "",
    "déjà vu ٣": "déjà vu ٣",
}


@pytest.mark.parametrize(("error", "words"), ERRORS.items())
def test_only_the_words_stay(error: str, words: str) -> None:
    assert normalise(error) == words
    assert normalise(words) == words


def test_a_fingerprint_is_of_the_words_and_the_reason() -> None:
    assert fingerprint("rejected", "order 1 is bad") == fingerprint("rejected", "order 2 is bad")
    assert fingerprint("rejected", "order 1 is bad") != fingerprint("expired", "order 1 is bad")
    assert len(normalise("ab " * TEXT_MAX)) == TEXT_MAX


@pytest.mark.parametrize(
    ("reason", "error", "transient"),
    [
        ("max_retries", "ConnectionError: Connection refused", True),
        ("max_retries", "HTTP 503", True),
        ("max_retries", "order 1503 is unknown", False),
        ("max_retries", "ReadTimeout", True),
        ("rejected", "bad_email", False),
        ("visibility_timeout", "", True),
    ],
)
def test_what_may_pass_by_itself(reason: str, error: str, transient: bool) -> None:
    assert is_transient(reason, error) is transient


def test_spark_sees_the_same(spark: SparkSession) -> None:
    reasons = ("max_retries", "visibility_timeout")
    rows = [(0, n, reasons[n % 2], error) for n, error in enumerate([*ERRORS, "HTTP 503", "order 1503", "Broken pipe"])]
    dead = spark.createDataFrame(rows, "partition int, offset bigint, reason string, error string")
    events = [(0, 0, "PUBLISHED", None), (0, 1, "ACKNOWLEDGED", "else"), (0, 2, "CANCELLED", None)]
    events += [(0, 3, "ACKNOWLEDGED", "default"), (1, 4, "CANCELLED", None)]
    settled = spark.createDataFrame(events, "partition int, offset bigint, event string, group string")
    found = {row.offset: row for row in transform(dead, settled).collect()}
    assert found.keys() == {row[1] for row in rows} - {2, 3}
    for _, offset, reason, error in rows:
        if offset in found:
            row = found[offset]
            assert row.pattern == normalise(error)
            assert row.fingerprint == fingerprint(reason, error)
            assert row.transient == is_transient(reason, error)
