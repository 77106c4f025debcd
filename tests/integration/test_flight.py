"""Arrow Flight with Arrow's own client, over memory, a disk and a small cluster: publish, scan, consume, manage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import flight

import mqueue
from mqueue.config import Cluster, Data, Metrics, Secret
from mqueue.model.limits import Limits
from mqueue.testing import PostgresServer
from mqueue.testing.server import RunningServer
from tests.integration.flying import PAYLOAD, Flying, batch, described, numbered, with_flight

_NUMBERS = count()


@pytest.fixture(scope="module", params=["memory", "disk", "cluster"])
def server(request, tmp_path_factory) -> Iterator[RunningServer]:
    config = with_flight(metrics=Metrics(enabled=False), limits=replace(Limits(), payload_bytes_max=10_000))
    if request.param == "disk":
        config = replace(config, data=Data(dir=str(tmp_path_factory.mktemp("flight") / "data")))
    if request.param == "cluster":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        config = replace(config, cluster=Cluster((Secret(postgres.create(f"flight_{next(_NUMBERS)}")),)))
    with ExitStack() as servers:
        for _ in range(2 if request.param == "cluster" else 1):  # of two nodes the second is asked
            running = servers.enter_context(RunningServer(config, memory=request.param != "disk"))
        yield running


@pytest.fixture
def f(server) -> Flying:
    return Flying(server)


@pytest.fixture
def topic() -> str:
    return f"t{next(_NUMBERS)}"


@pytest.fixture
def q(server) -> Iterator[mqueue.Client]:
    """The same server over HTTP."""
    with mqueue.Client(server.url) as client:
        yield client


def test_what_is_put_is_published(f, q, topic: str) -> None:
    keys = pa.array([b"a", None], pa.binary())
    receipts = f.put(topic, batch(b"1", b"2"), batch(b"3", b"4"))
    f.put(topic, batch(b"5", b"6", key=keys, priority=pa.array([10, 90], pa.int32())))
    assert [(each["batch"], each["count"], each["duplicates"]) for each in receipts] == [(0, 2, 0), (1, 2, 0)]
    assert receipts[0]["durability"] in ("memory", "fsync", "shard")
    messages = q.receive(topic, limit=10)
    assert [(m.payload, m.key, m.priority) for m in messages] == [
        (b"5", b"a", 10), (b"1", None, 50), (b"2", None, 50), (b"3", None, 50), (b"4", None, 50), (b"6", None, 90),
    ]  # fmt: skip
    [[id, partition, offset, count]] = receipts[1]["stretches"]
    assert (int(id), partition, offset, count) == (messages[3].id, 0, messages[3].offset, 2)


def test_batches_sent_ahead(f, q, topic: str) -> None:
    writer, reader = f.client.do_put(
        flight.FlightDescriptor.for_command(json.dumps({"topic": topic, "ahead": 8})), PAYLOAD, f.options
    )
    with writer:
        for number in range(8):
            writer.write_batch(batch(*numbered(10, 10 * number)))
        writer.done_writing()
        receipts = [json.loads(reader.read().to_pybytes()) for _ in range(8)]
    assert [each["batch"] for each in receipts] == list(range(8))
    assert [m.payload for m in q.scan(topic)] == numbered(80)


def test_receipts_of_what_was_sent_ahead_wait_for_nothing_more(f, q, topic: str) -> None:
    bad = pa.record_batch({"payload": pa.array([None], pa.binary())})
    writer, reader = f.client.do_put(described({"topic": topic, "ahead": 8}), PAYLOAD, f.options)
    for number in range(3):
        writer.write_batch(batch(*numbered(10, 10 * number)))
    assert [json.loads(reader.read().to_pybytes())["batch"] for _ in range(3)] == [0, 1, 2]
    writer.write_batch(bad)
    with pytest.raises(pa.ArrowInvalid, match=r"^bad_frame: batch 3: "):
        writer.close()
    assert [m.payload for m in q.scan(topic)] == numbered(30)


def test_one_receipt_at_the_end_or_a_table_for_each(f, q, topic: str) -> None:
    [told] = f.put({"topic": topic, "receipts": "end"}, batch(b"1"), batch(b"2", b"3"))
    assert (told["batches"], told["count"]) == (2, 3)
    writer, reader = f.client.do_put(
        flight.FlightDescriptor.for_command(json.dumps({"topic": topic, "receipts": "table"})), PAYLOAD, f.options
    )
    with writer:
        writer.write_batch(batch(b"4", b"5"))
        table = pa.ipc.open_stream(reader.read()).read_all()
    assert table.column("id").to_pylist() == [m.id for m in q.scan(topic)][3:]
    assert table.column("duplicate").to_pylist() == [False, False]


def test_duplicates_are_told(f, q, topic: str) -> None:
    sent = batch(b"1", b"2", idempotency_key=pa.array(["a", "b"]))
    [first], [second] = f.put(topic, sent), f.put(topic, sent)
    assert (first["duplicates"], second["duplicates"], second["count"]) == (0, 2, 2)
    assert len(list(q.scan(topic))) == 2


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (pa.record_batch({"text": [b"x"]}), "bad_frame"),
        (pa.record_batch({"payload": [1]}), "bad_frame"),
        (pa.record_batch({"payload": [b"x"], "colour": [b"red"]}), "bad_frame"),
        (pa.record_batch({"payload": pa.array([None], pa.binary())}), "bad_frame"),
        (pa.record_batch({"payload": [b"x"], "priority": pa.array([1 << 40])}), "bad_priority"),
        (pa.record_batch({"payload": [b"x" * 10_001]}), "payload_too_large"),
        (pa.record_batch({"payload": [b"x"] * 10_001}), "too_many"),
        (pa.record_batch({"payload": pa.array([], pa.binary())}), "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_batches_that_are_refused(f, q, topic: str, sent: pa.RecordBatch, code: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=f"^{code}: batch 0: "):
        f.put(topic, sent)
    assert topic not in q.topics() or not list(q.scan(topic))


def test_a_batch_that_is_refused_ends_the_stream(f, q, topic: str) -> None:
    bad = pa.record_batch({"payload": pa.array([None], pa.binary())})
    with pytest.raises(pa.ArrowInvalid, match=r"^bad_frame: batch 1: "):
        f.put(topic, batch(b"1"), bad, batch(b"3"))
    assert [m.payload for m in q.scan(topic)] == [b"1"]


@pytest.mark.parametrize(
    ("descriptor", "code"),
    [
        (["a", "b", "c"], "bad_path"),
        (["with a blank"], "bad_name"),
        (["../x", "t"], "bad_name"),
        ({"topic": "t", "colour": "red"}, "bad_command"),
        ({"namespace": "default"}, "bad_command"),
        ({"topic": "t", "ahead": 65}, "bad_limit"),
        ({"topic": "t", "durability": "hope"}, "bad_setting"),
    ],
)
def test_descriptors_that_are_refused(f, descriptor: Any, code: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=f"^{code}: "):
        f.put(descriptor, batch(b"1"))


def test_a_scan_gives_the_log_as_it_lies(f, q, topic: str) -> None:
    q.configure(topic, partitions=3)
    for number in range(30):
        q.publish(topic, b"%d" % number, key=b"%d" % number, headers={"a": "b"}, priority=number % 3)
    table = f.scan(topic)
    assert table.equals(pa.Table.from_batches(list(q.scan_arrow(topic))))
    assert f.client.get_schema(flight.FlightDescriptor.for_path(topic), f.options).schema == table.schema
    info = f.info(topic)
    assert (len(info.endpoints), info.total_records) == (3, 30)


def test_a_scan_of_a_part(f, q, topic: str) -> None:
    f.put(topic, batch(*numbered(100)))
    assert f.scan({"topic": topic, "start": 10, "stop": 20})["payload"].to_pylist() == numbered(10, 10)
    assert f.scan({"topic": topic, "columns": ["payload", "offset"], "start": 99}).to_pylist() == [
        {"payload": b"99", "offset": 99}
    ]
    assert f.scan({"topic": topic, "start": "2200-01-01"}).num_rows == 0
    assert f.scan({"topic": topic, "start": "2001-01-01", "stop": "2200-01-01"}).num_rows == 100
    assert f.scan({"topic": topic, "start": 50, "stop": 10}).num_rows == 0


def test_long_partitions_are_several_endpoints(f, topic: str, monkeypatch) -> None:
    monkeypatch.setattr("mqueue.server.flight.scanning.RANGE_MESSAGES", 64)
    f.put(topic, batch(*numbered(1000)))
    assert len(f.info(topic).endpoints) == 16
    assert f.scan(topic)["payload"].to_pylist() == numbered(1000)
    monkeypatch.setattr("mqueue.server.flight.scanning.ENDPOINTS_MAX", 4)
    assert len(f.info(topic).endpoints) == 4


@pytest.mark.parametrize(
    ("ticket", "error", "code"),
    [
        (flight.Ticket(b"\xff{"), pa.ArrowInvalid, "bad_ticket"),
        ({}, pa.ArrowInvalid, "bad_ticket"),
        ({"topic": "t", "partition": "x", "start": 0, "stop": 1}, pa.ArrowInvalid, "bad_ticket"),
        ({"topic": "nobody", "partition": 0, "start": 0, "stop": 1}, pa.ArrowKeyError, "not_found"),
        ({"topic": "known", "partition": 7, "start": 0, "stop": 1}, pa.ArrowKeyError, "not_found"),
        ({"topic": "known", "partition": 0, "start": -1, "stop": 1}, pa.ArrowInvalid, "bad_position"),
        ({"topic": "known", "partition": 0, "start": 0, "stop": 1, "columns": ["x"]}, pa.ArrowInvalid, "bad_column"),
        ({"topic": "known", "partition": 0, "start": 0, "stop": 1, "columns": []}, pa.ArrowInvalid, "bad_column"),
    ],
)
def test_tickets_that_are_refused(f, ticket: Any, error: type[Exception], code: str) -> None:
    f.put("known", batch(b"1"))
    with pytest.raises(error, match=f"^{code}: ") as caught:
        f.get(ticket)
    assert "Traceback" not in str(caught.value)


def test_topics_are_listed(f, topic: str) -> None:
    f.put(["elsewhere", topic], batch(b"1"))
    listed = f.client.list_flights(json.dumps({"namespace": "elsewhere"}).encode(), f.options)
    assert [b"elsewhere", topic.encode()] in [info.descriptor.path for info in listed]
    with pytest.raises(pa.ArrowInvalid, match=r"^bad_criteria: "):
        list(f.client.list_flights(b"everything", f.options))


def test_consume_and_settle(f, q, topic: str) -> None:
    f.put(topic, batch(*numbered(10)))
    with f.exchange({"topic": topic, "group": "g", "visibility": "1m"}) as stream:
        answer = stream.ask(receive={"limit": 6}, seq="first")
        lease, found = answer["receive"]["lease"], answer["batch"]
        assert (answer["seq"], answer["receive"]["count"]) == ("first", 6)
        assert 30_000 < answer["receive"]["remaining_ms"] <= 60_000
        assert (found["payload"].to_pylist(), found["attempt"].to_pylist()) == (numbered(6), [1] * 6)
        ids = list(map(str, found["id"].to_pylist()))
        assert stream.ask(nack={"lease": lease, "ids": ids[:1], "delay": "1h"})["nack"]["settled"] == 1
        assert stream.ask(reject={"lease": lease, "ids": ids[1:2], "error": "no"})["reject"]["settled"] == 1
        assert stream.ask(extend={"lease": lease, "visibility": "5m"})["extend"]["settled"] == 4
        assert stream.ask(ack={"lease": lease})["ack"] == {"settled": 4, "lost": []}
        other, payloads = stream.receive(10)
        assert payloads == numbered(4, 6)
        assert stream.ask(release={"lease": other})["release"]["settled"] == 4
    group = q.stats(topic).groups["g"]
    assert (group.acked, group.waiting, group.dead, group.ready, group.leased) == (4, 1, 1, 4, 0)


def test_receive_waits(f, q, topic: str) -> None:
    q.create_group(topic, "default")
    with f.exchange(topic) as stream:
        assert stream.receive() == (None, [])
        stream.tell(receive={"limit": 5, "wait": "60s"})
        f.put(topic, batch(b"1"))
        assert stream.next()["batch"]["payload"].to_pylist() == [b"1"]


def test_settle_while_a_receive_waits(f, topic: str) -> None:
    f.put(topic, batch(b"1"))
    with f.exchange(topic) as stream:
        lease, _ = stream.receive()
        stream.tell(receive={"wait": "60s"}, seq=1)
        assert stream.ask(ack={"lease": lease}, seq=2)["seq"] == 2


def test_messages_are_pushed_never_more_than_asked_for(f, q, topic: str) -> None:
    f.put(topic, batch(*numbered(25)))
    with f.exchange({"topic": topic, "prefetch": 10, "limit": 4}) as stream:
        first = [stream.next() for _ in range(3)]
        assert [answer["receive"]["count"] for answer in first] == [4, 4, 2]
        assert q.stats(topic).groups["default"].leased == 10
        assert stream.ask(receive={"limit": 1})["error"]["code"] == "bad_command"
        stream.tell(ack={"lease": first[1]["receive"]["lease"]})
        told = [stream.next(), stream.next()]  # the next batch may come before the answer
        assert [each["receive"]["count"] for each in told if "receive" in each] == [4]
        assert [each["ack"]["settled"] for each in told if "ack" in each] == [4]
        assert q.stats(topic).groups["default"].leased == 10


def test_a_consumer_that_is_pushed_to_may_leave_just_as_it_settles(f, q, topic: str) -> None:
    """Room for the next message and the end of the stream come at one time: it ends, and holds nothing."""
    f.put(topic, batch(*numbered(50)))
    for _ in range(50):
        with f.exchange({"topic": topic, "prefetch": 1}) as stream:
            stream.tell(ack={"lease": stream.next()["receive"]["lease"]})
    group = q.stats(topic).groups["default"]
    assert (group.acked, group.leased) == (50, 0)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({}, "bad_command"),
        ({"receive": {}, "ack": {"lease": "x"}}, "bad_command"),
        ({"eat": {}}, "bad_command"),
        ({"receive": {"limit": 0}}, "bad_limit"),
        ({"receive": {"limit": 10_001}}, "bad_limit"),
        ({"receive": {"wait": "soon"}}, "bad_time"),
        ({"ack": {"lease": "ff"}}, "lease_lost"),
        ({"ack": {"lease": "x", "delay": "1s"}}, "bad_command"),
        ({"extend": {"lease": "x"}}, "bad_command"),
    ],
)
def test_commands_that_are_refused(f, topic: str, command: dict[str, Any], code: str) -> None:
    f.put(topic, batch(b"1"))
    with f.exchange(topic) as stream:
        assert stream.ask(**command)["error"]["code"] == code
        assert stream.receive()[1] == [b"1"]


@pytest.mark.parametrize("visibility", ["forever", -1, 1e300])
def test_visibilities_that_are_refused(f, topic: str, visibility: Any) -> None:
    f.put(topic, batch(b"1"))
    with f.exchange(topic) as stream:
        lease, _ = stream.receive()
        error = stream.ask(extend={"lease": lease, "visibility": visibility})["error"]
        assert (error["code"], error["message"].partition(" ")[0]) == ("bad_time", "visibility")
        assert stream.ask(ack={"lease": lease})["ack"]["settled"] == 1


def test_ids_that_are_refused(f, topic: str) -> None:
    f.put(topic, batch(b"1"))
    with f.exchange(topic) as stream:
        lease, _ = stream.receive()
        assert stream.ask(ack={"lease": lease, "ids": ["x"]})["error"]["code"] == "bad_id"
        lost = stream.ask(ack={"lease": lease, "ids": ["7"]})["error"]
        assert (lost["code"], lost["lost"]) == ("lease_lost", ["7"])
        assert stream.ask(ack={"lease": lease})["ack"]["settled"] == 1


def test_actions(f, q, topic: str) -> None:
    assert f.act("configure", topic=topic, settings={"partitions": 2})["settings"]["partitions"] == 2
    assert f.act("settings", topic=topic)["settings"]["partitions"] == 2
    assert topic in f.act("topics")["topics"]
    f.act("create_group", topic=topic, group="g", start="latest")
    late = str(q.publish(topic, b"later", delay="1h").id)
    early = str(q.publish(topic, b"now").id)
    assert [group["group"] for group in f.act("groups", topic=topic)["groups"]] == ["g"]
    assert f.act("peek", topic=topic, group="g")["messages"][0]["payload"] == "now"
    assert f.act("explain", id=late, group="g")["code"] == "scheduled"
    assert f.act("trace", id=early)["events"][0]["kind"] == "PUBLISHED"
    f.act("reschedule", id=late, delay="2h")
    assert [each["id"] for each in f.act("scheduled", topic=topic)["messages"]] == [late]
    f.act("cancel", id=late)
    assert f.act("stats", topic=topic)["cancelled"] == 1
    assert sum(each["next"] for each in f.act("offsets", topic=topic)["partitions"]) == 2
    q.reject(q.receive(topic, group="g"))
    assert [each["payload"] for each in f.act("dead", topic=topic)["messages"]] == ["now"]
    assert f.act("redrive", topic=topic)["redriven"] == 1
    f.act("seek", topic=topic, group="g", to="latest")
    assert f.act("purge", topic=topic)["purged"] >= 1
    f.act("delete_group", topic=topic, group="g")
    f.act("delete_topic", topic=topic)
    assert topic not in f.act("topics")["topics"]


def test_actions_are_listed(f) -> None:
    assert {"configure", "purge", "trace", "redrive"} <= {action.type for action in f.client.list_actions(f.options)}


@pytest.mark.parametrize(
    ("name", "body", "error", "code"),
    [
        ("fly", {}, pa.ArrowInvalid, "unknown_action"),
        ("stats", {}, pa.ArrowInvalid, "bad_body"),
        ("stats", {"topic": "nobody"}, pa.ArrowKeyError, "not_found"),
        ("stats", {"topic": "a b"}, pa.ArrowInvalid, "bad_name"),
        ("configure", {"topic": "t", "settings": {"colour": "red"}}, pa.ArrowInvalid, "bad_setting"),
        ("configure", {"topic": "t", "settings": {"topic": "x"}}, pa.ArrowInvalid, "bad_setting"),
        ("configure", {"topic": "t", "settings": {"self": "x"}}, pa.ArrowInvalid, "bad_setting"),
        ("trace", {"id": "seven"}, pa.ArrowInvalid, "bad_id"),
        ("trace", {"id": "7"}, pa.ArrowKeyError, "not_found"),
    ],
)
def test_actions_that_are_refused(f, name: str, body: dict[str, Any], error: type[Exception], code: str) -> None:
    with pytest.raises(error, match=f"^{code}: "):
        f.act(name, **body)


def test_a_conflict_is_told_with_its_code(f, topic: str) -> None:
    f.act("create_group", topic=topic, group="g")
    with pytest.raises(flight.FlightServerError, match=r"^group_exists: ") as caught:
        f.act("create_group", topic=topic, group="g")
    assert json.loads(caught.value.extra_info)["code"] == "group_exists"


def test_namespaces_are_apart(f, topic: str) -> None:
    f.put(["a", topic], batch(b"1"))
    header = flight.FlightCallOptions(headers=[(b"x-mqueue-namespace", b"a")])
    assert f.client.get_flight_info(flight.FlightDescriptor.for_path(topic), header).endpoints
    with pytest.raises(pa.ArrowKeyError, match=r"^not_found: "):
        f.info(topic)
