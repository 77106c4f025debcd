"""The topics and idempotency keys of a shard, for stores: asked when they need to know, so whoever asks waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from mqueue.heart.dedup import Claim
from mqueue.log.postgres import catalog, claims, frames
from mqueue.log.postgres.batch import Arrival
from mqueue.log.postgres.catalog import TopicRow
from mqueue.log.postgres.link import Link
from mqueue.log.postgres.problems import Moved
from mqueue.model.errors import Unavailable
from mqueue.model.names import LEDGER
from mqueue.model.settings import Settings
from mqueue.policy.routing import virtual_shard

_FRAMES_MAX = 1 << 31
_SWEPT_AT_ONCE = 10_000


class ShardCatalog:
    """`vshard` None: topics live where their names say. `stamp` gives the time, None where the server's counts."""

    def __init__(self, link: Link, stamp: Callable[[], int | None], vshard: int | None = None) -> None:
        self._link = link
        self._stamp = stamp
        self._vshard = vshard

    def find(self, namespace: str, name: str) -> TopicRow | None:
        return catalog.find_topic(self._link, namespace, name)

    def make(self, namespace: str, name: str, settings: Settings, now: int) -> TopicRow:
        hidden = name.startswith(LEDGER)
        vshard = virtual_shard(namespace, name) if self._vshard is None else self._vshard
        stored = catalog.stored_as(name, vshard)
        packed = msgspec.msgpack.encode(settings)
        try:
            made = catalog.make_topic(self._link, namespace, stored, vshard, packed, self._stamp(), hidden)
        except Moved as problem:
            raise Unavailable(f"{problem} any more; try again", code="not_owner") from None
        assert made is not None, "no limit was given"
        return catalog.known_as(made[0])

    def count(self, namespace: str) -> int:
        return catalog.count(self._link, namespace)

    def claims(self, topic: int, keys: list[bytes]) -> dict[bytes, Claim]:
        return {key: _claim(used) for key, used in claims.lookup(self._link, topic, keys).items()}

    def claims_count(self, topic: int, most: int) -> int:
        return claims.count(self._link, topic, most)

    def sweep(self, topic: int, before: int) -> None:
        while claims.sweep(self._link, topic, before) == _SWEPT_AT_ONCE:
            pass

    def all_claims(self, topic: int) -> Iterator[tuple[bytes, Claim]]:
        after = b""
        while page := claims.page(self._link, topic, after, _SWEPT_AT_ONCE):
            for after, used in page.items():
                yield after, _claim(used)

    def forget(self, topic: int, over: Mapping[bytes, Claim]) -> None:
        claims.forget(self._link, topic, {key: claim.id for key, claim in over.items()})

    def appended(self, topic: int, partitions: int) -> list[Arrival]:
        places = [(topic, partition, 0) for partition in range(partitions)]
        return [Arrival(*row) for row in frames.tails(self._link, places, _FRAMES_MAX, False)]


def _claim(used: claims.Used) -> Claim:
    return Claim(used.made_at, used.id, used.partition, used.offset, used.priority, used.due, used.digest)
