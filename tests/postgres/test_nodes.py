"""No two nodes have the same number at the same time."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from mqueue.log.postgres.link import Link
from mqueue.log.postgres.nodes import drop_node, renew_node, take_node
from mqueue.model.errors import Unavailable
from mqueue.model.ident import NODES
from tests.postgres.shards import together


def test_numbers_differ_though_all_ask_at_once(links: Callable[[], Link]) -> None:
    taken = together([lambda own=own: take_node(own, uuid4()) for own in [links() for _ in "1234"]])
    assert sorted(taken) == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_holder_has_one_number(link: Link) -> None:
    holder = uuid4()
    assert take_node(link, holder) == take_node(link, holder) == (1, 1)
    assert renew_node(link, holder, 1, 1)
    assert not renew_node(link, uuid4(), 1, 1)
    assert not renew_node(link, holder, 1, 2)
    drop_node(link, holder, 1, 1)
    assert not renew_node(link, holder, 1, 1)


def test_a_number_that_was_used_comes_last_and_with_a_new_epoch(link: Link) -> None:
    first, second = uuid4(), uuid4()
    take_node(link, first)
    drop_node(link, first, 1, 1)
    assert take_node(link, second) == (2, 1)
    link.call(
        "insert into mqueue.nodes select g, gen_random_uuid(), 1, 'infinity' from generate_series(3, %b) g",
        (NODES - 1,),
    )
    assert take_node(link, first) == (1, 2)
    with pytest.raises(Unavailable, match="all 1023 node numbers"):
        take_node(link, uuid4())
