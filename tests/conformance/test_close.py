"""The end of a broker: nothing more is handed out, and everybody is told so."""

from __future__ import annotations

import os

import pytest

import mqueue
from mqueue.testing import ManualClock
from tests.conformance.steps import refused, take


def test_a_closed_broker_says_so(make) -> None:
    q = make()
    q.publish("t", b"x")
    [m] = q.receive("t")
    scan = q.scan("t")
    q.close()
    calls = [
        lambda: q.publish("t", b"x"),
        lambda: q.publish("t", b"x", key="k"),
        lambda: q.publish_many("t", [b"x"]),
        lambda: q.receive("t"),
        lambda: q.receive("t", wait="1s"),
        lambda: q.peek("t"),
        lambda: q.stats("t"),
        lambda: q.topics(),
        lambda: q.configure("t"),
        lambda: q.trace(m.id),
        lambda: q.namespace("other").publish("t", b"x"),
        lambda: q.dlq("t").messages(),
        lambda: next(scan),
        m.ack,
        m.nack,
        lambda: q.ack([m]),
        q.metrics,
    ]
    for call in calls:
        with refused(mqueue.Closed, "closed") as caught:
            call()
        assert (caught.value.status, caught.value.retryable) == (503, False)


def test_closing_twice_is_fine(make) -> None:
    q = make()
    q.close()
    q.close()


def test_with_closes(make) -> None:
    with make() as q:
        q.publish("t", b"x")
    with refused(mqueue.Closed):
        q.publish("t", b"x")


def test_with_closes_after_an_error(make) -> None:
    q = make()
    with pytest.raises(ZeroDivisionError), q:
        1 / 0  # noqa: B018
    with refused(mqueue.Closed):
        q.topics()


def test_a_closing_broker_ends_its_subscriptions(make) -> None:
    q = make()
    subscription = q.subscribe("t", print)
    q.close()
    subscription.close(timeout=120)


@pytest.mark.usefixtures("embedded")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_says_so(q) -> None:
    q.publish("t", b"x")
    [m] = q.receive("t")
    child = os.fork()
    if child == 0:
        os._exit(_in_the_child(q, m))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    m.release()
    assert take(q, "t") == [b"x"]


def _in_the_child(q, m) -> int:
    """7 if every call says that the broker belongs to another process, and a new one works."""
    try:
        for call in (lambda: q.receive("t"), lambda: q.publish("t", b"y"), m.ack, q.topics):
            try:
                call()
            except mqueue.Closed as error:
                if "fork" not in str(error):
                    return 1
            else:
                return 2
        q.close()
        own = mqueue.Broker(clock=ManualClock())
        own.publish("t", b"z")
        return 7 if take(own, "t") == [b"z"] else 3
    except BaseException:
        return 4
