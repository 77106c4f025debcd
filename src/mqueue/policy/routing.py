"""Which partition a key belongs to, and which virtual shard a topic belongs to.

FNV-1a, 32 bits: a hash that any client in any language can write in five lines and get the same answer. Does not know
which stores the virtual shards are mapped to, nor how keyless messages are spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from mqueue.model.names import origin

VIRTUAL_SHARDS = 1024

_BASIS = 0x811C9DC5
_PRIME = 0x01000193
_KEY_HASHES_MAX = 65_536
_PRIME_U32 = np.uint32(_PRIME)
_FEW = 8  # so few keys that are this long: a numpy step for each byte costs more than finishing them one by one


def fnv1a_32(data: bytes) -> int:
    return _fnv1a_32(data, _BASIS)


@lru_cache(maxsize=8192)
def virtual_shard(namespace: str, topic: str) -> int:
    """A dead letter queue lives on its topic's shard, so that moving a dead message is one commit."""
    return fnv1a_32(f"{namespace}:{origin(topic)}".encode()) % VIRTUAL_SHARDS


class _KeyHashes(dict[bytes, int]):
    """Of keys that were seen of late. Not `lru_cache`: to keep that one in order takes as long as the hash does."""

    def __missing__(self, key: bytes) -> int:
        if len(self) >= _KEY_HASHES_MAX:
            self.clear()
        made = self[key] = int.from_bytes(blake2b(key, digest_size=8).digest(), "little") or 1
        return made


_KEY_HASHES = _KeyHashes()


def key_hash(key: bytes) -> int:
    """64 bits that stand for a key where messages take turns; never 0, which stands for none."""
    return _KEY_HASHES[key]


def key_hashes(keys: Iterable[bytes | None]) -> list[int]:
    """The same of many; 0 for those that are none."""
    known = _KEY_HASHES
    return [0 if key is None else known[key] for key in keys]


def partition_of(key: bytes, partitions: int) -> int:
    return fnv1a_32(key) % partitions


def partitions_of(keys: Sequence[bytes | None], partitions: int, default: int) -> NDArray[np.int32]:
    """`partition_of` for a whole batch; a message without a key goes to `default`."""
    result = np.full(len(keys), default, np.int32)
    keyed = [key for key in keys if key is not None]
    if len(keyed) == len(keys) > 0:
        result[:] = _hashes(keyed) % np.uint32(partitions)
    elif keyed:
        has_key = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        result[has_key] = _hashes(keyed) % np.uint32(partitions)
    return result


def _hashes(keys: list[bytes]) -> NDArray[np.uint32]:
    """One numpy step for each byte *position*, over all keys that reach it."""
    lengths = np.fromiter(map(len, keys), np.intp, len(keys))
    data = np.frombuffer(b"".join(keys), np.uint8)
    if (lengths == lengths[0]).all():  # as ids and numbers often are: nothing to sort, and the columns lie ready
        return _hash_columns(data.reshape(len(keys), -1))
    return _hash_ragged(keys, lengths, data)


def _hash_columns(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    hashes = np.full(len(rows), _BASIS, np.uint32)
    for column in rows.T:
        hashes ^= column
        hashes *= _PRIME_U32
    return hashes


def _hash_ragged(keys: list[bytes], lengths: NDArray[np.intp], data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Longest first, so that the keys that reach a position are a prefix; the few longest are finished one by one."""
    order = np.argsort(-lengths, kind="stable")
    starts = (np.cumsum(lengths) - lengths)[order]
    reach = len(keys) - np.cumsum(np.bincount(lengths))  # how many keys are longer than each position; never rises
    together = int(np.count_nonzero(reach >= _FEW))
    hashes = np.full(len(keys), _BASIS, np.uint32)
    for position, alive in enumerate(reach[:together].tolist()):
        prefix = hashes[:alive]
        prefix ^= data[position:].take(starts[:alive])
        prefix *= _PRIME_U32
    for row in range(int(reach[together])):
        hashes[row] = _fnv1a_32(keys[order[row]][together:], int(hashes[row]))
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _fnv1a_32(data: bytes, state: int) -> int:
    for byte in data:
        state = (state ^ byte) * _PRIME & 0xFFFFFFFF
    return state
