"""The calls of a broker that members of assigned groups make."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from mqueue.broker import members
from mqueue.broker.engine import Engine
from mqueue.broker.members import GroupMembers, Membership
from mqueue.model.times import Duration


class Membered:
    """What a `Broker` has for groups whose partitions are divided among members."""

    _engine: Engine
    _namespace: str
    _name: str
    _wait: Callable[..., Any]

    def join(self, topic: str, *, group: str = "default", member: str | None = None) -> Membership:
        """Become a member of a group, which is assigned from then on: each partition is for one member.

        `member`: an id of one's own. Who joins with it again within the session keeps its partitions.
        """
        return members.join(self._engine, self._namespace, topic, group, member, self._name)

    def heartbeat(
        self, member: Membership, *, released: Collection[int] = (), wait: Duration | None = None
    ) -> Membership:
        """Be heard of, and see which partitions are one's own. `wait`: until that changes, at most so long.

        `released`: partitions that were revoked, of which all that is held is given back at once.
        """
        beat = members.Beat(self._engine, self._namespace, member, released)
        if wait is None:
            with self._engine.lock:
                return beat.told(beat.look(self._engine.tick()))
        found: Membership = self._wait(beat.benches, wait, beat.look, beat.told)
        return found

    def leave(self, member: Membership) -> None:
        """Be a member no more: what it holds is given back, others get its partitions."""
        members.leave(self._engine, self._namespace, member)

    def members(self, topic: str, *, group: str = "default") -> GroupMembers:
        """Who is in a group, who has which partition, how much is to be done in each, and the last rebalances."""
        return members.members(self._engine, self._namespace, topic, group)
