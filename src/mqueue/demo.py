"""A tour of mqueue in a few seconds: `python -m mqueue.demo`. Each chapter shows the code it runs, then what came out.

A chapter is a function; what is printed as its code is its own source, so the tour cannot show what does not work.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

import mqueue
from mqueue.testing import ManualClock

Chapter = Callable[[mqueue.Broker, ManualClock], None]
WIDTH = 88


def urgent_first(q: mqueue.Broker, clock: ManualClock) -> None:
    """The urgent goes first, whenever it came."""
    q.publish("orders", "a postcard", priority="low")
    q.publish("orders", "a parcel")
    q.publish("orders", "a heart for transplant", priority="critical")
    for m in q.receive("orders", limit=10):
        with m:  # acks at the end of the block, nacks on an exception
            print(f"priority {m.priority:>2}: {m.text()}")


def not_before_its_time(q: mqueue.Broker, clock: ManualClock) -> None:
    """A delayed message is not delivered early."""
    q.publish("reminders", "call back", delay="5m")
    print("now:", q.receive("reminders"))
    clock.advance("5m")
    print("5 minutes later:", [m.text() for m in q.receive("reminders")])


def failing_and_back(q: mqueue.Broker, clock: ManualClock) -> None:
    """What keeps failing ends in the dead-letter queue, and can be brought back."""
    q.configure("mail", max_retries=1, backoff="1s")
    q.publish("mail", {"to": "nowhere"})
    for _ in range(2):
        for m in q.receive("mail"):
            with suppress(ValueError), m:
                raise ValueError("no such address")
        clock.advance("2s")  # the backoff passes
    for dead in q.dlq("mail").messages():
        print(f"dead: {dead.text()} after {dead.attempts} attempts: {dead.error}")
    print(q.dlq("mail").redrive(filter='error ~ "address"'))
    for m in q.receive("mail"):
        with m:
            print("delivered again, attempt", m.attempt)


def two_groups(q: mqueue.Broker, clock: ManualClock) -> None:
    """Each group gets every message; inside a group the work is shared."""
    q.publish_many("sales", ["tea", "rye", "oil", "ink"])
    for consumer in ("anna", "bob"):
        got = q.receive("sales", limit=2, group="billing")
        print(f"billing, {consumer}:", [m.text() for m in got])
        q.ack(got)
    print("audit:", [m.text() for m in q.receive("sales", limit=10, group="audit")])


def replay(q: mqueue.Broker, clock: ManualClock) -> None:
    """An ack does not delete: the log can be read again."""
    print("since new year:", [m.text() for m in q.scan("sales", start="2026-01-01")])
    q.seek("sales", group="billing", to=2)
    again = q.receive("sales", limit=10, group="billing")
    print("billing, sent back to offset 2:", [m.text() for m in again])


def where_is_it(q: mqueue.Broker, clock: ManualClock) -> None:
    """Any message can be asked what became of it, and why it is not here yet."""
    receipt = q.publish("reports", "the year 2025")
    [m] = q.receive("reports", visibility="30s")
    print(q.explain(receipt))
    m.nack(delay="10s", error="printer on fire")
    print(q.explain(receipt))
    clock.advance("10s")
    q.receive("reports")[0].ack()
    print(q.trace(receipt))


def tables(q: mqueue.Broker, clock: ManualClock) -> None:
    """Whole tables go in and out, through Arrow."""
    table = pa.table({"payload": ["20.1", "20.4", "19.8"], "priority": [50, 0, 50]})
    q.publish_arrow("readings", table)
    lease = q.receive_arrow("readings")
    for row in lease.table.select(["offset", "priority", "payload"]).to_pylist():
        print(row)
    print(lease.ack())


def on_disk(q: mqueue.Broker, clock: ManualClock) -> None:
    """On disk every answer is durable, and the next process goes on where this one ended."""
    with tempfile.TemporaryDirectory() as folder:
        with mqueue.Broker(folder, clock=clock) as disk:
            receipts = disk.publish_many("letters", ["alpha", "beta", "gamma"])
            print("answered after:", receipts[0].durability)
            disk.receive("letters")[0].ack()
        with mqueue.Broker(folder, clock=clock) as disk:
            print("found:", [m.text() for m in disk.receive("letters", limit=10)])


def throughput(q: mqueue.Broker, clock: ManualClock) -> None:
    """How fast is that? In memory, in this process, on this machine, on one thread."""
    q = mqueue.Broker()  # on the machine's clock
    count, batch = 100_000, [b"x" * 100] * 10_000
    began = time.perf_counter()
    for _ in range(count // len(batch)):
        q.publish_many("numbers", batch)
    published = time.perf_counter()
    while messages := q.receive("numbers", limit=10_000):
        q.ack(messages)
    done = time.perf_counter()
    print(f"published {count / (published - began):>9,.0f} messages a second, of 100 bytes")
    print(f"delivered {count / (done - published):>9,.0f} messages a second, all acked")


CHAPTERS: tuple[Chapter, ...] = (
    urgent_first,
    not_before_its_time,
    failing_and_back,
    two_groups,
    replay,
    where_is_it,
    tables,
    on_disk,
    throughput,
)


def main() -> None:
    began = time.perf_counter()
    clock = ManualClock()
    print(f"mqueue {mqueue.__version__}: a priority message queue that replays like a log\n")
    print("    q = mqueue.Broker(clock=clock)")
    print("\nThe clock is moved by hand, so nothing here sleeps: clock.advance() stands for waiting.")
    with mqueue.Broker(clock=clock) as q:
        for number, chapter in enumerate(CHAPTERS, 1):
            print("\n" + _bold(f"{number}  {chapter.__doc__} ".ljust(WIDTH, "-")) + "\n")
            print(textwrap.indent(code(chapter), "    ") + "\n")
            chapter(q, clock)
    print(f"\nThat took {time.perf_counter() - began:.1f} s. To go on: python -c 'import mqueue; help(mqueue.Broker)'")


def code(chapter: Chapter) -> str:
    """The lines of a chapter, without its head and its docstring."""
    source = textwrap.dedent(inspect.getsource(chapter))
    head = ast.parse(source).body[0]
    assert isinstance(head, ast.FunctionDef)
    return textwrap.dedent("\n".join(source.splitlines()[head.body[1].lineno - 1 :]))


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[1m{text}\033[0m"


if __name__ == "__main__":
    main()
