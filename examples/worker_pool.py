"""Four threads share the work of one queue. What fails is tried again; what keeps failing is put aside."""

import logging
import threading

import mqueue

NUMBERS = [2, 3, 5, 7, 11]


def main() -> None:
    squares: set[int] = set()
    finished = threading.Event()

    def square(m: mqueue.Message) -> None:  # runs in any of the four threads; to return is to ack, to raise to nack
        squares.add(m.json(int) ** 2)
        if len(squares) == len(NUMBERS):
            finished.set()

    with mqueue.Broker(max_retries=1, backoff="10ms") as q:
        q.publish_many("numbers", [*NUMBERS, "seven"])
        with q.subscribe("numbers", square, concurrency=4):
            finished.wait()
            q.receive("numbers.dlq", wait="10s")  # the dead are a queue too: wait for the first
        print(*NUMBERS, "squared:", *sorted(squares))
        for dead in q.dlq("numbers").messages():
            print(f'put aside: "{dead.text()}" after {dead.attempts} attempts')


if __name__ == "__main__":
    logging.getLogger("mqueue").addHandler(logging.NullHandler())  # failing handlers are logged there
    main()
# → 2 3 5 7 11 squared: 4 9 25 49 121
# → put aside: "seven" after 2 attempts
