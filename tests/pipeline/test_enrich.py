"""Lead enrichment: what becomes of clean, untidy and useless leads, as a table and as a stream that starts again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import mqueue
from mqueue.model.errors import Error, Refused
from mqueue.pipeline.enriching import COMPANY, LEAD_BYTES_MAX, transform
from mqueue.pipeline.jobs.enrich import EnrichSettings, read_companies, run
from mqueue.pipeline.leads import Company, Lead, companies, leads
from mqueue.pipeline.progress import progress_of
from mqueue.pipeline.scoring import RULES, SCORE_MAX
from mqueue.testing.server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from mqueue.pipeline.report import Report

SEED = 7
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, id bigint,"
    " priority int, headers array<struct<key:string,value:binary>>"
)


def test_the_same_seed_makes_the_same_data() -> None:
    made = companies(SEED, 50)
    assert made == companies(SEED, 50) != companies(SEED + 1, 50)
    assert len({company.domain for company in made}) == 50
    first, second = list(leads(SEED, 500, made)), list(leads(SEED, 500, made))
    assert first == second
    faults = Counter(lead.fault for lead in first)
    assert faults.keys() == {"", "invalid_json", "bad_email", "no_name", "unknown_fields"}
    assert faults[""] > 400


def test_no_score_is_over_the_top() -> None:
    assert max(rule.points for rule in RULES) < SCORE_MAX
    assert len({rule.reason for rule in RULES}) == len(RULES)


# With Spark


def enriched(spark: SparkSession, payloads: list[bytes], known: list[Company], headers: Any = None) -> list[Row]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(f"k{n}".encode(), value, "leads", 0, n, at, 100 + n, 50, headers) for n, value in enumerate(payloads)]
    messages = spark.createDataFrame(rows, COLUMNS)
    reference = spark.createDataFrame([msgspec.structs.astuple(company) for company in known], COMPANY)
    return transform(messages, reference, "out", "bad").collect()


def headers_of(row: Row) -> dict[str, bytes]:
    assert len({header.key for header in row.headers}) == len(row.headers)
    return {header.key: bytes(header.value) for header in row.headers}


def test_every_lead_goes_where_it_belongs(spark: SparkSession) -> None:
    known = companies(SEED, 100)
    made = list(leads(SEED, 400, known))
    rows = enriched(spark, [lead.payload for lead in made], known)
    assert len(rows) == len(made)
    by_key = {bytes(row.key): row for row in rows}
    for n, lead in enumerate(made):
        row = by_key[f"k{n}".encode()]
        assert (row.topic == "bad") == bool(lead.fault)
        if lead.fault:
            _is_buried(row, lead, n)
        else:
            _is_explained(row)
    domains = {company.domain: company.company_id for company in known}
    for row in rows:
        if row.topic == "out":
            told = msgspec.json.decode(bytes(row.value))
            domain = told["email"].partition("@")[2]
            assert domain not in domains or told["company_id"] == domains[domain]
            assert (told["company"].lower().startswith("unheard of")) == ("company_id" not in told)
            assert told["name"] == told["name"].strip()


def _is_buried(row: Row, lead: Lead, offset: int) -> None:
    told = headers_of(row)
    assert bytes(row.value) == lead.payload
    assert told["x-error"].decode().startswith(lead.fault)
    assert (told["x-origin-topic"], told["x-origin-offset"]) == (b"leads", str(offset).encode())
    assert row.priority == 50


def _is_explained(row: Row) -> None:
    told = msgspec.json.decode(bytes(row.value))
    points = sum(int(reason.rpartition("+")[2]) for reason in told["why"])
    assert told["score"] == min(SCORE_MAX, points)
    assert headers_of(row)["x-score"] == str(told["score"]).encode()
    assert row.priority == (25 if told["score"] >= 65 else 50 if told["score"] >= 35 else 75)


@pytest.mark.parametrize("headers", [None, [("own", b"\xff"), ("x-error", b"old"), ("content-type", b"text/plain")]])
def test_what_nobody_could_expect_holds_up_nothing(spark: SparkSession, headers: Any) -> None:
    good = msgspec.json.encode({"name": "Ada", "email": "ada@example.com"})
    odd = [
        b"", b"null", b"[]", b'"text"', b"{}", b"\xff\xfe", b'{"name": 5, "email": []}', good + b"x",
        msgspec.json.encode({"name": "A", "email": "a@b.co", "budget": "much"}),
        msgspec.json.encode({"name": "A", "email": "a@b.co", "message": "x" * LEAD_BYTES_MAX}),
        msgspec.json.encode({"name": "A", "email": "a@b.co", "f" * 5000: 1}),
    ]  # fmt: skip
    twins = [Company(n, "Twin Ltd", "example.com", "software", 10, "DE") for n in (2, 1)]
    rows = {bytes(row.key): row for row in enriched(spark, [*odd, good], twins, headers)}
    assert len(rows) == len(odd) + 1
    for n, value in enumerate(odd):
        row = rows[f"k{n}".encode()]
        assert (row.topic, bytes(row.value)) == ("bad", value)
        told = headers_of(row)
        assert told["x-error"]
        assert len(told["x-error"]) <= 1000
        assert told.get("own") == (b"\xff" if headers else None)
    told = msgspec.json.decode(bytes(rows[f"k{len(odd)}".encode()].value))
    assert told["company_id"] == 1


def ran(spark: SparkSession, server: RunningServer, folder: Path, **given: Any) -> Report:
    places = {"companies": str(folder / "companies.csv"), "checkpoint": str(folder / "checkpoint")}
    with progress_of("none") as progress:
        return run(spark, EnrichSettings(url=server.url, **places, **given), progress)


def test_a_stream_that_starts_again_enriches_each_lead_once(
    spark: SparkSession, server: RunningServer, client: mqueue.Client, tmp_path: Path
) -> None:
    report = ran(spark, server, tmp_path, generate=300, seed=SEED, batch_rows=200)
    assert (report.numbers["leads"], report.numbers["batches"]) == (300, 2)
    made = list(leads(SEED, 300, companies(SEED, 2000)))
    bad = {lead.key for lead in made if lead.fault}
    assert report.numbers["bad"] == len(bad)
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()  # as if the driver had died before it noted that the batch was published
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    client.publish("leads", b"not a lead")
    ran(spark, server, tmp_path)
    assert Counter(m.key for m in client.scan("leads.enriched")) == Counter(lead.key for lead in made if not lead.fault)
    dead = client.dlq("leads").messages(limit=1000)
    assert Counter(one.key for one in dead) == Counter([*bad, None])
    assert {one.reason for one in dead} == {"rejected"}
    first = client.receive("leads.enriched", wait="60s")[0]
    assert first.priority == 25
    done = client.dlq("leads").redrive(filter="error = invalid_json")
    assert done.redriven == done.matched > 0
    assert client.stats("leads").depth > 300


def test_what_cannot_run_is_told_in_a_sentence(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "companies.csv").write_text("company_id\n", encoding="utf-8")
    with pytest.raises(Error, match="'leads'"):
        ran(spark, server, tmp_path)
    with pytest.raises(Refused, match="CSV, JSON or Parquet"):
        read_companies(spark, "companies.xls")
