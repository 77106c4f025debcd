"""Break the data pipeline in every way it knows, again and again, and look whether each message is there once.

    python -m tests.pipeline.faults --seeds 5                       all of them
    python -m tests.pipeline.faults --seeds 5 --only "kill driver"  those whose name has these words

A run is a fault and a seed. The seed makes the messages and chooses the moment; then the pipeline is started again and
again until it is done, and what came out is compared with what went in. Each run prints its seed and what was done.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import pyarrow as pa
from msgspec import Struct

import mqueue
from mqueue.lake import open_lake
from tests.pipeline.breaking import Folder, Plan
from tests.pipeline.cluster import Cluster
from tests.pipeline.driving import Driver, Failed, Gone, Supervised

ROWS = 6_000
BATCHES = 3
PARTITIONS = 2
WIDE_BYTES = 8_000
STARTS_MAX = 6
TASKS = BATCHES * PARTITIONS
"""In all batches together, at least."""
FORMATS = ("delta", "iceberg", "parquet")


class Fault(Struct, frozen=True):
    """`passes`: how often the place is passed in a run at least, so that a seed may choose one of them.

    `starts`: how often the pipeline has to be started; 1: it gets over the fault by itself. `wide`: messages so large
    that a task asks the server for several pages, all in one batch.
    """

    work: str
    act: str
    point: str
    passes: int
    after_ms_max: int = 0
    starts: int = 1
    cluster: bool = False
    wide: bool = False

    @property
    def name(self) -> str:
        return f"{self.work}: {self.act} at {self.point}{' of pages' if self.wide else ''}"


STREAM, ARCHIVE = "stream", "archive"
FAIL, DRIVER, SERVER, EXECUTOR = "fail", "kill driver", "kill server", "kill executor"
FAULTS = (
    Fault(STREAM, FAIL, "read", TASKS),
    Fault(STREAM, FAIL, "stage", TASKS),
    Fault(STREAM, FAIL, "staged", TASKS),
    Fault(STREAM, DRIVER, "stage", TASKS, starts=2),
    Fault(STREAM, DRIVER, "staged", TASKS, starts=2),
    Fault(STREAM, DRIVER, "publish", BATCHES, after_ms_max=20, starts=2),
    Fault(STREAM, DRIVER, "published", BATCHES, starts=2),
    Fault(STREAM, SERVER, "plan", BATCHES),
    Fault(STREAM, SERVER, "read", TASKS, after_ms_max=5),
    Fault(STREAM, SERVER, "read", PARTITIONS * 2, after_ms_max=20, wide=True),
    Fault(STREAM, SERVER, "stage", TASKS, after_ms_max=5),
    Fault(STREAM, SERVER, "publish", BATCHES, after_ms_max=20),
    Fault(STREAM, EXECUTOR, "read", TASKS, cluster=True),
    Fault(STREAM, EXECUTOR, "staged", TASKS, cluster=True),
    Fault(ARCHIVE, FAIL, "file", TASKS),
    Fault(ARCHIVE, FAIL, "filed", TASKS),
    Fault(ARCHIVE, DRIVER, "file", TASKS, starts=2),
    Fault(ARCHIVE, DRIVER, "append", BATCHES, after_ms_max=20, starts=2),
    Fault(ARCHIVE, DRIVER, "appended", BATCHES, starts=2),
    Fault(ARCHIVE, SERVER, "file", TASKS, after_ms_max=5),
    Fault(ARCHIVE, SERVER, "file", PARTITIONS * 2, after_ms_max=20, wide=True),
    Fault(ARCHIVE, SERVER, "let go", BATCHES, after_ms_max=5),
    Fault(ARCHIVE, "overtake", "append", BATCHES),
    Fault(ARCHIVE, "intrude", "append", BATCHES),
    Fault(ARCHIVE, "compact", "append", BATCHES),
    Fault(ARCHIVE, EXECUTOR, "file", TASKS, cluster=True),
    Fault(ARCHIVE, EXECUTOR, "filed", TASKS, cluster=True),
)


class Outcome(Struct, frozen=True):
    """`wrong` is empty if all is well."""

    fault: Fault
    seed: int
    plan: Plan
    starts: int
    wrong: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        when = f"pass {self.plan.nth}, {self.plan.after_ms} ms later"
        told = "clean" if not self.wrong else "WRONG: " + "; ".join(self.wrong)
        return f"{self.fault.name}, seed {self.seed} ({when}): {self.starts} starts, {self.seconds:.1f} s, {told}"


class Campaign:
    """One server, and a driver that is replaced when it is killed. `place` is a directory for all of it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._folder = Folder(place / "plans")
        self._folder.path.mkdir()
        self._runs = 0
        self._driver: Driver | None = None
        self._cluster: Cluster | None = None
        self._in_cluster = False
        self.server = Supervised(place, self._folder)

    def run(self, fault: Fault, seed: int) -> Outcome:
        began = time.monotonic()
        rng = Random(f"{fault.name} {seed}")
        self._runs += 1
        after_ms = rng.randint(0, fault.after_ms_max) if fault.after_ms_max else 0
        plan = Plan(self._runs, fault.point, rng.randrange(fault.passes), fault.act, after_ms)
        words = self._filled(fault, seed, rng)
        self.server.pause_seconds = rng.uniform(0, 3)
        self._use(fault.cluster)
        self._folder.arm(plan)
        starts = self._started(fault.work, words)
        wrong = [] if self._folder.acted(plan) else ["the fault did not happen"]
        wrong += [] if starts == fault.starts else [f"it took {starts} starts, not {fault.starts}"]
        wrong += self._wrong(fault, words)
        return Outcome(fault, seed, plan, starts, tuple(wrong), time.monotonic() - began)

    def close(self) -> None:
        try:
            if self._driver is not None:
                self._driver.close()
        finally:
            if self._cluster is not None:
                self._cluster.close()
            self.server.close()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _filled(self, fault: Fault, seed: int, rng: Random) -> dict[str, Any]:
        """A namespace with messages, and all that a driver has to know."""
        namespace = f"run-{self._runs}"
        with mqueue.Client(self.server.url, namespace=namespace) as client:
            client.configure("in", partitions=PARTITIONS)
            made = messages(rng, WIDE_BYTES if fault.wide else 0)
            for start in range(0, ROWS, 1000):
                client.publish_arrow("in", made.slice(start, 1000))
        return {
            "url": self.server.url,
            "namespace": namespace,
            "folder": str(self._place / namespace),
            "from": "in",
            "to": "out",
            "rows": ROWS if fault.wide else ROWS // BATCHES,
            "format": FORMATS[seed % len(FORMATS)],
        }

    def _use(self, cluster: bool) -> None:
        """Have a driver where this fault can happen."""
        if self._driver is not None and self._in_cluster != cluster:
            self._driver.close()
            self._driver = None
        self._in_cluster = cluster

    def _started(self, work: str, words: dict[str, Any]) -> int:
        """Start it until it is done; how often that was."""
        for starts in range(1, STARTS_MAX + 1):
            try:
                self._at_work().order(work, **words)
            except Gone:
                assert self._driver is not None
                self._driver.kill()
                self._driver = None
            except Failed as failed:
                print(f"  start {starts}: {str(failed)[:500]}", flush=True)
            else:
                return starts
        return STARTS_MAX + 1

    def _at_work(self) -> Driver:
        if self._driver is None:
            conf: dict[str, str] | None = None
            if self._in_cluster:
                self._cluster = self._cluster or Cluster(self._place / "cluster")
                conf = self._cluster.conf
            self._driver = Driver(self._place, self._folder, conf) if conf else Driver(self._place, self._folder)
        return self._driver

    def _wrong(self, fault: Fault, words: dict[str, Any]) -> Iterator[str]:
        with mqueue.Client(self.server.url, namespace=words["namespace"]) as client:
            if fault.work == STREAM:
                yield from wrong_topic(client)
                return
            yield from wrong_lake(client, words)
            report = self._at_work().order("audit", **words)
            if not report["clean"] or report["archived"] != ROWS:
                yield f"the audit says {report}"


def messages(rng: Random, least_bytes: int = 0) -> pa.Table:
    """Each one different, as different as they may be."""
    payloads = [b"%d " % n + rng.randbytes(least_bytes + rng.randrange(60)) for n in range(ROWS)]
    return pa.table(
        {
            "payload": pa.array(payloads, pa.binary()),
            "key": pa.array([rng.choice([None, b"", rng.randbytes(6)]) for _ in range(ROWS)], pa.binary()),
            "priority": pa.array([rng.randrange(4) for _ in range(ROWS)], pa.int64()),
        }
    )


def wrong_topic(client: mqueue.Client) -> Iterator[str]:
    """What went in and what came out, by the bytes in the log."""
    put, got = (Counter(row[2:] for row in in_log(client, topic)) for topic in ("in", "out"))
    yield from told("lost", (put - got).elements())
    yield from told("too many", (got - put).elements())


def wrong_lake(client: mqueue.Client, words: dict[str, Any]) -> Iterator[str]:
    """The log against the lake, row by row; and the cursor, which must not be ahead of the lake."""
    lake = open_lake(words["folder"], words["format"])
    put = Counter(in_log(client, "in"))
    columns = ["partition", "offset", "value", "key", "priority"]
    batches = lake.scan(words["namespace"], "in", columns=columns)
    got = Counter(row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    yield from told("lost", (put - got).elements())
    yield from told("too many", (got - put).elements())
    ends = lake.offsets(words["namespace"], "in")
    for cursor in client.cursors("in"):
        if dict(cursor.offsets) != ends:
            yield f"cursor {cursor.name} is at {cursor.offsets}, the lake at {ends}"


def in_log(client: mqueue.Client, topic: str) -> Iterator[tuple[Any, ...]]:
    """(partition, offset, payload, key, priority) of each message."""
    for place in client.offsets(topic):
        for frame in client.scan_frames(topic, place.partition, place.first, place.next):
            rows = frame.rows
            for n, payload in enumerate(rows.payload):
                key = None if rows.key is None else rows.key[n]
                priority = frame.priority if isinstance(frame.priority, int) else int(frame.priority[n])
                yield place.partition, frame.base + n, bytes(payload), key, priority


def told(what: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    found = list(rows)
    if found:
        yield f"{len(found)} {what}, such as {found[0]!r:.100}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs of each fault")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="faults whose name has these words")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.name]
    outcomes = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    with tempfile.TemporaryDirectory() as place, Campaign(Path(place)) as campaign:
        for fault in chosen:
            for seed in range(given.first, given.first + given.seeds):
                outcomes.append(campaign.run(fault, seed))
                print(outcomes[-1], flush=True)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"{len(outcomes)} runs of {len(chosen)} faults, {ROWS} messages each: {len(wrong)} wrong")
    for outcome in wrong:
        print(outcome)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
