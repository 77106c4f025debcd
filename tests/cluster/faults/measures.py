"""How long things took, from a history: when delivery was back, how long nothing could be published, who else suffered.

These are numbers, no rules: on a machine that is busy with something else they are larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.cluster.faults.history import NO, OK, AnyCall, History, Publish, Receive, Topic


def back_after(history: History, topics: Iterable[Topic], since: float) -> dict[str, float]:
    """By topic: how long after a moment something was delivered by an owner that came later; infinite: never."""
    found = {}
    for topic in topics:
        calls = [call for call in history.answered(Receive) if call.topic == topic.name and call.got]
        known = max((epoch(call.token) for call in calls if call.ended < since), default=-1)
        later = (call.ended - since for call in calls if call.ended > since and epoch(call.token) > known)
        found[topic.name] = min(later, default=float("inf"))
    return found


def served_after(history: History, topics: Iterable[Topic], since: float, whole: float) -> dict[str, float]:
    """By topic: how long after a moment something was delivered, whoever owns it, to who asked when all was whole."""
    found = {}
    for topic in topics:
        calls = [call for call in history.answered(Receive) if call.topic == topic.name and call.got]
        found[topic.name] = min((call.ended - since for call in calls if call.begun > whole), default=float("inf"))
    return found


def served(history: History, topic: Topic, since: float) -> bool:
    """Whether something of a topic was delivered to somebody who asked after a moment."""
    return any(call.got and call.begun > since and call.topic == topic.name for call in history.answered(Receive))


def epoch(token: str) -> int:
    """Of the owner who gave it out."""
    return int(token[:8], 16) >> 10


def longest_gap(calls: Iterable[AnyCall], since: float, until: float) -> float:
    """The longest time between two answers, or an answer and the bounds."""
    ends = sorted(call.ended for call in calls if call.outcome == OK and since < call.ended < until)
    times = [since, *ends, until]
    return max(after - before for before, after in pairwise(times))


def publishing(history: History, topics: Sequence[Topic]) -> list[Publish]:
    names = {topic.name for topic in topics}
    return [call for call in history.of(Publish) if call.topic in names]


def delivering(history: History, topics: Sequence[Topic]) -> list[Receive]:
    names = {topic.name for topic in topics}
    return [call for call in history.of(Receive) if call.topic in names and call.got]


def troubled(history: History, topics: Sequence[Topic], since: float, until: float) -> list[AnyCall]:
    """Calls about these topics that were not answered as they should be, of those that began meanwhile.

    That a message is not held any more is an answer.
    """
    names = {topic.name for topic in topics}
    return [
        call
        for call in history.calls
        if call.topic in names
        and since <= call.begun <= until
        and call.outcome != OK
        and not (call.outcome == NO and call.code == "lease_lost")
    ]


def rate(history: History, topics: Sequence[Topic], since: float, until: float) -> float:
    """Messages delivered a second."""
    got = sum(len(call.got) for call in delivering(history, topics) if since <= call.ended < until)
    return got / max(until - since, 0.001)
