"""A worker in one file: typed payloads, a retry, messages that are given up, and an orderly end.

In your own program the last part is `app.run()`, or `mqueue worker worker_app:app` on the command line.
"""

import asyncio
import logging

import msgspec

import mqueue


class Order(msgspec.Struct):
    number: int
    item: str


q = mqueue.AsyncBroker()  # in memory, for the show; without queue= a worker connects to MQUEUE_URL
app = mqueue.Worker(queue=q)
story: list[str] = []


@app.handler("orders", retries=3, backoff="10ms")
async def ship(order: Order, m: mqueue.AsyncMessage) -> None:  # returns: ack; raises: nack
    if order.item == "unicorn":
        raise mqueue.Reject("we have none")
    if order.item == "piano" and m.attempt == 1:
        raise mqueue.Retry("the van is out", delay="20ms")
    await q.publish("shipped", f"{order.number}: {order.item}, attempt {m.attempt}")


@app.handler("shipped")
def thank(text: str) -> None:  # no coroutine: runs in a thread
    tell(f"shipped {text}")


@app.handler("orders.dlq")  # the dead are a queue too
async def regret(m: mqueue.AsyncMessage) -> None:
    tell(f"sorry, {m.text()}: {m.headers['x-error']!s}")


def tell(line: str) -> None:
    story.append(line)
    if len(story) == 4:
        app.stop()  # as SIGTERM does: no new messages, those at hand are finished


async def main() -> None:
    async with q:
        await q.publish_many("orders", [Order(1, "piano"), Order(2, "tea"), Order(3, "unicorn"), {"number": "four"}])
        await app.serve()
    print(*sorted(story), sep="\n")
    for consumer in app.consumers():
        print(f"{consumer.handler}: {consumer.handled} handled, {consumer.failed} failed")


if __name__ == "__main__":
    logging.getLogger("mqueue").addHandler(logging.NullHandler())  # failures are logged there
    asyncio.run(main())
# → shipped 1: piano, attempt 2
# → shipped 2: tea, attempt 1
# → sorry, {"number":"four"}: Refused: payload of 17 bytes is no Order: Expected `int`, got `str` - at `$.number`
# → sorry, {"number":3,"item":"unicorn"}: we have none
# → ship: 2 handled, 3 failed
# → thank: 2 handled, 0 failed
# → regret: 2 handled, 0 failed
