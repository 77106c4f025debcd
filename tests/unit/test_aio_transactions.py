"""Cursors and transactions in an event loop: the same calls, awaited; a large commit leaves the others their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mqueue

ID = "x/1"
PARTS = 4
PART = [b"x"] * 9_000


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_the_calls_are_awaited(tmp_path: Path, where: str) -> None:
    async def main() -> None:
        async with mqueue.AsyncBroker(None if where == "memory" else tmp_path) as q:
            assert (await q.set_cursor("t", "c")).offsets == {0: 0}
            assert [cursor.name for cursor in await q.cursors("t")] == ["c"]
            await q.delete_cursor("t", "c")
            assert (await q.stage(ID, "t", [b"1", b"2"])).messages == 2
            assert (await q.transaction(ID)).state == "staged"
            assert (await q.commit(ID)).state == (await q.commit(ID)).state == "committed"
            assert [m.payload async for m in q.scan("t")] == [b"1", b"2"]
            with pytest.raises(mqueue.Conflict):
                await q.abort(ID)
            with pytest.raises(mqueue.NotFound):
                await q.commit("y")

    asyncio.run(main())


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_others_get_a_turn_while_a_large_transaction_is_committed(tmp_path: Path, where: str) -> None:
    async def main() -> None:
        async with mqueue.AsyncBroker(None if where == "memory" else tmp_path) as q:
            for part in range(PARTS):
                await q.stage(ID, "t", PART, part=str(part))
            committing = asyncio.create_task(q.commit(ID))
            states = []
            while not committing.done():
                states.append((await q.transaction(ID)).state)
                await asyncio.sleep(0)
            assert (await committing).messages == PARTS * len(PART)
            assert "committing" in states

    asyncio.run(main())


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_commit_that_was_cancelled_is_finished_by_the_next(tmp_path: Path, where: str) -> None:
    async def main() -> None:
        async with mqueue.AsyncBroker(None if where == "memory" else tmp_path) as q:
            for part in range(PARTS):
                await q.stage(ID, "t", PART, part=str(part))
            committing = asyncio.create_task(q.commit(ID))
            while (await q.transaction(ID)).state == "staged":
                await asyncio.sleep(0)
            committing.cancel()
            await asyncio.wait([committing])
            with pytest.raises(mqueue.Conflict):
                await q.stage(ID, "t", [b"late"])
            assert (await q.commit(ID)).messages == PARTS * len(PART)
            assert (await q.stats("t")).published == PARTS * len(PART)

    asyncio.run(main())
