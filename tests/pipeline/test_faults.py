"""One seed of the faults that are cheap to make; all of them, and more seeds: `make spark-faults`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import mqueue
from mqueue.lake import open_lake
from mqueue.lake.schema import LAKE
from tests.pipeline.faults import (
    ARCHIVE,
    DRIVER,
    FAULTS,
    SERVER,
    STREAM,
    Campaign,
    Fault,
    in_log,
    messages,
    wrong_lake,
    wrong_topic,
)

SEED = 0
CHEAP = {
    (STREAM, SERVER, "stage"),
    (STREAM, DRIVER, "published"),
    (ARCHIVE, DRIVER, "appended"),
    (ARCHIVE, SERVER, "file"),
    (ARCHIVE, "overtake", "append"),
}
CHOSEN = [fault for fault in FAULTS if (fault.work, fault.act, fault.point) in CHEAP and not fault.wide]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with Campaign(tmp_path_factory.mktemp("faults")) as campaign:
        yield campaign


def test_the_chosen_faults_are_there() -> None:
    assert len(CHOSEN) == len(CHEAP)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name)
def test_each_message_is_there_once(campaign: Campaign, fault: Fault) -> None:
    outcome = campaign.run(fault, SEED)
    assert not outcome.wrong, str(outcome)


def test_what_is_lost_or_doubled_in_a_topic_is_told(client: mqueue.Client) -> None:
    made = messages(Random(SEED))
    client.publish_arrow("in", made)
    client.publish_arrow("out", made.slice(1))
    assert [wrong.partition(",")[0] for wrong in wrong_topic(client)] == ["1 lost"]
    client.publish_arrow("out", made.slice(0, 3))
    assert [wrong.partition(",")[0] for wrong in wrong_topic(client)] == ["2 too many"]


def test_what_is_lost_or_doubled_in_a_lake_is_told(client: mqueue.Client, tmp_path: Path) -> None:
    client.publish_many("in", ["a", "b", "c"])
    names = ("partition", "offset", "value", "key", "priority")
    found = [dict(zip(names, row, strict=True)) for row in in_log(client, "in")]
    rest = {"namespace": "default", "topic": "in", "timestamp": 0, "id": 1, "date": 0}
    lake = open_lake(str(tmp_path / "lake"), create=True)
    words = {"folder": lake.url, "format": "delta", "namespace": "default"}
    for version, row in enumerate([found[0], found[2], found[0]]):
        files = lake.writer().write([pa.RecordBatch.from_pylist([{**rest, **row}], LAKE)])
        lake.append(files, "test", version)
    assert [wrong.partition(",")[0] for wrong in wrong_lake(client, words)] == ["1 lost", "1 too many"]
    client.set_cursor("in", "archive", {0: 1})
    assert [wrong.partition(" is")[0] for wrong in wrong_lake(client, words)][2:] == ["cursor archive"]
