"""The highest timeline that was seen of each shard, as a hint for other nodes.

    timelines    hash: the number of a shard → "<system>:<timeline>"

Lost or old, it tells nothing wrong: what is known only rises.
"""

from __future__ import annotations

from typing import Any

from mqueue.cluster.redis.line import Away, Line
from mqueue.log.postgres.seen import Seen, Sight

_KEPT_MS = 86_400_000


def hint(line: Line, number: int, seen: Seen) -> None:
    """Learn what others have told of a shard, and tell them what they have not."""
    if line.is_away:
        return
    key = line.key("timelines")
    try:
        told: Any = line.do(lambda client: client.hget(key, str(number)))
        if told is not None:
            system, _, timeline = told.partition(b":")
            seen.learn(Sight(int(system), int(timeline)))
        sight = seen.sight
        if sight is not None and (mine := b"%d:%d" % (sight.system, sight.timeline)) != told:
            line.do(lambda client: client.hset(key, str(number), mine))
            line.do(lambda client: client.pexpire(key, _KEPT_MS))
    except (Away, ValueError):  # nobody is there, or it is nothing of ours
        return
