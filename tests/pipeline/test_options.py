"""What a user of the source may say, what it means, and how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqueue.model.errors import BadSetting, Error
from mqueue.pipeline.connection import connection_of, without_secrets
from mqueue.pipeline.options import (
    EARLIEST,
    LATEST,
    SOURCE_OPTIONS,
    Choice,
    Options,
    options_of,
    refuse_unknown,
    shape_of,
)

TOKEN = "very-secret-0123456789"


def of(streaming: bool = False, /, **given: str) -> Options:
    given = {"subscribe": "orders"} | given if not {"subscribePattern", "assign"} & given.keys() else given
    return options_of({name.lower(): value for name, value in given.items()}, streaming)


def test_what_nobody_says_is_as_in_kafkas_source() -> None:
    batch, stream = of(), of(True)
    assert batch.choice == Choice(names=("orders",))
    assert (batch.start.everywhere, batch.stop.everywhere) == (EARLIEST, LATEST)
    assert stream.start.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert (batch.view, batch.priorities, batch.offsets_max, batch.partitions_min) == ("messages", None, None, None)
    assert stream.delay_ms_max == 15 * 60_000


def test_topics_are_named_listed_or_matched() -> None:
    assert of(subscribe=" a, b ,a,").choice == Choice(names=("a", "b"))
    assert of(subscribePattern="a.*").choice == Choice(pattern="a.*")
    assert of(assign='{"a": [1, 0, 1]}').choice == Choice(assigned={"a": (0, 1)})


def test_bounds_are_words_numbers_or_times() -> None:
    assert of(startingOffsets="Earliest").start.everywhere == EARLIEST
    assert of(True, startingOffsets="earliest").start.everywhere == EARLIEST
    assert of(True, startingOffsets='{"orders": {"0": -1, "1": 7}}').start.offsets == {"orders": {0: -1, 1: 7}}
    assert of(endingOffsets='{"orders": {"0": -1}}').stop.offsets == {"orders": {0: -1}}
    assert of(startingTimestamp="1000").start.time_ms == 1000
    assert of(startingTimestamp="1970-01-01T00:00:01Z").start.time_ms == 1000
    assert of(endingTimestamp="2000").stop.time_ms == 2000
    assert of(startingOffsetsByTimestamp='{"orders": {"0": 5}}').start.times_ms == {"orders": {0: 5}}
    assert of(endingOffsetsByTimestamp='{"orders": {"0": 5}}').stop.times_ms == {"orders": {0: 5}}
    assert of(startingOffsetsByTimestampStrategy="latest").late_start_is_latest
    both = of(startingTimestamp="1", startingOffsets="latest")  # a time wins over offsets, whatever these say
    assert both.start.time_ms == 1


def test_pace_tasks_and_the_rest() -> None:
    stream = of(
        True,
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="5m",
        subscription="etl",
        minPartitions="4",
        maxRecordsPerPartition="1000",
        failOnDataLoss="FALSE",
        includeHeaders="true",
        priorities="high, 7,-3",
    )
    assert (stream.offsets_max, stream.offsets_min, stream.delay_ms_max) == (100, 10, 300_000)
    assert (stream.partitions_min, stream.records_max, stream.subscription) == (4, 1000, "etl")
    assert not stream.fail_on_data_loss
    assert stream.include_headers
    assert stream.priorities == (-3, 7, 25)
    assert of(view="DLQ").view == "dlq"


def test_what_is_for_kafka_alone_and_a_path_are_passed_over() -> None:
    refuse_unknown({"kafka.bootstrap.servers": "x", "path": "y"}, SOURCE_OPTIONS)


def test_the_shape_needs_no_more_than_the_view_and_the_headers() -> None:
    assert shape_of({"subscribe": "a"}) == ("messages", False)
    assert shape_of({"subscribe": "a", "view": "trace", "endingoffsets": "latest"}) == ("trace", False)
    assert shape_of({"subscribe": "a", "includeheaders": "true"}) == ("messages", True)


@pytest.mark.parametrize(
    ("streaming", "given", "sentence"),
    [
        (False, {"startingOffset": "earliest"}, "'startingoffset' is not known; did you mean startingOffsets?"),
        (False, {"zzz": "1"}, "'zzz' is not known; known are servers, token"),
        (False, {"assign": '{"a": [0]}', "subscribe": "a"}, "exactly one of subscribe, subscribePattern, assign;"),
        (False, {"subscribe": " , "}, "names of topics"),
        (False, {"subscribe": "no such name"}, "no such name"),
        (False, {"subscribePattern": "("}, "is no regular expression"),
        (False, {"assign": '{"a": [-1]}'}, "it takes JSON such as"),
        (False, {"assign": "a:0"}, "it takes JSON such as"),
        (False, {"startingOffsets": "latest"}, "startingOffsets latest (or -1) of a batch would read nothing"),
        (False, {"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets latest (or -1)"),
        (False, {"startingOffsets": '{"orders": {"0": -3}}'}, "an offset is 0 or more"),
        (False, {"startingOffsets": '{"orders": {"x": 1}}'}, "startingOffsets"),
        (False, {"startingOffsets": "first"}, "startingOffsets 'first'; it takes JSON"),
        (False, {"endingOffsets": "earliest"}, "endingOffsets earliest (or -2)"),
        (False, {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is not for this read: it is for streams"),
        (False, {"subscription": "s"}, "subscription is not for this read"),
        (True, {"endingOffsets": "latest"}, "endingOffsets is not for this read: a stream has no end"),
        (True, {"endingTimestamp": "5"}, "endingTimestamp is not for this read"),
        (True, {"view": "trace"}, "view trace is read by batches only"),
        (True, {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger 9 is more than"),
        (True, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger '0'; it takes a whole number above 0"),
        (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay 'soon' is not a duration"),
        (True, {"assign": '{"a": [0]}', "subscription": "s"}, "subscription holds whole topics"),
        (False, {"minPartitions": "-1"}, "minPartitions '-1'"),
        (False, {"failOnDataLoss": "maybe"}, "failOnDataLoss 'maybe'; it takes one of true, false"),
        (False, {"view": "all"}, "view 'all'; it takes one of messages, dlq, trace"),
        (False, {"priorities": "urgent"}, "priorities 'urgent'"),
        (False, {"priorities": ","}, "priorities ','"),
        (False, {"startingTimestamp": "yesterday"}, "startingTimestamp 'yesterday' is not a time"),
        (False, {"startingOffsetsByTimestampStrategy": "oops"}, "it takes one of error, latest"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(streaming: bool, given: dict[str, str], sentence: str) -> None:
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given = {"subscribe": "orders", **given}
    with pytest.raises(Error) as refused:
        options_of({name.lower(): value for name, value in given.items()}, streaming)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


# Where the server is


def test_the_token_comes_from_the_option_a_file_the_session_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="ascii")
    at = {"servers": "http://127.0.0.1:9"}
    monkeypatch.delenv("MQUEUE_TOKEN", raising=False)
    assert connection_of(at).token is None
    assert connection_of(at | {"token": TOKEN}).token == TOKEN
    assert connection_of(at | {"tokenfile": str(file)}).token == TOKEN
    monkeypatch.setenv("MQUEUE_TOKEN", "of-the-environment")
    assert connection_of(at, "of-the-session").token == "of-the-session"
    assert connection_of(at).token == "of-the-environment"


def test_the_server_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQUEUE_URL", raising=False)
    with pytest.raises(BadSetting, match=r"option servers is missing: .* MQUEUE_URL"):
        connection_of({})
    monkeypatch.setenv("MQUEUE_URL", "http://127.0.0.1:9")
    assert connection_of({}).servers == "http://127.0.0.1:9"


def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    options = {"servers": "http://127.0.0.1:9", "Token": TOKEN, "subscribe": "a"}
    found = connection_of({name.lower(): value for name, value in options.items()})
    assert TOKEN not in repr(found)
    assert without_secrets(options) == {"servers": "http://127.0.0.1:9", "subscribe": "a"}
    for wrong in ({"token": f"{TOKEN} "}, {"token": TOKEN, "tokenfile": "x"}, {"tokenfile": str(tmp_path)}):
        with pytest.raises(BadSetting) as refused:
            connection_of({"servers": "http://127.0.0.1:9", **wrong})
        assert TOKEN not in str(refused.value)
