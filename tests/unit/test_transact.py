"""What no user sees of transactions: the topics behind them, the ids of what is staged, damage, what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqueue
from mqueue.broker import transact
from mqueue.heart.marks import Marks
from mqueue.testing import ManualClock

ID = "x/1"


def test_what_is_staged_cannot_be_found_by_its_id() -> None:
    with mqueue.Broker(clock=ManualClock()) as q:
        before = q.publish("t", b"0")
        q.stage(ID, "t", [b"1"])
        after = q.publish("t", b"2")
        for id in range(before.id + 1, after.id):
            with pytest.raises(mqueue.NotFound):
                q.trace(id)
            with pytest.raises(mqueue.NotFound):
                q.cancel(id)


def test_hidden_topics_take_no_room_from_others() -> None:
    with mqueue.Broker(limits=mqueue.Limits(topics_max=1)) as q:
        q.stage(ID, "t", [b"1"])
        q.stage("x/2", "u", [b"1"])
        q.commit(ID)
        with pytest.raises(mqueue.QueueFull) as caught:
            q.commit("x/2")
        assert (caught.value.code, q.transaction("x/2").state, q.topics()) == ("topics_full", "staged", ["t"])


def test_what_is_missing_is_told_and_can_be_aborted() -> None:
    with mqueue.Broker() as q:
        q.stage(ID, "t", [b"1", b"2"])
        q.stage(ID, "t", [b"3"], part="1")
        store = q._engine.store
        store.log.trim(store.state.staged["default"][ID].id, (2,), [Marks()])
        with pytest.raises(mqueue.Corrupt) as caught:
            q.commit(ID)
        assert (caught.value.code, caught.value.applied) == ("data_lost", False)
        assert q.topics() == []
        assert q.abort(ID).state == "aborted"


def test_a_commit_that_has_begun_says_that_it_is_not_known_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqueue.store.transact.COMMIT_STEP_MESSAGES", 1)
    clock = ManualClock()
    with mqueue.Broker(clock=clock) as q:
        for part in range(3):
            q.stage(ID, "t", [b"%d" % part], part=str(part))
        store, full = q._engine.store, mqueue.Backpressure("not now")
        check, calls = store.ids.check, iter([None, full, full])

        def checked(count: int, now: int) -> None:
            if (error := next(calls, None)) is not None:
                raise error
            check(count, now)

        monkeypatch.setattr(type(store.ids), "check", lambda self, count, now: checked(count, now))
        with pytest.raises(mqueue.Backpressure) as caught:
            q.commit(ID)
        assert caught.value.applied is None
        assert q.transaction(ID).state == "committing"
        clock.advance("2s")
        assert q.stats("t").published == 1  # it goes on by itself; that it cannot is not for who calls just now
        monkeypatch.undo()
        assert q.commit(ID).state == "committed"
        assert q.stats("t").published == 3


@pytest.mark.parametrize("calls", [1, 2])
def test_a_commit_of_some_parts_that_has_begun_is_finished_as_it_was_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calls: int
) -> None:
    monkeypatch.setattr("mqueue.store.transact.COMMIT_STEP_MESSAGES", 1)
    clock = ManualClock()
    with mqueue.Broker(tmp_path, clock=clock) as q:
        for part in range(5):
            q.stage(ID, "t", [b"%d" % part], part=str(part))
        for _ in range(calls):
            assert transact.commit_step(q._engine, "default", ID, ["1", "3", "4"]) is None
        found = q.transaction(ID)
        assert (found.state, found.parts, found.messages) == ("committing", 3, 3)
    for _ in range(2):  # it goes on by itself once a call lets time pass, so nobody may advance the clock here
        with mqueue.Broker(tmp_path, clock=clock) as q:
            assert q.transaction(ID).parts == 3
    with mqueue.Broker(tmp_path, clock=clock) as q:
        assert q.commit(ID, ["0"]).messages == 3
        assert [m.payload for m in q.scan("t")] == [b"1", b"3", b"4"]


def test_it_is_all_there_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    with mqueue.Broker(tmp_path, clock=clock) as q:
        q.publish_many("t", [b"0", b"1"])
        cursor = q.set_cursor("t", "c", {0: 1})
        q.stage(ID, "t", [b"2"])
        staged = q.transaction(ID)
        q.stage("x/2", "t", [b"3"])
        committed = q.commit("x/2")
        q.stage("x/3", "t", [b"4"])
        aborted = q.abort("x/3")
    for _ in range(2):
        with mqueue.Broker(tmp_path, clock=clock) as q:
            assert q.cursors("t") == [cursor]
            assert [q.transaction(f"x/{n}") for n in (1, 2, 3)] == [staged, committed, aborted]
            assert q.topics() == ["t"]
    with mqueue.Broker(tmp_path, clock=clock) as q:
        q.commit(ID)
        assert q.commit("x/2") == committed
        assert [m.payload for m in q.scan("t")] == [b"0", b"1", b"3", b"2"]
