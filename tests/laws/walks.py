"""Walks of the state machine where retention has much to do: many messages of few keys, most of them settled soon.

The machine itself goes everywhere, so it seldom comes by where something was kept for long and goes at last.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.laws.test_machine import Machine

RETENTIONS = ({"on_ack": True}, {"compact": True}, {"compact": True, "on_ack": True}, {"hours": 1})
PLAIN = {"priority": None, "delay": None, "ttl": None, "key": None}


def walk(number: int, steps: int = 70) -> None:
    """One walk from a seed; raises where broker and model part ways."""
    dice = random.Random(f"retention {number}")
    machine = Machine()
    machine.begin(settings={"retention": RETENTIONS[number % 4], "backoff": "3s"}, points=True)
    moves: list[Callable[[Machine, random.Random], object]] = [_publish, _publish, _work, _work, _hold, _settle, _rest]
    for _ in range(steps):
        dice.choice([*moves, _rest, _manage])(machine, dice)
        machine.the_numbers_agree()
        machine.folding_the_log_gives_the_state()
    machine.look()
    machine.teardown()


def _publish(machine: Machine, dice: random.Random) -> None:
    def draft() -> dict[str, object]:
        key = dice.choice(["k1", "k1", "k2", "k3", None])
        delay = dice.choice([1_000, 3_600_000]) if dice.random() < 0.08 else None
        ttl = dice.choice([1_001, 90_001]) if dice.random() < 0.08 else None
        return PLAIN | {"key": key, "delay": delay, "ttl": ttl}

    machine.publish_many(drafts=[draft() for _ in range(dice.randrange(4, 16))])


def _work(machine: Machine, dice: random.Random) -> None:
    """Nearly everything that is ready is taken and done."""
    for group in ("default", "g1") if dice.random() < 0.8 else ("default",):
        machine.receive(group=group, limit=60, visibility=None, once=True)


def _hold(machine: Machine, dice: random.Random) -> None:
    machine.receive(group=dice.choice(["default", "g1"]), limit=1, visibility=7_200_000, once=False)


def _settle(machine: Machine, dice: random.Random) -> None:
    if machine.handed:
        verb = dice.choice(["ack", "ack", "nack", "nack", "release", "reject"])
        machine.settle_one(pick=dice.randrange(1_000), verb=verb, delay=dice.choice([None, 600_000, 7_200_000]))


def _rest(machine: Machine, dice: random.Random) -> None:
    machine.advance(ms=dice.choice([61_000, 61_000, 700_000, 3_700_000]), fine=False)
    machine.retain(restart=dice.random() < 0.3)


def _manage(machine: Machine, dice: random.Random) -> None:
    roll = dice.random()
    if roll < 0.3:
        machine.seek(group="g2", to=dice.choice(["earliest", 2, "latest"]))
    elif roll < 0.5:
        machine.delete_group(group="g2", sure=0)
    elif roll < 0.8 and machine.model.messages:
        machine.cancel_or_reschedule(pick=dice.randrange(1_000), to=dice.choice([None, 1_000, 60_000]))
    elif roll < 0.85:
        machine.purge(sure=0)
    elif roll < 0.9:
        machine.purge_ready(group="g2", sure=0)
    else:
        machine.checkpoint(whole=True)
