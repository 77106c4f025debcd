"""Names of queues as names of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.model.errors import BadName
from mqueue.model.names import check_name, is_dlq
from mqueue.server.amqp.names import CATALOG, namespace_of, topic_of

NAMES = st.text(min_size=1, max_size=15) | st.text("._2E4dlqx@", min_size=1, max_size=20)
NAMES |= st.text("._2E4dlqx@", min_size=230, max_size=255)


@given(NAMES)
def test_every_name_is_a_topic(name: str) -> None:
    if not _is_utf8(name):
        return
    topic = topic_of(name)
    assert check_name(topic, "topic") == topic
    assert not is_dlq(topic)
    assert topic != CATALOG


@given(NAMES, NAMES)
def test_two_names_are_two_topics(one: str, other: str) -> None:
    if one != other and _is_utf8(one) and _is_utf8(other):
        assert topic_of(one) != topic_of(other)


@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        ("orders", "orders"),
        ("celery@host.celery.pidbox", "celery._40host.celery.pidbox"),
        ("a._b", "a._2E_b"),
        ("orders.dlq", "orders._2Edlq"),
        (".dlq", ".dlq"),
        ("..", "._2E."),
        (".amqp", "._2Eamqp"),
        ("ä", "._C3._A4"),
    ],
)
def test_how_names_look(queue: str, topic: str) -> None:
    assert topic_of(queue) == topic


def test_names_that_are_too_long() -> None:
    assert topic_of("n" * 245) == "n" * 245
    one, other = topic_of("n" * 254 + "a"), topic_of("n" * 254 + "b")
    assert one[:181] == other[:181] == "n" * 178 + "._-"
    assert (len(one), one != other) == (245, True)
    assert len(topic_of("\u961f" * 85)) == 245
    with pytest.raises(BadName, match="no name"):
        topic_of("")


def test_virtual_hosts() -> None:
    assert [namespace_of(name) for name in ("/", "", "tenant-a")] == ["default", "default", "tenant-a"]
    with pytest.raises(BadName):
        namespace_of("/tenant")


def _is_utf8(name: str) -> bool:
    return name == name.encode("utf-8", "ignore").decode()
