"""Whether what somebody has copied of a virtual shard before is the beginning of what its source has now.

It may not be: a source that was promoted or brought back from a backup lacks what was copied before, and goes on
otherwise, with the same offsets. Ids are never given twice, and frames and journals are only added to: where the newest
that is there is found at the source too, all before it is the same. What cannot be compared any more, because the
source has dropped it, counts as different: to copy it once more is always right.
"""

from __future__ import annotations

from mqueue.log.postgres import moving
from mqueue.log.postgres.link import Link

_CHUNK_ROWS = 2_000


def agree(source: Link, target: Link, vshard: int) -> bool:
    """Also if there is nothing at the target yet."""
    return _topics_agree(source, target, vshard) and _journals_agree(source, target, vshard)


def drop_strays(target: Link, vshard: int) -> None:
    """Keys go over after frames: some may be of messages that are not there yet, and never come if the source was set
    back. They are copied again with their messages."""
    topics = [topic.id for topic in moving.topics(target, vshard)]
    ends = moving.ends(target, topics)
    for topic in moving.keyed(target, topics, 0):
        since, after = 0, b""
        while keys := moving.keys(target, topic, since, after, _CHUNK_ROWS):
            since, after = keys[-1][6], keys[-1][7]
            strays = [key[7] for key in keys if key[3] >= ends.get((topic, key[2]), 0)]
            if strays:
                moving.drop_keys(target, vshard, topic, strays)


def _topics_agree(source: Link, target: Link, vshard: int) -> bool:
    here = {topic.id: topic for topic in moving.topics(source, vshard)}
    there = moving.topics(target, vshard)
    for topic in there:
        known = here.get(topic.id)
        if known is None or topic.version > known.version:
            return False
        if (topic.namespace, topic.name, topic.made_at) != (known.namespace, known.name, known.made_at):
            return False
    return _frames_agree(source, target, [topic.id for topic in there])


def _frames_agree(source: Link, target: Link, topics: list[int]) -> bool:
    tips = moving.tips(target, topics)
    found = moving.frames_at(source, [(*place, base) for place, (base, _, _) in tips.items()])
    floors = {(row[0], row[1]): row[2] for row in moving.floors(source, topics)}
    return all(
        # What lies below the floor of the source by now is not looked at by anybody.
        found[place] == tip if place in found else tip[0] + tip[1] <= floors.get(place, 0)
        for place, tip in tips.items()
    )


def _journals_agree(source: Link, target: Link, vshard: int) -> bool:
    """And the newest checkpoint, unless a newer one is going to take its place."""
    row = moving.last_row(target, vshard)
    here = moving.points(source, vshard)
    there = moving.points(target, vshard)
    last = max(there, default=0)
    return (not row[0] or moving.has_row(source, vshard, row)) and (
        last < max(here, default=0) or here.get(last) == there.get(last)
    )
