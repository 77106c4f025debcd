"""What an event says about messages, in the words of a trace.

Of one message (`explain`) or of a range of offsets (`occurrences`): both read the journal through here. It does not
know where the events come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mqueue.heart.runs import full
from mqueue.model import events as ev
from mqueue.model.lifecycle import Kind
from mqueue.model.times import rfc3339


class Told(NamedTuple):
    """Something happened to the messages in `bits`: bit i stands for offset `first + i`."""

    kind: Kind
    first: int
    bits: int
    attempt: int = 0
    """Which delivery it is; 0 where that is not told."""


_SETTLED = {
    "ack": Kind.ACKNOWLEDGED,
    "nack": Kind.NACKED,
    "reject": Kind.NACKED,
    "release": Kind.RELEASED,
    "expire": Kind.TIMED_OUT,
    "dead": Kind.DEAD,
}


def told(event: ev.Event, partition: int, start: int, stop: int) -> Iterator[Told]:
    """What an event says about the offsets from `start` to before `stop` of a partition."""
    if isinstance(event, ev.Leased):
        for span in event.spans:
            if span[0] == partition and span[1] < stop and span[2] > start:
                first, bits = _cut(span[1], span[3], start, stop)
                if bits:
                    yield Told(Kind.DELIVERED if span[4] == 1 else Kind.REDELIVERED, first, bits, span[4])
    elif isinstance(event, ev.Settled | ev.Extended | ev.Voided | ev.Redriven | ev.Diverted):
        for ended in event.spans:
            if ended[0] == partition and ended[1] < stop and ended[2] > start:
                first, bits = _cut(ended[1], ended[3], start, stop)
                if bits:
                    yield Told(_kind(event), first, bits)
    elif isinstance(event, ev.Purged):
        end = min(stop, event.floors[partition]) if partition < len(event.floors) else 0
        if start < end:
            yield Told(Kind.CANCELLED, start, full(end - start))
    elif (
        isinstance(event, ev.Rescheduled | ev.Duplicated)
        and event.partition == partition
        and start <= event.offset < stop
    ):
        yield Told(Kind.DUPLICATE if isinstance(event, ev.Duplicated) else Kind.SCHEDULED, event.offset, 1)


def _cut(first: int, mask: int, start: int, stop: int) -> tuple[int, int]:
    """The part of a mask that lies between two offsets."""
    if first < start:
        first, mask = start, mask >> start - first
    return first, mask if mask.bit_length() <= stop - first else mask & full(stop - first)


def _kind(event: ev.Settled | ev.Extended | ev.Voided | ev.Redriven | ev.Diverted) -> Kind:
    if isinstance(event, ev.Settled):
        return _SETTLED[event.verb]
    if isinstance(event, ev.Extended):
        return Kind.EXTENDED
    if isinstance(event, ev.Redriven):
        return Kind.REDRIVEN
    if isinstance(event, ev.Diverted):
        return Kind.DEAD
    return Kind.EXPIRED if event.cause == "expired" else Kind.CANCELLED


def detail(event: ev.Event, attempt: int) -> str:
    """What a trace adds to the kind of an event."""
    if isinstance(event, ev.Leased):
        who = f" by {event.consumer}" if event.consumer else ""
        return f"to {event.group}{who}, attempt {attempt}, until {rfc3339(event.deadline)}"
    if isinstance(event, ev.Settled):
        notes = [event.group, event.reason, f"until {rfc3339(event.due)}" if event.due else "", event.error]
        return ", ".join(note for note in notes if note)
    if isinstance(event, ev.Extended):
        return f"{event.group}, until {rfc3339(event.deadline)}"
    if isinstance(event, ev.Redriven):
        return event.group
    if isinstance(event, ev.Diverted):
        return f"{event.group}, diverted: an earlier message of its key is dead"
    if isinstance(event, ev.Rescheduled):
        return f"for {rfc3339(event.due)}"
    if isinstance(event, ev.Duplicated):
        return "published again with the same idempotency key"
    if isinstance(event, ev.Voided):
        return event.cause.removeprefix("expired").removeprefix("cancelled")
    return "purged"
