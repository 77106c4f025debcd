"""Processes that work on a broker until they are killed. A warm server forks them: none has to load Python anew.

Reads lines `folder answers seed`; forks for each, says `born PID`, the child says `ready PID` when its broker is open,
and the server says `dead PID` once it is gone. A child never ends by itself. What the broker answered goes to the file:

    P id sha256    published            a id    about to be acked
    R id           received             A id    acked
    S tx payloads  staged, all of it    C tx    committed
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256
from random import Random
from typing import Any

from mqueue import Broker, Storage
from mqueue.wire.arrow import warm_up

KIB = 1024
VISIBILITY = "10m"


class Notes:
    """One write for each note. A kill may still cut it short, at the end of a page of the file: each line ends with a
    mark, and each life begins a line of its own, or its mark would end the line that its forerunner did not finish."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, b"\n")

    def note(self, lines: Iterable[str]) -> None:
        os.write(self._file, "".join(f"{line} .\n" for line in lines).encode())


def storage() -> Storage:
    return Storage(segment_bytes=64 * KIB, checkpoint_bytes=32 * KIB, checkpoint_seconds=1, reserve_bytes=0)


def publish(broker: Broker, notes: Notes, rng: Random) -> None:
    payload = rng.randbytes(rng.choice([20, 300, 2_000]))
    notes.note([f"P {broker.publish('t', payload).id} {sha256(payload).hexdigest()}"])


def publish_many(broker: Broker, notes: Notes, rng: Random) -> None:
    payloads = [rng.randbytes(rng.choice([20, 300])) for _ in range(rng.randrange(2, 20))]
    receipts = broker.publish_many("t", payloads)
    pairs = zip(receipts, payloads, strict=True)
    notes.note(f"P {receipt.id} {sha256(payload).hexdigest()}" for receipt, payload in pairs)


def consume(broker: Broker, notes: Notes, rng: Random) -> None:
    messages = broker.receive("t", rng.randrange(1, 12), wait="5ms", visibility=VISIBILITY)
    notes.note(f"R {message.id}" for message in messages)
    chosen = [message for message in messages if rng.random() < 0.7]
    notes.note(f"a {message.id}" for message in chosen)
    if chosen:
        broker.ack(chosen)
        notes.note(f"A {message.id}" for message in chosen)


def transact(broker: Broker, notes: Notes, rng: Random) -> None:
    """Stage parts, one of them twice, and commit: twice too, as somebody does who was not answered."""
    number = rng.randrange(1 << 60)
    bodies = [[f"{number}-{part}-{n}" for n in range(rng.randrange(1, 30))] for part in range(3)]
    for part, payloads in enumerate(bodies):
        if part == 1:
            broker.stage(f"x/{number}", "tx", ["replaced"], part=str(part))
        broker.stage(f"x/{number}", "tx" if part else "tx2", payloads, part=str(part))
    notes.note([f"S {number} {','.join(map(str, map(len, bodies)))}"])
    for _ in range(2):
        broker.commit(f"x/{number}")
    notes.note([f"C {number}"])


def keep_up(broker: Broker, notes: Notes, rng: Random) -> None:
    """What goes on once a second, more often: checkpoints, indexes and cleaning are to be met by kills too."""
    upkeep: Any = broker._engine.upkeep
    upkeep.run_once()
    threading.Event().wait(0.01)


WORKS = (publish, publish_many, consume, consume, transact, keep_up)


def live(folder: str, answers: str, seed: str) -> None:
    notes = Notes(answers)
    broker = Broker(folder, storage=storage(), retention={"on_ack": True})
    say(f"ready {os.getpid()}")

    def go_on(work: Callable[[Broker, Notes, Random], None], number: int) -> None:
        rng = Random(f"{seed} {number}")
        while True:
            work(broker, notes, rng)

    for number, work in enumerate(WORKS):
        threading.Thread(target=go_on, args=(work, number)).start()
    threading.Event().wait()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> None:
    warm_up()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                live(*line.split())
            finally:
                os._exit(1)
        say(f"born {pid}")
        os.waitpid(pid, 0)
        say(f"dead {pid}")


if __name__ == "__main__":
    main()
