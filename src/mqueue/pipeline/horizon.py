"""Which topics a read is about and how far each reaches, as the server tells it; and what bounds and losses mean there.

The part that knows both what was asked (`options`) and what there is. Does not know Spark, and reads no message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from mqueue.model.errors import BadSetting, NotFound
from mqueue.model.names import dlq_name, is_dlq
from mqueue.model.times import rfc3339, to_datetime
from mqueue.pipeline.offsets import Places, Range, ranges_between
from mqueue.pipeline.options import EARLIEST, LATEST, Bound, Choice, Options
from mqueue.pipeline.schema import DLQ

if TYPE_CHECKING:
    from mqueue.broker.bounds import PartitionOffsets
    from mqueue.client.sync import Client

LOGGER = logging.getLogger("mqueue.pipeline")

Reach: TypeAlias = "dict[str, dict[int, PartitionOffsets]]"
"""Where each partition begins and ends, by topic."""


def reach(client: Client, options: Options) -> Reach:
    """How far the topics of a read go now. One that is named and not there is an error; a pattern may match nothing."""
    found = {topic: {each.partition: each for each in client.offsets(topic)} for topic in topics(client, options)}
    if options.choice.assigned is None:
        return found
    assigned: Reach = {}
    for topic, numbers in options.choice.assigned.items():
        place = _dlq(client, topic) if options.view == DLQ else topic
        for number in numbers if place in found else ():
            if number not in found[place]:
                raise NotFound(f"assign: topic {place!r} has partitions 0 to {len(found[place]) - 1}, not {number}")
            assigned.setdefault(place, {})[number] = found[place][number]
    return assigned


def topics(client: Client, options: Options) -> list[str]:
    """The topics that are read. In the view `dlq` those are the dead-letter queues of the topics that were named."""
    named = _named(client, options.choice)
    if options.view != DLQ:
        return named
    there = set(client.topics())
    queues = dict.fromkeys(_dlq(client, topic) for topic in named)
    return [queue for queue in queues if queue in there]  # one in which nothing has died is not made yet


def _named(client: Client, choice: Choice) -> list[str]:
    if choice.pattern is None:
        return list(choice.assigned or choice.names)
    matches = re.compile(choice.pattern).fullmatch
    return [topic for topic in client.topics() if matches(topic)]


def _dlq(client: Client, topic: str) -> str:
    """Where the dead of a topic go. A dead-letter queue has none itself: it may be named as it is."""
    queue = client.settings(topic)["dlq"]
    if isinstance(queue, str):
        return queue
    return topic if is_dlq(topic) and not queue else dlq_name(topic)


def floors(reach: Reach) -> Places:
    return {topic: {n: each.floor for n, each in partitions.items()} for topic, partitions in reach.items()}


def ends(reach: Reach) -> Places:
    return {topic: {n: each.next for n, each in partitions.items()} for topic, partitions in reach.items()}


def firsts(reach: Reach) -> Places:
    return {topic: {n: each.first for n, each in partitions.items()} for topic, partitions in reach.items()}


# Bounds


def resolved(client: Client, options: Options, reach: Reach, *, start: bool) -> Places:
    """The offsets that the start or the end of a read stands for."""
    bound = options.start if start else options.stop
    if bound.time_ms is not None:
        everywhere = bound.time_ms
        times = {topic: dict.fromkeys(partitions, everywhere) for topic, partitions in reach.items()}
    elif bound.times_ms is not None:
        times = _all_of(bound.times_ms, reach, "startingOffsetsByTimestamp" if start else "endingOffsetsByTimestamp")
    else:
        return _offsets(bound, reach, "startingOffsets" if start else "endingOffsets")
    return _published(client, times, reach, late_is_error=start and not options.late_start_is_latest)


def _offsets(bound: Bound, reach: Reach, option: str) -> Places:
    asked = bound.offsets
    if asked is None:
        asked = {topic: dict.fromkeys(partitions, bound.everywhere) for topic, partitions in reach.items()}
    else:
        asked = _all_of(asked, reach, option)
    return {
        topic: {n: _offset(offset, reach[topic][n]) for n, offset in partitions.items()}
        for topic, partitions in asked.items()
    }


def _offset(offset: int, place: PartitionOffsets) -> int:
    return place.first if offset == EARLIEST else place.next if offset == LATEST else offset


def _all_of(given: Places, reach: Reach, option: str) -> Places:
    """What was given for each partition: it takes all of them, and no others."""
    wanted = {(topic, n) for topic, partitions in reach.items() for n in partitions}
    named = {(topic, n) for topic, partitions in given.items() for n in partitions}
    if wanted != named:
        parts = ((wanted - named, "misses"), (named - wanted, "names"))
        wrong = " and ".join(f"{verb} {_listed(places)}" for places, verb in parts if places)
        raise BadSetting(f"{option} {wrong}; it takes each partition that is read (-1 is latest, -2 earliest)")
    return given


def _listed(places: Iterable[tuple[str, int]]) -> str:
    names = [f"{topic}/{n}" for topic, n in sorted(places)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _published(client: Client, times: Places, reach: Reach, late_is_error: bool) -> Places:
    """The first offsets that were published at these times or later."""
    found: Places = {}
    for topic, partitions in times.items():
        told = {ms: client.offsets(topic, to_datetime(ms)) for ms in {*partitions.values()}}
        found[topic] = {}
        for n, ms in partitions.items():
            place = next(each for each in told[ms] if each.partition == n)
            assert place.at is not None
            if late_is_error and place.at >= place.next:
                raise BadSetting(
                    f"nothing was published to {topic}/{n} since {rfc3339(ms)}; give an earlier time, or set"
                    " startingOffsetsByTimestampStrategy to latest"
                )
            found[topic][n] = min(place.at, reach[topic][n].next)
    return found


# Losses


def planned(client: Client, options: Options, there: Reach) -> list[Range]:
    """The ranges of a batch. What was asked for by number must be there; a word or a time begins where something is."""
    start = resolved(client, options, there, start=True)
    stop = resolved(client, options, there, start=False)
    exempt = start if _by_time(options.start) else firsts(there)
    for topic, partitions in start.items():
        for number, offset in partitions.items():
            if offset > there[topic][number].next:
                tell_loss(f"{topic}/{number} ends at {there[topic][number].next}, before its start {offset}", options)
    return whole(ranges_between(start, stop), there, client, options, exempt)


def _by_time(bound: Bound) -> bool:
    return bound.time_ms is not None or bound.times_ms is not None


def whole(ranges: list[Range], reach: Reach, client: Client, options: Options, exempt: Places) -> list[Range]:
    """Ranges of which all that was published is still there; what is not is told.

    `exempt`: offsets that a read begins at as it found them, so that nothing can have been lost before.
    """
    kept = []
    for each in ranges:
        place = reach.get(each.topic, {}).get(each.partition)
        if place is None:
            tell_loss(f"{_span(each)} are gone: there is no such partition any more", options)
            continue
        if each.stop > place.next:
            tell_loss(f"{_span(each)} are not there: it ends at {place.next}", options)
            each = Range(each.topic, each.partition, min(each.start, place.next), place.next)
        if _dropped(each, place, exempt) and not compacted(client, each.topic):
            tell_loss(f"{_span(each)} are not all there: retention has dropped what lies before {place.floor}", options)
            each = Range(each.topic, each.partition, min(max(each.start, place.first), each.stop), each.stop)
        kept.append(each)
    return kept


def _dropped(asked: Range, place: PartitionOffsets, exempt: Places) -> bool:
    if asked.start < place.first:
        return True
    return asked.start < place.floor and exempt.get(asked.topic, {}).get(asked.partition) != asked.start


def compacted(client: Client, topic: str) -> bool:
    """Whether of each key only the last message is kept: then what is dropped is not lost."""
    return bool(client.settings(topic)["retention"].get("compact"))


def _span(asked: Range) -> str:
    return f"offsets {asked.start} to {asked.stop - 1} of {asked.topic}/{asked.partition}"


def tell_loss(sentence: str, options: Options) -> None:
    """Fail, or say so and go on, as the user wished."""
    if options.fail_on_data_loss:
        raise NotFound(
            f"{sentence}. Set failOnDataLoss to false to go on with what is there, or hold retention back with"
            " subscription",
            code="offset_gone",
        )
    LOGGER.warning("%s; going on with what is there, as failOnDataLoss is false", sentence)
