"""Routing: the published hash, and that the vectorised way gives the same answers as the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqueue.policy.routing import VIRTUAL_SHARDS, fnv1a_32, partition_of, partitions_of, virtual_shard

KEYS = st.one_of(st.none(), st.binary(max_size=20), st.binary(max_size=300))
PARTITIONS = st.integers(1, 1024)


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"foo", 0xA9F37ED7), (b"foobar", 0xBF9CF968)],
)
def test_the_hash_is_the_published_one(data: bytes, value: int) -> None:
    assert fnv1a_32(data) == value


def test_a_topic_has_a_virtual_shard() -> None:
    assert virtual_shard("default", "orders") == fnv1a_32(b"default:orders") % VIRTUAL_SHARDS


def test_a_dead_letter_queue_lives_with_its_topic() -> None:
    assert virtual_shard("a", "orders.dlq") == virtual_shard("a", "orders")
    assert virtual_shard("a", "orders.dlq.dlq") == fnv1a_32(b"a:orders.dlq") % VIRTUAL_SHARDS
    assert virtual_shard("a", ".dlq") == fnv1a_32(b"a:.dlq") % VIRTUAL_SHARDS


@given(st.lists(KEYS, max_size=60), PARTITIONS)
def test_a_batch_is_routed_as_each_key_alone(keys: list[bytes | None], partitions: int) -> None:
    routed = partitions_of(keys, partitions, default=-7)
    assert routed.dtype == np.int32
    assert routed.tolist() == [-7 if key is None else partition_of(key, partitions) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [None, None],
        [b""],
        [b"", b""] * 20,
        [b"%04d" % n for n in range(1000)],
        [b"\xff" * length for length in range(100)],
        [b"\0" * length for length in range(30)],
        [b"k" * 1024, *[b"%d" % n for n in range(4096)], b"", None],
    ],
    ids=["none", "keyless", "one empty", "empty", "equal lengths", "growing", "zeros", "one long"],
)
def test_shapes_of_batches(keys: list[bytes | None]) -> None:
    expected = [3 if key is None else partition_of(key, 6) for key in keys]
    assert partitions_of(keys, 6, default=3).tolist() == expected
    assert partitions_of(tuple(reversed(keys)), 6, default=3).tolist() == expected[::-1]
