"""Opens what survived and holds it against the answers. Prints one line of JSON: the counts, and what is wrong.

    check.py FOLDER ANSWERS

Says `ready` when it is loaded, and begins when it gets a line.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256

from answers import Answers, read

from mqueue import Broker, Error, Message
from mqueue.testing import ManualClock

TOPICS = ("orders", "mail")


class Judge:
    """What is wrong; nothing, if the broker kept its word. `lost` counts what was answered and is not there."""

    def __init__(self, folder: str, answers: Answers) -> None:
        self._folder = folder
        self._answers = answers
        self._clock = ManualClock(datetime.now(UTC))
        self.lost = 0
        self.wrong = [f"{id} was in two leases before the cut" for id, times in answers.received.items() if times > 1]

    def hear(self) -> None:
        try:
            self._compare(self._find())
            self._look_again()
        except (Error, OSError) as error:
            self.lost = len(self._answers.published)
            self.wrong.append(f"the broker does not open: {error!r}")
        except Exception as error:  # a broker that stumbles over what it finds is wrong, but has lost nothing yet
            self.wrong.append(f"the broker stumbles: {error!r}")
            traceback.print_exc()

    def _find(self) -> dict[int, str]:
        """The digests of all there is."""
        found: dict[int, str] = {}
        with closing(Broker(self._folder, clock=self._clock)) as broker:
            for message in _drain(broker, self._clock):
                if message.id in found:
                    self.wrong.append(f"{message.id} came twice after the cut")
                if sha256(message.payload[32:]).digest() != message.payload[:32]:
                    self.wrong.append(f"{message.id} is damaged")
                found[message.id] = sha256(message.payload).hexdigest()
        return found

    def _compare(self, found: dict[int, str]) -> None:
        for id, digest in self._answers.published.items():
            if id in found and found[id] != digest:
                self.wrong.append(f"{id} has other bytes")
            elif id not in found and id not in self._answers.acking:
                self.lost += 1
                self.wrong.append(f"{id} was published, and is lost")
        self.wrong += [f"{id} was acked, and came again" for id in self._answers.acked & found.keys()]

    def _look_again(self) -> None:
        """What was recovered and settled stays so."""
        with closing(Broker(self._folder, clock=self._clock)) as broker:
            again = _drain(broker, self._clock)
            self.wrong += [f"{message.id} came again after it was settled" for message in again]


def _drain(broker: Broker, clock: ManualClock) -> Iterator[Message]:
    """All there is, acked as it comes: first what is free, then, an hour later, what was leased when the power went."""
    for hour in range(2):
        clock.advance(hour * 3600)
        for topic in TOPICS:
            while messages := broker.receive(topic, limit=1000):
                yield from messages
                broker.ack(messages)


def main(folder: str, path: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    answers = read(path)
    judge = Judge(folder, answers)
    judge.hear()
    counts = {"published": len(answers.published), "acked": len(answers.acked), "lost": judge.lost}
    print(json.dumps({**counts, "wrong": judge.wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
