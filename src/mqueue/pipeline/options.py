"""What a user of the source may say, parsed and checked once. Names and meanings are those of Spark's Kafka source.

Knows neither Spark nor the server: whether a topic is there, and what "latest" is, others find out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from mqueue.model.errors import BadPriority, BadSetting, Error
from mqueue.model.names import check_name
from mqueue.model.priority import priority
from mqueue.model.times import duration_ms, instant_ms
from mqueue.pipeline.connection import CONNECTION_OPTIONS
from mqueue.pipeline.offsets import Places, parsed
from mqueue.pipeline.schema import MESSAGES, TRACE, VIEWS

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
"""Offsets that are words, as Kafka numbers them."""

_CHOICE = ("subscribe", "subscribePattern", "assign")
_START = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy")
_END = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_PACE = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "subscription")
_TASKS = ("minPartitions", "maxRecordsPerPartition")
_WHAT = ("failOnDataLoss", "includeHeaders", "view", "priorities")
SOURCE_OPTIONS = (*CONNECTION_OPTIONS, *_CHOICE, *_START, *_END, *_PACE, *_TASKS, *_WHAT)
_IGNORED = ("path",)
"""Spark adds it by itself where somebody says `load("…")`."""


class Choice(Struct, frozen=True):
    """Which topics: by name, by pattern, or single partitions. Exactly one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None


class Bound(Struct, frozen=True):
    """Where a read begins or ends. The first of them that is given holds."""

    time_ms: int | None = None
    times_ms: Places | None = None
    offsets: Places | None = None
    everywhere: int = EARLIEST


class Options(Struct, frozen=True, kw_only=True):
    choice: Choice
    view: str = MESSAGES
    start: Bound
    stop: Bound
    late_start_is_latest: bool = False
    """Where nothing was published since the time that was asked for: begin at the end, or refuse."""
    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 0
    partitions_min: int | None = None
    records_max: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    subscription: str | None = None
    priorities: tuple[int, ...] | None = None


def options_of(given: Mapping[str, str], streaming: bool) -> Options:
    """The options of a read. Their names are lower case, as Spark hands them over."""
    refuse_unknown(given, SOURCE_OPTIONS)
    _refuse_elsewhere(given, *((_END, "a stream has no end") if streaming else (_PACE, "it is for streams")))
    view = _one_of(given, "view", MESSAGES, tuple(VIEWS))
    if streaming and view == TRACE:
        raise BadSetting("view trace is read by batches only: a stream would miss what happens to a message later")
    found = Options(
        choice=_choice(given),
        view=view,
        start=_bound(given, _START, LATEST if streaming else EARLIEST),
        stop=_bound(given, _END, LATEST),
        late_start_is_latest=_one_of(given, _START[3], "error", ("error", "latest")) == "latest",
        offsets_max=_count(given, "maxOffsetsPerTrigger"),
        offsets_min=_count(given, "minOffsetsPerTrigger"),
        delay_ms_max=_read(given, "maxTriggerDelay", _delay, duration_ms("15m")),
        partitions_min=_count(given, "minPartitions"),
        records_max=_count(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        include_headers=_flag(given, "includeHeaders", False),
        subscription=_read(given, "subscription", lambda name: check_name(name, "cursor"), None),
        priorities=_read(given, "priorities", _priorities, None),
    )
    _check_words(found, streaming)
    return found


def shape_of(given: Mapping[str, str]) -> tuple[str, bool]:
    """What decides which columns a read has: its view, and whether headers are among them."""
    refuse_unknown(given, SOURCE_OPTIONS)
    _choice(given)
    return _one_of(given, "view", MESSAGES, tuple(VIEWS)), _flag(given, "includeHeaders", False)


def refuse_unknown(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """An option that is not known is a slip of the hand: what it was to do would silently not be done."""
    names = {name.lower(): name for name in known}
    for name in given:
        if name in names or name in _IGNORED or name.startswith("kafka."):
            continue
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {names[close[0]]}?" if close else f"known are {', '.join(known)}"
        raise BadSetting(f"option {name!r:.80} is not known; {hint}")


def _refuse_elsewhere(given: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name.lower() in given:
            raise BadSetting(f"option {name} is not for this read: {why}")


def _check_words(options: Options, streaming: bool) -> None:
    """Words that make no sense at this end of a read, and numbers that contradict each other."""
    if not streaming and LATEST in _words(options.start):
        raise BadSetting("startingOffsets latest (or -1) of a batch would read nothing; give earliest, or an offset")
    if EARLIEST in _words(options.stop):
        raise BadSetting("endingOffsets earliest (or -2) would read nothing; give latest, or an offset")
    if options.subscription is not None and options.choice.assigned is not None:
        raise BadSetting("subscription holds whole topics: name them by subscribe or subscribePattern, not by assign")
    least, most = options.offsets_min, options.offsets_max
    if least is not None and most is not None and least > most:
        raise BadSetting(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")


def _words(bound: Bound) -> set[int]:
    if bound.time_ms is not None or bound.times_ms is not None:
        return set()
    if bound.offsets is None:
        return {bound.everywhere}
    return {offset for partitions in bound.offsets.values() for offset in partitions.values()}


# Values


def _read(given: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    return default if text is None else parse(text)


def _choice(given: Mapping[str, str]) -> Choice:
    named = [name for name in _CHOICE if name.lower() in given]
    if len(named) != 1:
        found = f"{' and '.join(named)} are given" if named else "none is given"
        raise BadSetting(f"a read takes exactly one of {', '.join(_CHOICE)}; {found}")
    text = given[named[0].lower()]
    if named[0] == "subscribe":
        return Choice(names=_topics(text))
    return Choice(pattern=_pattern(text)) if named[0] == "subscribePattern" else Choice(assigned=_assigned(text))


def _topics(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadSetting(f"subscribe {text!r:.80}; it takes names of topics, with commas between them")
    return tuple(check_name(name, "topic") for name in names)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadSetting(f"subscribePattern {text!r:.80} is no regular expression: {error}") from None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        found = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError:
        found = {}
    if not found or any(not numbers or min(numbers) < 0 for numbers in found.values()):
        raise BadSetting(f'assign {text!r:.200}; it takes JSON such as {{"orders": [0, 1]}}')
    return {check_name(topic, "topic"): tuple(sorted(set(numbers))) for topic, numbers in found.items()}


def _bound(given: Mapping[str, str], names: tuple[str, ...], default: int) -> Bound:
    offsets, time, times = names[:3]
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = given.get(offsets.lower(), "").strip()
    places = parsed(text, offsets) if text and text.lower() not in words else None
    if places and min(offset for partitions in places.values() for offset in partitions.values()) < EARLIEST:
        raise BadSetting(f"{offsets} {text!r:.200}; an offset is 0 or more, or -1 for latest, or -2 for earliest")
    return Bound(
        _read(given, time, lambda text: _time_ms(text, time), None),
        _read(given, times, lambda text: _times_ms(text, times), None),
        places,
        words.get(text.lower(), default),
    )


def _time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970, as Kafka has it, or a time as text."""
    text = text.strip()
    return instant_ms(int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else text, option)


def _times_ms(text: str, option: str) -> Places:
    found = parsed(text, option)
    for partitions in found.values():
        for time in partitions.values():
            instant_ms(time, option)
    return found


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdecimal() and len(text) < 19 and int(text) > 0):
        raise BadSetting(f"{name} {text!r:.80}; it takes a whole number above 0")
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return _one_of(given, name, str(default).lower(), ("true", "false")) == "true"


def _one_of(given: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name.lower(), default).strip().lower()
    if text not in allowed:
        raise BadSetting(f"{name} {text!r:.80}; it takes one of {', '.join(allowed)}")
    return text


def _delay(text: str) -> int:
    try:
        return duration_ms(text.strip(), "maxTriggerDelay")
    except Error as error:
        raise BadSetting(error.message) from None


def _priorities(text: str) -> tuple[int, ...]:
    """Names of lanes or numbers, with commas between them."""
    found: list[Any] = [part.strip() for part in text.split(",") if part.strip()]
    try:
        levels = {priority(int(part) if part.lstrip("-").isdecimal() else part) for part in found}
    except BadPriority as error:
        raise BadSetting(f"priorities {text!r:.80}: {error.message}") from None
    if not levels:
        raise BadSetting(f"priorities {text!r:.80}; it takes such as high,normal or 0,25")
    return tuple(sorted(levels))
