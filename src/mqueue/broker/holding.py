"""Under which lease a message is held: for callers that name a message and have no token."""

from __future__ import annotations

from mqueue.broker.commits import committed
from mqueue.broker.explain import find
from mqueue.broker.loop import LoopBroker
from mqueue.model.errors import NotFound


async def token_of(broker: LoopBroker, topic: str, id: int, group: str, consumer: str) -> str | None:
    """The token of the live lease that this consumer of this group holds a message under; None: there is none."""
    token = _token_of(broker, topic, id, group, consumer)
    await committed()
    return token


def held(broker: LoopBroker, token: str) -> int:
    """How many messages are still held under a token."""
    lease = broker._engine.store.state.leases.get(bytes.fromhex(token))
    return 0 if lease is None else lease.open


def _token_of(broker: LoopBroker, name: str, id: int, group_name: str, consumer: str) -> str | None:
    engine = broker._engine
    with engine.lock:
        engine.tick()
        topic, frame, row = find(engine, broker._namespace, id)
        if topic.name != name:
            raise NotFound(f"message {id} is not there: it never was, or retention has dropped it")
        group = topic.groups.get(group_name)
        held = group and engine.store.heart.lease_of(group, frame.partition, frame.base + row)
        return held[0].token.hex() if held and held[0].consumer == consumer else None
