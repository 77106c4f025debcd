"""What waits to be done for a connection: how much that is decides when nothing more is read."""

from __future__ import annotations

from typing import cast

from mqueue.server.amqp.channel import Channel
from mqueue.server.amqp.drafting import Publication
from mqueue.server.amqp.work import Work

CHANNEL = cast(Channel, None)


def test_what_waits_is_measured_with_its_properties() -> None:
    work = Work()
    work.publish(CHANNEL, Publication("", "orders", b"p" * 50_000, b""))
    work.publish(CHANNEL, Publication("", "orders", b"p" * 100, b"b" * 1_000))
    work.call(CHANNEL, b"m" * 10)
    assert (work.size, work.count) == (51_110, 3)
    work.take()
    assert (work.size, work.count) == (10, 1)
    work.take()
    assert (work.size, work.count) == (0, 0)
