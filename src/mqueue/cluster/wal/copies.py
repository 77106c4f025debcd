"""Copies of what lies in the logs of nodes, in Redis: so that it reaches its shard if its node does not come back.

    wals          hash: of each log, by its uuid, its shard and the session of its node there
    wal:<uuid>    hash: of a log, by their positions, the commits that are not in the shard yet

Everything here may be lost, or be old: the shard knows how far a log was flushed, and takes nothing twice. But a commit
is only added behind the one before it, and Redis forgets all or what came last: so where a commit is, all are that have
to go into the shard before it, and whoever reads them finds no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from msgspec import Struct
from redis import Redis

from mqueue.cluster.redis.line import Line
from mqueue.cluster.wal.records import Stretch, unpack_copy

_PUT = """
if ARGV[3] ~= '' and redis.call('hexists', KEYS[2], ARGV[3]) == 0 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
for i = 4, #ARGV, 2 do redis.call('hset', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
"""
"""The list; the log. The name of the log, how it is listed, the commit that has to be there or '', then the commits."""
_FORGET = """
if redis.call('hlen', KEYS[2]) == 0 then return redis.call('hdel', KEYS[1], ARGV[1]) end
return 0
"""
"""A log is struck off the list if nothing of it is here: in one step, since its node may be adding something."""


class Listed(Struct, frozen=True):
    """A log that Redis knows of, and the session that wrote it."""

    uuid: UUID
    owner: UUID


class Copies:
    """Of the logs of one server. Every call raises Away if Redis cannot be asked."""

    def __init__(self, line: Line, shard: str) -> None:
        self._line = line
        self._shard = shard
        self._list = line.key("wals")

    @property
    def away(self) -> bool:
        return self._line.is_away

    def put(self, log: UUID, owner: UUID, commits: Sequence[tuple[int, bytes]], after: int | None = None) -> bool:
        """Commits of a log, by their positions, all at once; and the log is listed with them, whatever was lost before.

        `after`: what has to be there already, else nothing is done: False."""
        listed = f"{self._shard} {owner.hex}"
        args = [log.hex, listed, "" if after is None else str(after), *(part for commit in commits for part in commit)]
        return bool(self._line.do(lambda client: client.eval(_PUT, 2, self._list, self._key(log), *cast(Any, args))))

    def drop(self, log: UUID, positions: Sequence[int]) -> None:
        """These are in the shard."""
        if positions:
            self._line.do(lambda client: client.hdel(self._key(log), *map(str, positions)))

    def drop_before(self, log: UUID, position: int) -> None:
        """Everything before a position is in the shard. A log of which nothing is left is struck off the list."""
        key = self._key(log)
        gone = [place for place in self.positions(log) if place < position]

        def drop(client: Redis) -> None:
            if gone:
                client.hdel(key, *map(str, gone))
            client.eval(_FORGET, 2, self._list, key, log.hex)

        self._line.do(drop)

    def get(self, log: UUID, position: int) -> Stretch | None:
        """The commit at a position, if a whole one is here."""
        found = cast("bytes | None", self._line.do(lambda client: client.hget(self._key(log), str(position))))
        return None if found is None else unpack_copy(found, position)

    def positions(self, log: UUID) -> set[int]:
        """Of the commits of a log that are here."""
        found = cast("list[bytes]", self._line.do(lambda client: client.hkeys(self._key(log))))
        return {int(name) for name in found}

    def holds(self, log: UUID) -> bool:
        """Whether anything of a log is here."""
        return bool(self._line.do(lambda client: client.hlen(self._key(log))))

    def listed(self) -> list[Listed]:
        """The logs of this shard."""
        found = cast("dict[bytes, bytes]", self._line.do(lambda client: client.hgetall(self._list)))
        return [listed for name, value in found.items() if (listed := self._read(name, value)) is not None]

    def _read(self, name: bytes, value: bytes) -> Listed | None:
        try:
            shard, owner = value.decode().rsplit(" ", 1)
            return Listed(UUID(hex=name.decode()), UUID(hex=owner)) if shard == self._shard else None
        except ValueError:  # nothing of ours
            return None

    def _key(self, log: UUID) -> bytes:
        return self._line.key("wal", log.bytes)
