"""Tables in, tables out: the same promises, a batch at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import mqueue
from mqueue import Draft
from tests.conformance.steps import assert_conserved, kinds, log, payloads, receive_one, refused, take

pa = pytest.importorskip("pyarrow")

START = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("ms", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_table_is_published(q) -> None:
    receipts = q.publish_arrow("t", pa.table({"payload": [b"1", b"2", b"3"]}))
    assert [(r.topic, r.offset, r.duplicate) for r in receipts] == [("t", 0, False), ("t", 1, False), ("t", 2, False)]
    assert [r.id for r in receipts] == [m.id for m in q.scan("t")]
    assert take(q, "t") == [b"1", b"2", b"3"]


def test_a_record_batch_will_do(q) -> None:
    q.publish_arrow("t", pa.record_batch({"payload": [b"1"]}))
    assert take(q, "t") == [b"1"]


def test_every_column(q, clock) -> None:
    table = pa.table(
        {
            "payload": [b"x"],
            "key": [b"k"],
            "headers": pa.array([[("a", b"1"), ("raw", b"\xff")]], HEADERS),
            "priority": [7],
            "deliver_at": pa.array([START + timedelta(seconds=5)], TIME),
            "expires_at": pa.array([START + timedelta(seconds=9)], TIME),
            "idempotency_key": ["i"],
            "fairness_key": ["f"],
        }
    )
    q.publish_arrow("t", table)
    assert q.receive("t") == []
    clock.advance("5s")
    m = receive_one(q, "t")
    assert (m.key, dict(m.headers), m.priority) == (b"k", {"a": "1", "raw": b"\xff"}, 7)
    assert (m.deliver_at - START, m.expires_at - START) == (timedelta(seconds=5), timedelta(seconds=9))
    assert q.publish("t", b"x", idempotency_key="i").duplicate


def test_nulls_are_defaults(q, clock) -> None:
    table = pa.table(
        {
            "payload": [b"1", b"2"],
            "key": pa.array([None, b"k"], pa.binary()),
            "headers": pa.array([None, [("a", b"1")]], HEADERS),
            "priority": pa.array([None, 60], pa.int32()),
            "deliver_at": pa.array([None, START + timedelta(seconds=1)], TIME),
            "expires_at": pa.array([None, START + timedelta(seconds=9)], TIME),
            "idempotency_key": pa.array([None, "i"]),
        }
    )
    q.publish_arrow("t", table)
    clock.advance("1s")
    a, b = q.receive("t", limit=2)
    assert (a.payload, a.key, dict(a.headers), a.priority, a.expires_at) == (b"1", None, {}, 50, None)
    assert (b.payload, b.key, dict(b.headers), b.priority) == (b"2", b"k", {"a": "1"}, 60)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "ž"]),
        pa.array(["a", "ž"], pa.large_string()),
        pa.array([b"a", "ž".encode()], pa.large_binary()),
        pa.array(["a", "ž"]).dictionary_encode(),
        pa.chunked_array([["a"], ["ž"]]),
        pa.array(["no", "a", "ž", "no"]).slice(1, 2),
    ],
)
def test_payloads_of_many_types(q, column) -> None:
    q.publish_arrow("t", pa.table({"payload": column}))
    assert take(q, "t") == [b"a", "ž".encode()]


def test_columns_of_nothing_but_nulls(q) -> None:
    names = ["key", "headers", "priority", "deliver_at", "expires_at", "idempotency_key", "fairness_key"]
    q.publish_arrow("t", pa.table({"payload": [b"1", b"2"], **{name: pa.nulls(2) for name in names}}))
    for m in q.receive("t", limit=2):
        assert (m.key, dict(m.headers), m.priority, m.expires_at) == (None, {}, 50, None)


def test_unsorted_priorities(q) -> None:
    numbers = [75, 0, 50, 75, 0, -5]
    receipts = q.publish_arrow("t", pa.table({"payload": [b"%d" % n for n in range(6)], "priority": numbers}))
    stored = {(m.offset, m.id): m.payload for m in q.scan("t")}
    assert [stored[r.offset, r.id] for r in receipts] == [b"%d" % n for n in range(6)]
    assert take(q, "t") == [b"5", b"1", b"4", b"2", b"0", b"3"]


def test_several_partitions(q) -> None:
    q.configure("t", partitions=4)
    keys = [b"%d" % (n % 50) for n in range(1000)]
    table = pa.table(
        {"payload": [b"%d" % n for n in range(1000)], "key": keys, "priority": [n % 3 for n in range(1000)]}
    )
    receipts = q.publish_arrow("t", table)
    stored = {(m.partition, m.offset): (m.id, m.payload) for m in q.scan("t")}
    for n in (0, 1, 2, 500, 998, 999, -1):
        assert stored[receipts[n].partition, receipts[n].offset] == (receipts[n].id, b"%d" % (n % 1000))
    assert len(receipts) == 1000
    assert receipts[3].partition == q.publish("t", b"x", key="3").partition
    got = take(q, "t")
    assert sorted(got[:1000], key=int) == [b"%d" % n for n in range(1000)]


def test_a_table_of_ten_thousand(q) -> None:
    q.publish_arrow("t", pa.table({"payload": [b"%d" % n for n in range(10_000)]}))
    lease = q.receive_arrow("t")
    assert len(lease) == 10_000
    assert lease.table["payload"].to_pylist() == [b"%d" % n for n in range(10_000)]
    assert lease.ack().settled == 10_000


def test_receipts_are_a_sequence(q) -> None:
    receipts = q.publish_arrow("t", pa.table({"payload": [b"1", b"2", b"3"]}))
    assert [r.offset for r in receipts[1:]] == [1, 2]
    assert receipts[-1].offset == 2
    for index in (3, -4):
        with pytest.raises(IndexError):
            receipts[index]


def test_duplicates_in_a_table(q) -> None:
    first = q.publish("t", b"x", idempotency_key="k")
    receipts = q.publish_arrow("t", pa.table({"payload": [b"a", b"x", b"b"], "idempotency_key": ["1", "k", "2"]}))
    assert [r.duplicate for r in receipts] == [False, True, False]
    assert receipts[1].id == first.id
    assert len(log(q, "t")) == 3


BAD_TABLES = {
    "not a table": {"payload": [b"x"]},
    "no payload": pa.table({"key": [b"k"]}),
    "unknown column": pa.table({"payload": [b"x"], "colour": [1]}),
    "twice": pa.table([[b"x"], [b"y"]], names=["payload", "payload"]),
    "null payload": pa.table({"payload": [b"x", None]}),
    "number payload": pa.table({"payload": [1]}),
    "number key": pa.table({"payload": [b"x"], "key": [1]}),
    "text priority": pa.table({"payload": [b"x"], "priority": ["high"]}),
    "broken priority": pa.table({"payload": [b"x"], "priority": [1.5]}),
    "list priority": pa.table({"payload": [b"x"], "priority": [[1]]}),
    "text time": pa.table({"payload": [b"x"], "deliver_at": ["tomorrow"]}),
    "text headers": pa.table({"payload": [b"x"], "headers": ["a=b"]}),
    "null header value": pa.table({"payload": [b"x"], "headers": pa.array([[("a", None)]], HEADERS)}),
    "null header name": pa.table({"payload": [b"x"], "headers": pa.array([[(None, b"a")]], HEADERS)}),
    "null header": pa.table({"payload": [b"x"], "headers": pa.array([[None]], HEADERS)}),
    "number idempotency key": pa.table({"payload": [b"x"], "idempotency_key": [[1]]}),
}


@pytest.mark.parametrize("table", BAD_TABLES.values(), ids=BAD_TABLES)
def test_bad_tables_are_refused(q, table) -> None:
    q.configure("t")
    with refused(mqueue.BadFrame, "bad_frame"):
        q.publish_arrow("t", table)
    assert log(q, "t") == []


@pytest.mark.parametrize(
    ("kind", "code", "columns"),
    [
        (mqueue.Refused, "empty", {"payload": pa.array([], pa.binary())}),
        (mqueue.TooLarge, "payload_too_large", {"payload": [b"x", b"x" * (2**20 + 1)]}),
        (mqueue.TooLarge, "key_too_large", {"payload": [b"x"], "key": [b"k" * 1025]}),
        (
            mqueue.TooLarge,
            "headers_too_large",
            {"payload": [b"x"], "headers": pa.array([[("a", b"x" * 65_536)]], HEADERS)},
        ),
        (mqueue.TooLarge, "too_many", {"payload": [b""] * 10_001}),
        (mqueue.TooLarge, "call_too_large", {"payload": [b"x" * 2**20] * 33}),
        (mqueue.BadPriority, "bad_priority", {"payload": [b"x"], "priority": [2**31]}),
        (mqueue.BadPriority, "bad_priority", {"payload": [b"x"] * 257, "priority": list(range(257))}),
        (mqueue.BadTime, "bad_time", {"payload": [b"x"], "deliver_at": [-1]}),
        (mqueue.BadTime, "bad_time", {"payload": [b"x"], "deliver_at": [2**62]}),
        (mqueue.BadTime, "bad_time", {"payload": [b"x"], "deliver_at": pa.array([2**60], pa.timestamp("s"))}),
        (mqueue.BadTime, "bad_time", {"payload": [b"x"], "expires_at": pa.array([START], TIME)}),
        (
            mqueue.BadTime,
            "bad_time",
            {
                "payload": [b"x"],
                "deliver_at": pa.array([START + timedelta(1)], TIME),
                "expires_at": pa.array([START + timedelta(1)], TIME),
            },
        ),
        (mqueue.Refused, "bad_key", {"payload": [b"x"], "idempotency_key": [""]}),
        (mqueue.Refused, "bad_key", {"payload": [b"x"], "idempotency_key": ["k" * 1025]}),
        (mqueue.BadName, "bad_name", {"payload": [b"x"], "fairness_key": ["a b"]}),
    ],
)
def test_the_same_limits(q, kind, code: str, columns) -> None:
    q.configure("t")
    with refused(kind, code):
        q.publish_arrow("t", pa.table(columns))
    assert (log(q, "t"), q.stats("t").published) == ([], 0)


def test_a_refused_table_makes_no_topic(q) -> None:
    with pytest.raises(mqueue.Refused):
        q.publish_arrow("t", pa.table({"payload": [b"x"], "priority": [2**40]}))
    assert q.topics() == []


def test_a_conflict_in_a_table_stores_nothing(q) -> None:
    q.publish("t", b"x", idempotency_key="k")
    with refused(mqueue.Conflict):
        q.publish_arrow("t", pa.table({"payload": [b"a", b"y"], "idempotency_key": ["1", "k"]}))
    assert log(q, "t") == [b"x"]


@pytest.mark.usefixtures("whole_quotas")
def test_quota_depth_and_delay_hold_for_tables(make) -> None:
    q = make(quotas={"default": 5})
    two = pa.table({"payload": [b"1", b"2"]})
    q.configure("t", max_depth=2, max_delay="1h")
    q.publish_arrow("t", two)
    with refused(mqueue.QueueFull, "queue_full"):
        q.publish_arrow("t", two)
    q.publish_arrow("u", two)
    with refused(mqueue.QuotaExceeded, "quota_exceeded"):
        q.publish_arrow("u", two)
    with refused(mqueue.BadTime, "delay_too_long"):
        q.publish_arrow("t", pa.table({"payload": [b"x"], "deliver_at": pa.array([START + timedelta(days=1)], TIME)}))
    assert (len(log(q, "t")), len(log(q, "u"))) == (2, 2)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Prague"])
def test_times_of_every_grain(q, clock, unit: str, tz: str | None) -> None:
    when = pa.array([datetime(2026, 1, 1, 0, 0, 2)], pa.timestamp("ms")).cast(pa.int64()).cast(pa.timestamp("ms", tz))
    q.publish_arrow("t", pa.table({"payload": [b"x"], "deliver_at": when.cast(pa.timestamp(unit, tz))}))
    clock.advance("1.999s")
    assert take(q, "t") == []
    clock.advance("1ms")
    assert take(q, "t") == [b"x"]


def test_a_time_between_two_milliseconds_is_rounded_up(q, clock) -> None:
    when = pa.array([START + timedelta(microseconds=1500)], pa.timestamp("us", "UTC"))
    q.publish_arrow("t", pa.table({"payload": [b"x"], "deliver_at": when}))
    clock.advance("1ms")
    assert take(q, "t") == []
    clock.advance("1ms")
    assert take(q, "t") == [b"x"]


def test_a_default_ttl_for_rows_without_one(make, clock) -> None:
    q = make(default_ttl="10s")
    expires = pa.array([None, START + timedelta(hours=1), None], TIME)
    q.publish_arrow("t", pa.table({"payload": [b"1", b"2", b"3"], "expires_at": expires}))
    q.publish_arrow("t", pa.table({"payload": [b"4"]}))
    clock.advance("10s")
    assert take(q, "t") == [b"2"]


def test_a_delivery_time_in_the_past_jumps_no_queue(q, clock) -> None:
    q.publish("t", b"first")
    clock.advance("1s")
    q.publish_arrow(
        "t", pa.table({"payload": [b"second"], "deliver_at": pa.array([datetime(2001, 1, 1, tzinfo=UTC)], TIME)})
    )
    assert take(q, "t") == [b"first", b"second"]


def test_a_lease_is_a_table(q, clock) -> None:
    q.publish_many("t", [Draft(b"1", key="k", headers={"a": "1"}, ttl="1h"), Draft(b"2", priority="low", delay="1s")])
    clock.advance("1s")
    lease = q.receive_arrow("t")
    names = ["id", "partition", "offset", "attempt", "priority", "published_at", "deliver_at", "expires_at", "key"]
    assert lease.table.schema.names == [*names, "headers", "payload"]
    assert lease.table.schema.field("published_at").type == TIME
    a, b = lease.table.to_pylist()
    assert (a["payload"], a["key"], a["headers"]) == (b"1", b"k", [{"key": "a", "value": b"1"}])
    assert (a["attempt"], a["priority"], a["published_at"], a["deliver_at"]) == (1, 50, START, START)
    assert a["expires_at"] == START + timedelta(hours=1)
    assert (b["key"], b["headers"], b["expires_at"], b["priority"]) == (None, None, None, 75)
    assert b["deliver_at"] == START + timedelta(seconds=1)
    assert [row["id"] for row in (a, b)] == [m.id for m in q.scan("t")]


def test_nothing_there(q) -> None:
    lease = q.receive_arrow("t")
    assert (len(lease), bool(lease), lease.table.num_rows) == (0, False, 0)
    q.publish("t", b"x")
    assert lease.table.schema == q.receive_arrow("t").table.schema
    for settle in (lease.ack, lease.nack, lease.reject, lease.release):
        assert settle().settled == 0


def test_the_order_of_a_table(q, clock) -> None:
    q.configure("t", partitions=3)
    for n in range(60):
        q.publish("t", b"%d" % n, key=str(n), priority=n % 4)
        clock.advance("1ms")
    q.release(q.receive("t", limit=20)[::2])
    shown = payloads(q.peek("t", limit=100))
    assert q.receive_arrow("t").table["payload"].to_pylist() == shown


@pytest.mark.parametrize(
    ("verb", "state"), [("ack", "acked"), ("nack", "waiting"), ("reject", "dead"), ("release", "ready")]
)
def test_a_table_is_settled_as_a_whole(q, verb: str, state: str) -> None:
    q.create_group("t", "default")
    q.publish_many("t", [Draft(b"%d" % n, priority=n % 3) for n in range(10)])
    lease = q.receive_arrow("t", limit=6)
    first = getattr(lease, verb)()
    again = getattr(lease, verb)()
    assert first.settled == 6
    assert again == first
    assert getattr(q.stats("t").groups["default"], state) == (10 if verb == "release" else 6)
    assert_conserved(q, "t")


def test_a_table_is_extended(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    lease = q.receive_arrow("t", visibility="10s")
    assert lease.extend("1m").settled == 2
    clock.advance("59s")
    assert lease.ack().settled == 2


def test_a_table_that_was_lost(q, clock) -> None:
    q.publish_many("t", [b"1", b"2"])
    lease = q.receive_arrow("t")
    ids = lease.table["id"].to_pylist()
    clock.advance("30s")
    with refused(mqueue.LeaseLost, "lease_lost") as caught:
        lease.ack()
    assert list(caught.value.lost) == ids
    assert q.receive_arrow("t").table["attempt"].to_pylist() == [2, 2]


def test_a_table_that_was_lost_by_a_seek(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    lease = q.receive_arrow("t")
    q.seek("t", to="earliest")
    for settle in (lease.ack, lease.nack, lambda: lease.extend("1m")):
        with refused(mqueue.LeaseLost):
            settle()


def test_a_table_with_holes(q, clock) -> None:
    receipts = q.publish_many("t", [Draft(b"%d" % n, delay="1s") for n in range(10)])
    for n in (0, 4, 5, 9):
        q.cancel(receipts[n])
    clock.advance("1s")
    assert q.receive_arrow("t").table["payload"].to_pylist() == [b"1", b"2", b"3", b"6", b"7", b"8"]


def test_waiting_for_a_table(q) -> None:
    q.publish("t", b"1")
    assert len(q.receive_arrow("t", wait="60s")) == 1


def test_scan_as_batches(q, clock) -> None:
    q.publish_many("t", [b"%d" % n for n in range(5000)])
    clock.advance("1m")
    q.publish("t", b"last", headers={"a": "1"})
    table = pa.Table.from_batches(q.scan_arrow("t"))
    assert table["payload"].to_pylist() == [b"%d" % n for n in range(5000)] + [b"last"]
    assert table["offset"].to_pylist() == list(range(5001))
    assert set(table["attempt"].to_pylist()) == {0}
    late = pa.Table.from_batches(q.scan_arrow("t", start="2026-01-01T00:00:30Z"))
    assert late["payload"].to_pylist() == [b"last"]
    some = pa.Table.from_batches(q.scan_arrow("t", start=4000, stop=4100))
    assert some["offset"].to_pylist() == list(range(4000, 4100))
    assert q.groups("t") == []


def test_round_trip(q) -> None:
    q.publish_many("a", [Draft(b"%d" % n, key=str(n), priority=n % 3, headers={"n": str(n)}) for n in range(100)])
    table = q.receive_arrow("a").table.select(["payload", "key", "headers", "priority"])
    q.publish_arrow("b", table)
    assert q.receive_arrow("b").table.select(table.schema.names) == table


def test_tables_leave_a_trace(q) -> None:
    receipts = q.publish_arrow("t", pa.table({"payload": [b"1", b"2"]}))
    q.receive_arrow("t").ack()
    assert kinds(q, receipts[1]) == ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED"]


def test_some_of_a_table(q) -> None:
    q.publish_many("t", [Draft(b"%d" % n, priority=n % 2) for n in range(10)])
    lease = q.receive_arrow("t", visibility="30s")
    ids = lease.table["id"].to_pylist()
    assert (len(lease.token), 0 < lease.remaining_ms <= 30_000) == (32, True)
    assert lease.nack(ids=ids[1:3]).settled == 2
    assert lease.reject(ids=[ids[7]]).settled == 1
    assert lease.extend("1m", ids=ids[:1]).settled == 1
    assert lease.ack(ids=[]).settled == 0
    assert lease.ack() == mqueue.Settlement(7)
    group = q.stats("t").groups["default"]
    assert (group.acked, group.waiting, group.dead, group.leased) == (7, 2, 1, 0)


def test_ids_that_are_not_in_a_table(q) -> None:
    q.publish_many("t", [b"1", b"2"])
    lease = q.receive_arrow("t")
    first, second = lease.table["id"].to_pylist()
    assert lease.ack(ids=[first, 7]) == mqueue.Settlement(1, (7,))
    with refused(mqueue.LeaseLost, "lease_lost") as caught:
        lease.ack(ids=[7])
    assert list(caught.value.lost) == [7]
    with refused(mqueue.LeaseLost, "lease_lost"):
        lease.nack(ids=[first])
    for wrong in ([True], ["7"], [-1], [1 << 63]):
        with refused(mqueue.Refused, "bad_id"):
            lease.ack(ids=wrong)
    assert lease.ack().settled == 1
    assert q.stats("t").groups["default"].acked == 2
    assert second
