"""Writes through a broker until it is killed, and notes what was answered.

    worker.py FOLDER ANSWERS SEED [--unsynced]

Says `ready` when it is loaded, begins when it gets a line, and says `writing` after the first answer.
`--unsynced` is the control: a disk that only claims to sync. A rig that finds nothing wrong with it proves nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from random import Random

from answers import Notebook

from mqueue import Broker
from mqueue.log.segments import disk
from mqueue.log.segments.storage import Storage

KIB = 1024
MIB = 1024 * KIB
TOPICS = ("orders", "mail")


class Unsynced(disk.RealDisk):
    def sync(self, file: int) -> None:
        pass

    def sync_dir(self) -> None:
        pass


def use_unsynced() -> None:
    """Everywhere where somebody has got hold of the real one."""
    real = disk.RealDisk
    for module in list(sys.modules.values()):
        if getattr(module, "RealDisk", None) is real:
            module.RealDisk = Unsynced  # type: ignore[attr-defined]


def publish_singles(broker: Broker, notes: Notebook, rng: Random) -> None:
    payload = _payload(rng)
    receipt = broker.publish(rng.choice(TOPICS), payload)
    notes.note([f"P {receipt.id} {sha256(payload).hexdigest()}"])


def publish_batches(broker: Broker, notes: Notebook, rng: Random) -> None:
    payloads = [_payload(rng) for _ in range(rng.randrange(2, 40))]
    receipts = broker.publish_many(rng.choice(TOPICS), payloads)
    pairs = zip(receipts, payloads, strict=True)
    notes.note(f"P {receipt.id} {sha256(payload).hexdigest()}" for receipt, payload in pairs)


def consume(broker: Broker, notes: Notebook, rng: Random) -> None:
    """Ack most of it, together or one by one; what is left stays leased until the end."""
    messages = broker.receive(rng.choice(TOPICS), limit=rng.randrange(1, 20), wait="20ms", visibility="10m")
    notes.note(f"R {message.id}" for message in messages)
    chosen = [message for message in messages if rng.random() < 0.8]
    notes.note(f"a {message.id}" for message in chosen)
    if rng.random() < 0.5 and chosen:
        broker.ack(chosen)
        notes.note(f"A {message.id}" for message in chosen)
        return
    for message in chosen:
        message.ack()
        notes.note([f"A {message.id}"])


def storage(rng: Random) -> Storage:
    """Often so small that segments are closed and checkpoints written while we look."""
    return Storage(
        segment_bytes=rng.choice((64 * KIB, 256 * KIB, 64 * MIB)),
        checkpoint_bytes=rng.choice((32 * KIB, MIB, 64 * MIB)),
        checkpoint_seconds=1,
        reserve_bytes=MIB,
    )


def _payload(rng: Random) -> bytes:
    """Tells by itself whether it is whole: also what nobody got an answer for is checked."""
    body = rng.randbytes(rng.choice((10, 100, 400, 3000)))
    return sha256(body).digest() + body


def main(folder: str, answers: str, seed: str, *options: str) -> None:
    if "--unsynced" in options:
        use_unsynced()
    print("ready", flush=True)
    sys.stdin.readline()
    notes, broker = Notebook(answers), Broker(folder, storage=storage(Random(seed)))
    first = threading.Event()

    def go_on(work: Callable[[Broker, Notebook, Random], None], number: int) -> None:
        rng = Random(f"{seed} {number}")
        while True:  # until the disk fails, or somebody kills us
            work(broker, notes, rng)
            first.set()

    works = (publish_singles, publish_singles, publish_batches, consume, consume)
    threads = [threading.Thread(target=go_on, args=(work, number)) for number, work in enumerate(works)]
    for thread in threads:
        thread.start()
    first.wait()
    print("writing", flush=True)
    sys.stdin.read()  # whoever started us is gone: so are we
    os._exit(0)


if __name__ == "__main__":
    threading.excepthook = lambda failure: print(f"stopped: {failure.exc_value!r}", file=sys.stderr)
    main(*sys.argv[1:])
