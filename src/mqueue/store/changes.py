"""Whether a topic can have other settings than it has. Changes nothing."""

from __future__ import annotations

from mqueue.heart.topic import Topic
from mqueue.model.errors import BadSetting
from mqueue.model.settings import Settings


def check_change(topic: Topic, settings: Settings, promised: int) -> None:
    """Raise if a topic cannot have these settings now. `promised`: how many messages are about to get their places."""
    have = len(topic.partitions)
    if settings.partitions < have:
        raise BadSetting(f"topic {topic.name!r} has {have} partitions; {settings.partitions} would be fewer")
    # The messages of a key must not go on in another partition while some are still to be delivered.
    ordered = settings.ordered or topic.settings.ordered
    depth = topic.depth + promised if ordered and settings.partitions != have else 0
    if depth:
        raise BadSetting(
            f"topic {topic.name!r} is ordered and {depth} messages are still to be delivered: it keeps its"
            f" {have} partitions until none are"
        )
