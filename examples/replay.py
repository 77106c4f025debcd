"""A bug was found after everything was acked: go back to the hour it came in and do the work again."""

from mqueue import Broker, Message
from mqueue.testing import ManualClock


def amounts(messages: list[Message]) -> str:
    return ", ".join(m.text() for m in messages)


def main() -> None:
    clock = ManualClock("2026-01-14T08:00:00Z")  # moved by hand, so that an hour takes no time
    with Broker(clock=clock) as q:
        receipts = []
        for amount in ("10", "20", "30"):
            receipts.append(q.publish("bookings", amount))
            clock.advance("1h")

        messages = q.receive("bookings", limit=10, group="ledger")
        print("booked:", amounts(messages))
        q.ack(messages)

        since = "2026-01-14T09:00:00Z"
        print("the log since 09:00:", amounts(list(q.scan("bookings", start=since))))
        q.seek("bookings", group="ledger", to=since)
        messages = q.receive("bookings", limit=10, group="ledger")
        print("booked again:", amounts(messages))
        q.ack(messages)
        print("20 was delivered", q.trace(receipts[1]).attempts, "times")


if __name__ == "__main__":
    main()
# → booked: 10, 20, 30
# → the log since 09:00: 20, 30
# → booked again: 20, 30
# → 20 was delivered 2 times
