"""Orders in an event loop: urgent ones first, failures tried again, what is hopeless looked at in the end.

The broker lives in this process and its clock is moved by hand, so a retry that takes seconds is shown at once.
"""

import asyncio
from typing import assert_type

import mqueue
from mqueue.testing import ManualClock


async def main() -> list[str]:
    done: list[str] = []
    clock = ManualClock()

    async def ship(m: mqueue.AsyncMessage) -> None:
        order = m.json(dict[str, str])
        if order["to"] == "nowhere":
            raise ValueError("no such place")
        done.append(order["to"])

    async with mqueue.connect_async("memory:", clock=clock, max_retries=1) as q:
        receipts = await q.publish_many(
            "orders",
            [{"to": "Bonn"}, mqueue.Draft({"to": "Oslo"}, priority="high"), {"to": "nowhere"}],
        )
        async with q.subscribe("orders", ship, concurrency=2):
            while not await q.dlq("orders").messages():
                clock.advance("1s")
                await asyncio.sleep(0)
        for dead in await q.dlq("orders").messages():
            print(f"gave up on {dead.text()} after {dead.attempts} attempts: {dead.error}")
        print(await q.trace(receipts[2]))
        async for m in q.scan("orders"):
            print(f"still in the log: {m.text()}")
    return done


async def types_are_known(q: mqueue.AsyncBroker) -> None:
    """Never called: a type checker proves here what the calls answer."""
    assert_type(await q.publish("orders", b"1"), mqueue.Receipt)
    assert_type(await q.receive("orders", wait="1s"), list[mqueue.AsyncMessage])
    assert_type(await (await q.receive("orders"))[0].ack(), None)
    assert_type((await (await q.receive_arrow("orders")).ack()).settled, int)
    assert_type([m async for m in q.consume("orders")], list[mqueue.AsyncMessage])
    assert_type(await q.dlq("orders").messages(), list[mqueue.AsyncDeadMessage])
    assert_type(await q.explain(1), mqueue.Explanation)
    assert_type(q.namespace("tenant-a"), mqueue.AsyncBroker)
    assert_type(await mqueue.connect_async("memory:"), mqueue.AsyncBroker | mqueue.AsyncClient)


if __name__ == "__main__":
    print("shipped to", ", ".join(asyncio.run(main())))
