"""Messages over HTTP as Arrow streams, from those who mean well and from those who do not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from mqueue.broker.tables import SCHEMA
from mqueue.config import Config
from mqueue.model.errors import BadFrame, TooLarge
from mqueue.model.limits import Limits
from mqueue.testing import ManualClock
from mqueue.testing.server import RunningServer
from mqueue.wire.stream import BATCHES_MAX, COLUMNS_MAX, read_stream, read_table, write_stream, write_table
from tests.integration.asking import Answered, Asking

ARROW = "application/vnd.apache.arrow.stream"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LIMITS = Limits()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock("2026-03-01")


@pytest.fixture
def ask(clock: ManualClock) -> Iterator[Asking]:
    with RunningServer(clock=clock) as server:
        yield Asking(server.url)


def publish(ask: Asking, table: pa.Table | bytes, query: str = "", **headers: str) -> Answered:
    body = table if isinstance(table, bytes) else write_table(table)
    return ask("POST", f"/v1/topics/orders/messages{query}", body, content_type=ARROW, **headers)


def receive(ask: Asking, query: str = "", **asked: Any) -> tuple[pa.Table, Answered]:
    answer = ask("POST", f"/v1/topics/orders/receive{query}", asked, accept=ARROW)
    assert (answer.status, answer.headers["content-type"]) == (200, ARROW)
    return read_table(answer.body), answer


def full_table(clock: ManualClock) -> pa.Table:
    now = clock.now()
    return pa.table(
        {
            "payload": pa.array([b"a", b"\xff", b""], pa.binary()),
            "key": pa.array([b"k", None, b"\xff"], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"\xff"}], None, []], HEADERS),
            "priority": pa.array([75, 25, 50], pa.int32()),
            "deliver_at": pa.array([0, 0, 0], pa.timestamp("ms", "UTC")),
            "expires_at": pa.array([now + 60_000, None, None], pa.timestamp("ms", "UTC")),
            "idempotency_key": pa.array(["once", None, None]),
            "fairness_key": pa.array(["fair", None, None]),
        }
    )


class TestPublish:
    def test_receipts_as_json_and_as_arrow(self, ask: Asking) -> None:
        table = pa.table({"payload": [b"x"] * 500})
        told = publish(ask, table).json
        assert [receipt["offset"] for receipt in told["receipts"]] == list(range(500))
        assert told["durability"] == "memory"
        answer = publish(ask, table, accept=ARROW)
        receipts = read_table(answer.body)
        assert receipts.schema.names == ["id", "partition", "offset", "duplicate"]
        assert receipts["offset"].to_pylist() == list(range(500, 1000))
        assert answer.headers["x-mqueue-durability"] == "memory"

    def test_all_columns_arrive(self, ask: Asking, clock: ManualClock) -> None:
        receipts = read_table(publish(ask, full_table(clock), accept=ARROW).body)
        assert receipts["duplicate"].to_pylist() == [False] * 3
        found, _ = receive(ask, "?columns=all", limit=10)
        rows = {row["payload"]: row for row in found.to_pylist()}
        assert [row["payload"] for row in found.to_pylist()] == [b"\xff", b"", b"a"]
        first = rows[b"a"]
        assert (first["key"], first["headers"]) == (b"k", [{"key": "h", "value": b"\xff"}])
        assert (first["idempotency_key"], first["fairness_key"], first["attempt"]) == ("once", "fair", 1)
        assert int(first["expires_at"].timestamp() * 1000) == clock.now() + 60_000
        assert {row["id"] for row in rows.values()} == set(receipts["id"].to_pylist())
        again = read_table(publish(ask, full_table(clock), accept=ARROW).body)
        assert again["duplicate"].to_pylist() == [True, False, False]

    def test_keys_over_partitions(self, ask: Asking) -> None:
        ask("PUT", "/v1/topics/orders", {"partitions": 4})
        table = pa.table({"payload": [str(n).encode() for n in range(200)], "key": [str(n) for n in range(200)]})
        told = publish(ask, table).json["receipts"]
        assert len({receipt["partition"] for receipt in told}) == 4
        for number in (0, 77, 199):
            assert ask("GET", f"/v1/messages/{told[number]['id']}").json["payload"] == str(number)

    def test_other_shapes_of_the_same(self, ask: Asking) -> None:
        shapes = [
            pa.table({"payload": pa.array(["text"])}),
            pa.table({"payload": pa.array(["text"], pa.large_string()), "key": pa.nulls(1)}),
            pa.table({"payload": pa.array([b"text"], pa.large_binary()), "priority": pa.array([50], pa.uint8())}),
        ]
        for table in shapes:
            assert publish(ask, table).status == 200, table.schema
        batches = pa.Table.from_batches(pa.table({"payload": [b"text"] * 10}).to_batches(max_chunksize=3))
        assert len(publish(ask, batches).json["receipts"]) == 10
        found, _ = receive(ask, limit=100)
        assert found["payload"].to_pylist() == [b"text"] * 13

    def test_the_trace_of_a_request(self, ask: Asking) -> None:
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        publish(ask, pa.table({"payload": [b"a"]}), traceparent=parent)
        found, _ = receive(ask)
        assert found["headers"].to_pylist() == [[{"key": "traceparent", "value": parent.encode()}]]

    def test_durability_is_asked_for_in_the_query(self, ask: Asking) -> None:
        table = pa.table({"payload": [b"a"]})
        assert publish(ask, table, "?durability=memory").json["durability"] == "memory"
        assert publish(ask, table, "?durability=forever").error == "bad_setting"


class TestOut:
    def test_a_lease_is_in_the_headers(self, ask: Asking) -> None:
        ask.publish("orders", *map(str, range(10)))
        found, answer = receive(ask, limit=7)
        assert found.schema.equals(SCHEMA)
        assert found["payload"].to_pylist() == [str(n).encode() for n in range(7)]
        assert answer.headers["x-mqueue-remaining-ms"] == "30000"
        assert answer.headers["x-mqueue-deadline"] == "2026-03-01T00:00:30.000Z"
        assert ask("POST", f"/v1/leases/{answer.headers['x-mqueue-lease']}/ack").json["settled"] == 7

    def test_nothing_is_an_empty_table_without_a_lease(self, ask: Asking) -> None:
        for query in ("", "?columns=all"):
            found, answer = receive(ask, query)
            assert (found.num_rows, "x-mqueue-lease" in answer.headers) == (0, False)

    def test_scan_pages(self, ask: Asking) -> None:
        publish(ask, pa.table({"payload": [str(n).encode() for n in range(1000)]}))
        found: list[bytes] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = ask("GET", f"/v1/topics/orders/messages?limit=300&cursor={cursor}", accept=ARROW)
            page = read_table(answer.body)
            assert set(page["attempt"].to_pylist()) == {0}
            found += page["payload"].to_pylist()
            cursor = answer.headers.get("x-mqueue-next")
        assert found == [str(n).encode() for n in range(1000)]
        whole = ask("GET", "/v1/topics/orders/messages?columns=all", accept=ARROW)
        assert read_table(whole.body).num_rows == 1000

    def test_errors_are_json(self, ask: Asking) -> None:
        answer = ask("GET", "/v1/topics/none/messages", accept=ARROW)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/json")


def compressed(kind: str) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"payload": [b"\0" * 1_000_000] * 30})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=kind)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def in_file_format() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"payload": [b"a"]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def evil_offsets() -> bytes:
    """The last offset of the payloads points far behind their end."""
    data = bytearray(write_table(pa.table({"payload": pa.array([b"abcd"] * 3, pa.binary())})))
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 4, 8, 12))
    at = data.index(offsets)
    data[at + 12 : at + 16] = (1 << 30).to_bytes(4, "little")
    return bytes(data)


def bad_text() -> bytes:
    data = write_table(pa.table({"payload": ["abcd"]}))
    return data.replace(b"abcd", b"ab\xff\xff")


ONE = pa.table({"payload": [b"a"]})
HOSTILE: dict[str, Any] = {
    "no bytes": b"",
    "noise": b"\0" * 1000,
    "json": b'{"messages":[{"payload":"a"}]}',
    "a schema alone, cut": write_table(ONE)[:40],
    "cut in a batch": write_table(ONE)[:-20],
    "bytes behind the end": write_table(ONE) + b"x",
    "two streams": write_table(ONE) * 2,
    "the file format": in_file_format(),
    "zstd": compressed("zstd"),
    "lz4": compressed("lz4"),
    "dictionary": pa.table({"payload": pa.array(["a"]).dictionary_encode()}),
    "numbers as payload": pa.table({"payload": [1.5]}),
    "views": pa.table({"payload": pa.array([b"a"], pa.binary_view())}),
    "nested": pa.table({"payload": [b"a"], "headers": pa.array([[[[b"a"]]]])}),
    "unknown column": pa.table({"payload": [b"a"], "other": [b"b"]}),
    "no payload": pa.table({"key": [b"a"]}),
    "a payload twice": pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["payload", "payload"]),
    "null payload": pa.table({"payload": pa.array([None], pa.binary())}),
    "many columns": pa.table({f"c{number}": [b"a"] for number in range(COLUMNS_MAX + 1)}),
    "many batches": write_stream(ONE.to_batches() * (BATCHES_MAX + 1), ONE.schema),
    "evil offsets": evil_offsets(),
    "bad text": bad_text(),
}


class TestHostile:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_it_is_refused_and_stores_nothing(self, ask: Asking, name: str) -> None:
        answer = publish(ask, HOSTILE[name])
        assert (answer.status, answer.error) == (400, "bad_frame"), answer.json
        assert ask("GET", "/v1/topics").json["topics"] == []

    @pytest.mark.parametrize(
        ("table", "code"),
        [
            (pa.table({"payload": pa.array([], pa.binary())}), "empty"),
            (pa.table({"payload": [b"a"] * 10_001}), "too_many"),
            (pa.table({"payload": [b"a" * (1024 * 1024 + 1)]}), "payload_too_large"),
            (pa.table({"payload": [b"a"], "key": [b"k" * 1025]}), "key_too_large"),
            (pa.table({"payload": [b"a"], "priority": pa.array([1 << 40])}), "bad_priority"),
            (pa.table({"payload": [b"a"], "deliver_at": pa.array([-1])}), "bad_time"),
            (pa.table({"payload": [b"a"], "idempotency_key": [""]}), "bad_key"),
            (pa.table({"payload": [b"a"], "fairness_key": ["a b"]}), "bad_name"),
        ],
    )
    def test_what_breaks_a_limit_says_which(self, ask: Asking, table: pa.Table, code: str) -> None:
        answer = publish(ask, table)
        assert answer.error == code
        assert answer.status in (400, 413)
        assert ask("GET", "/v1/topics").json["topics"] == []

    def test_broken_streams_never_break_the_server(self, ask: Asking, clock: ManualClock) -> None:
        """Flipped bytes are refused, or change what is stored; they do nothing else."""
        chance = random.Random(11)
        good = write_table(full_table(clock))
        for _ in range(200):
            data = bytearray(good)
            for _ in range(chance.choice((1, 1, 2, 5))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            assert publish(ask, bytes(data)).status in (200, 400, 409, 413)
        assert ask("GET", "/v1/topics/orders/messages?limit=10000").status in (200, 404)

    def test_limits_are_those_of_the_configuration(self) -> None:
        with RunningServer(replace(Config(), limits=Limits(call_messages_max=5))) as server:
            assert publish(Asking(server.url), pa.table({"payload": [b"a"] * 6})).error == "too_many"


class TestStream:
    def test_what_is_written_is_read(self, clock: ManualClock) -> None:
        table = full_table(clock)
        assert read_stream(write_table(table), LIMITS).equals(table)
        assert read_table(write_table(table.slice(1, 1))).equals(table.slice(1, 1))
        empty = table.schema.empty_table()
        assert read_stream(write_stream((), table.schema), LIMITS).equals(empty)

    def test_a_compressed_stream_is_refused_before_it_is_unpacked(self) -> None:
        data = compressed("zstd")
        assert len(data) < 100_000
        with pytest.raises(BadFrame, match="compressed"):
            read_stream(data, LIMITS)

    def test_rows_are_counted_before_they_are_read(self) -> None:
        with pytest.raises(TooLarge, match="10001 messages in one call; 10000"):
            read_stream(write_table(pa.table({"payload": [b""] * 10_001})), LIMITS)

    def test_names_that_are_no_text(self) -> None:
        data = write_table(pa.table({"payload": [b"a"], "abcdefgh": [b"b"]}))
        with pytest.raises(BadFrame):
            read_stream(data.replace(b"abcdefgh", b"\xff" * 8), LIMITS)

    def test_an_answer_that_is_no_stream(self) -> None:
        for data in (b"", b"nonsense", write_table(ONE)[:-20]):
            with pytest.raises(BadFrame):
                read_table(data)
