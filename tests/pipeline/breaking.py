"""Places in the pipeline at which something is made to break, once, when a plan says so.

A plan is a file in a folder that an environment variable names, so that every process of a run finds it: drivers,
planners, tasks. Each place is passed many times, in many processes; who passes it draws the next number, and the one
with the number of the plan acts. The code that is broken is the real one: the classes here only stand around it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct, json
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from mqueue.lake import DataFile, Writer
from mqueue.pipeline import rows, sink
from mqueue.pipeline.archiving import Filed, Filing
from mqueue.pipeline.offsets import Range
from mqueue.pipeline.source import MqueueDataSource
from mqueue.pipeline.stream_reader import MqueueStreamReader
from mqueue.pipeline.stream_writer import MqueueStreamWriter

VARIABLE = "BREAKING"
DRIVER, SERVER = "driver.pid", "server.pid"
PIECE_ROWS = 400
"""Small pieces, so that a task stages several."""


class Plan(Struct, frozen=True):
    """At the `nth` pass of `point` do `act`, `after_ms` later: a moment in which the next thing is under way."""

    number: int
    point: str
    nth: int
    act: str
    after_ms: int = 0


class Folder:
    """Where plans lie, and what became of them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def here(cls) -> Folder | None:
        named = os.environ.get(VARIABLE)
        return Folder(Path(named)) if named else None

    def arm(self, plan: Plan) -> None:
        (self.path / f"passed-{plan.number}").mkdir(parents=True)
        self.write("plan", json.encode(plan).decode())

    def armed(self) -> Plan | None:
        try:
            return json.decode((self.path / "plan").read_bytes(), type=Plan)
        except FileNotFoundError:
            return None

    def drawn(self, plan: Plan) -> int:
        """How often the place was passed before."""
        number = 0
        while True:
            try:
                (self.path / f"passed-{plan.number}" / str(number)).touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return number

    def acted(self, plan: Plan) -> bool:
        return (self.path / f"acted-{plan.number}").exists()

    def note(self, plan: Plan) -> None:
        (self.path / f"acted-{plan.number}").touch()

    def write(self, name: str, text: str) -> None:
        draft = self.path / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="ascii")
        draft.rename(self.path / name)

    def pid(self, name: str) -> int:
        return int((self.path / name).read_text(encoding="ascii"))


class Injected(RuntimeError):
    """What a task fails with."""


def passed(point: str) -> None:
    """Somebody comes by."""
    folder = Folder.here()
    plan = folder.armed() if folder else None
    if folder is None or plan is None or plan.point != point or folder.drawn(plan) != plan.nth:
        return
    folder.note(plan)
    act = ACTS[plan.act]
    if plan.after_ms:
        threading.Timer(plan.after_ms / 1000, act, [folder]).start()
    else:
        act(folder)


def _fail(folder: Folder) -> None:
    raise Injected("injected")


def _kill_driver(folder: Folder) -> None:
    """Its Python and its JVM at once. Who does this may live on for a moment, and ends what it has begun."""
    os.killpg(folder.pid(DRIVER), signal.SIGKILL)


def _kill_server(folder: Folder) -> None:
    os.kill(folder.pid(SERVER), signal.SIGKILL)


def _kill_executor(folder: Folder) -> None:
    """The JVM that has started the daemon that has forked this process."""
    os.kill(_parent(os.getppid()), signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


ACTS: dict[str, Callable[[Folder], None]] = {
    "fail": _fail,
    "kill driver": _kill_driver,
    "kill server": _kill_server,
    "kill executor": _kill_executor,
}
"""A driver adds its own."""


def broken(batches: Iterable[pa.RecordBatch], point: str) -> Iterator[pa.RecordBatch]:
    """Passes by before each batch, the first as well, and at the end."""
    left = iter(batches)
    while True:
        passed(point)
        batch = next(left, None)
        if batch is None:
            return
        yield batch


# A stream from topic to topic


class BreakingSource(MqueueDataSource):
    """`mqueue`, under a name of its own."""

    @classmethod
    def name(cls) -> str:
        return "breaking"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BreakingReader(self._reading(schema, streaming=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return BreakingWriter(self.options, schema, overwrite, self._connection.token)


class BreakingReader(MqueueStreamReader):
    def __reduce__(self) -> tuple[Any, ...]:
        return BreakingReader, (self._reading,)

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        passed("plan")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return broken(super().read(partition), "read")


class BreakingWriter(MqueueStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows.ROWS_MAX = PIECE_ROWS
        sink._stage = _stage
        message = super().write(iterator)
        passed("staged")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        passed("publish")
        super().commit(messages, batchId)
        passed("published")


_real_stage = sink._stage


def _stage(*args: Any) -> str:
    passed("stage")
    return _real_stage(*args)


# An archive


class BreakingFiling(Filing):
    def __call__(self, range: Range) -> Filed:
        self._writer = _BreakingWriter(self._writer)  # type: ignore[assignment]
        filed = super().__call__(range)
        passed("filed")
        return filed


class _BreakingWriter:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        return self._writer.write(broken(batches, "file"))
