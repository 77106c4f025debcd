"""Others go on while a checkpoint is written and segments are removed; what they do is lost by no kill.

The moments between two holds of the lock are the ones that threads hardly ever hit: here somebody steps in at each of
them, and the directory is copied as a killed process would leave it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqueue import Broker, Storage
from mqueue.broker.commits import Commits
from mqueue.log.segments import checkpoint
from mqueue.log.segments.log import NOTHING
from mqueue.store import transact

KIB = 1024
STORAGE = Storage(segment_bytes=64 * KIB, checkpoint_bytes=32 * KIB, checkpoint_seconds=3600, reserve_bytes=0)


class Busy:
    """A broker whose upkeep is interrupted: `meanwhile` is done whenever a sync of it is over."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.q = Broker(folder, storage=STORAGE, retention={"on_ack": True})
        engine: Any = self.q._engine
        self.engine = engine
        engine.upkeep._stop.set()  # it is stepped
        self._monkeypatch = monkeypatch

    @contextmanager
    def meanwhile(self, step: Callable[[], object], nth: int = 1) -> Iterator[None]:
        """In the block `step` is done once, right after the n-th sync."""
        real, syncs = Commits.sync, 0

        def sync(commits: Commits, batch: int) -> None:
            nonlocal syncs
            real(commits, batch)
            syncs += 1
            if syncs == nth:
                step()

        with self._monkeypatch.context() as patch:
            patch.setattr(Commits, "sync", sync)
            yield
        assert syncs >= nth, "nobody could step in"

    def unwritten(self, work: Callable[[int], object]) -> Callable[[], None]:
        """Work that is handed in, and written only when the next one commits."""

        def step() -> None:
            with self.engine.gate.at(NOTHING):
                work(self.engine.tick())

        return step

    def conclude(self, transaction: str) -> Callable[[], None]:
        """A commit whose caller is killed while he waits for the disk."""
        store = self.engine.store
        return self.unwritten(lambda now: transact.commit(store, store.state.staged["default"][transaction], None, now))


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    made = Busy(tmp_path / "data", monkeypatch)
    yield made
    made.q.close()


@contextmanager
def killed(folder: Path) -> Iterator[Broker]:
    """What somebody finds who opens the directory as it is now."""
    copy = folder.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    with Broker(copy, storage=STORAGE) as broker:
        yield broker


def texts(broker: Broker, topic: str) -> list[str]:
    return [message.text() for message in broker.scan(topic)] if topic in broker.topics() else []


def test_a_commit_that_is_not_durable_leaves_what_was_staged(busy: Busy, tmp_path: Path) -> None:
    busy.q.publish("t", "before")
    busy.q.stage("x", "t", ["one", "two"])
    busy.engine.upkeep.save_points()
    busy.q.stage("other", "t", ["between"])
    busy.q.commit("other")  # so that the ledger, too, is written down anew
    with busy.meanwhile(busy.conclude("x")):
        busy.engine.upkeep.save_points()
    with killed(tmp_path / "data") as broker:
        assert texts(broker, "t") == ["before", "between"]
        assert broker.transaction("x").state == "staged"
        broker.commit("x")
        assert texts(broker, "t") == ["before", "between", "one", "two"]


def test_a_commit_that_is_durable_meanwhile_is_not_done_again(busy: Busy, tmp_path: Path) -> None:
    busy.q.publish("t", "before")
    busy.q.stage("x", "t", ["one"])
    busy.engine.upkeep.save_points()
    with busy.meanwhile(lambda: busy.q.commit("x")):
        busy.engine.upkeep.save_points()
    for _ in range(2):
        with killed(tmp_path / "data") as broker:
            assert texts(broker, "t") == ["before", "one"]
            assert broker.transaction("x").state == "committed"
        busy.engine.upkeep.save_points()
        busy.engine.upkeep.save_points()


def test_a_topic_that_is_made_while_a_checkpoint_is_written_stays(busy: Busy, tmp_path: Path) -> None:
    busy.q.publish("t", "before")
    busy.engine.upkeep.save_points()
    busy.q.publish("t", "again")
    with busy.meanwhile(lambda: busy.q.publish("new", "answered")):
        busy.engine.upkeep.save_points()
    with killed(tmp_path / "data") as broker:
        assert texts(broker, "t") == ["before", "again"]
        assert texts(broker, "new") == ["answered"]


def test_what_is_staged_while_a_checkpoint_is_written_stays(busy: Busy, tmp_path: Path) -> None:
    busy.q.stage("x", "t", ["one"])
    busy.q.commit("x")
    busy.engine.upkeep.save_points()
    busy.q.publish("u", "something")
    with busy.meanwhile(lambda: busy.q.stage("y", "t", ["two"])):
        busy.engine.upkeep.save_points()
    with killed(tmp_path / "data") as broker:
        assert broker.transaction("y").messages == 1
        broker.commit("y")
        assert texts(broker, "t") == ["one", "two"]


def test_a_topic_that_is_deleted_stays_deleted(busy: Busy, tmp_path: Path) -> None:
    busy.q.publish("t", "x")
    busy.q.publish("u", "y")
    busy.engine.upkeep.save_points()
    with busy.meanwhile(lambda: busy.q.delete_topic("t")):
        busy.q.publish("u", "z")
        busy.engine.upkeep.save_points()
    for _ in range(3):
        with killed(tmp_path / "data") as broker:
            assert broker.topics() == ["u"]
        busy.q.publish("u", "more")
        busy.engine.upkeep.save_points()
    told = checkpoint.load(busy.engine.store.log.disk, checkpoint.names(busy.engine.store.log.disk)[0])
    assert told is not None
    assert len(told.points) == 1


def test_a_topic_that_was_deleted_before_a_crash_holds_up_no_checkpoint(busy: Busy, tmp_path: Path) -> None:
    busy.q.publish("t", "x")
    busy.q.publish("u", "y")
    busy.engine.upkeep.save_points()
    busy.q.delete_topic("t")
    with killed(tmp_path / "data") as broker:
        engine: Any = broker._engine
        broker.publish("u", "z")
        engine.upkeep.save_points()
        saved = checkpoint.load(engine.store.log.disk, checkpoint.names(engine.store.log.disk)[0])
        assert saved is not None
        assert len(saved.points) == 1
        assert saved.position == engine.store.log.told[-1]
        assert engine.store.log.dirty == set()


def test_segments_stay_until_it_is_durable_that_nobody_needs_them(busy: Busy, tmp_path: Path) -> None:
    """The commit is handed in between the choice of what is dead and its end."""
    body = "b" * 8 * KIB
    busy.q.stage("x", "t", [body] * 10)
    for _ in range(3):  # so that what is staged lies in segments that no start has to read
        busy.q.publish_many("u", [body] * 10)
        busy.engine.upkeep.save_points()
    busy.conclude("x")()
    busy.engine.upkeep._clean()
    with killed(tmp_path / "data") as broker:
        found = broker.transaction("x")
        assert found.state in ("staged", "committed")
        broker.commit("x")
        assert texts(broker, "t") == [body] * 10
