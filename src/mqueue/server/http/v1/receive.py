"""Receive: messages under a lease, at once or as soon as there are some."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mqueue.broker import remote
from mqueue.broker.deliver import wait_ms
from mqueue.broker.loop import LoopBroker
from mqueue.broker.shown import messages_out, stretches, table_out
from mqueue.broker.tables import SCHEMA
from mqueue.heart.crew import Seat
from mqueue.model.errors import Refused
from mqueue.model.names import check_name
from mqueue.model.times import rfc3339
from mqueue.server.http import delivered
from mqueue.server.http.answer import ARROW, Answer, Headers, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.push import unless_over
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.json import LeaseOut, LeasesOut, ReceiveIn, ReceiveTopicsIn
from mqueue.wire.stream import write_stream, write_table

T = TypeVar("T", list[remote.Handed], remote.HandedTable | None)

_RECEIVE = msgspec.json.Decoder(ReceiveIn)
_RECEIVE_TOPICS = msgspec.json.Decoder(ReceiveTopicsIn)

COLUMNS = Parameter("columns", "text", "`all`: with idempotency_key and fairness_key, in Arrow answers")


async def receive(call: Call) -> Answer:
    wanted = _wanted(call, (call.topic,), call.parsed(_RECEIVE))
    if call.wants_arrow:
        return await _receive_table(call, wanted)
    handed = await take(call, remote.receive, wanted)
    return for_taker(call, as_json(lease_out(handed[0]) if handed else LeaseOut(call.topic)), handed or ())


async def receive_anywhere(call: Call) -> Answer:
    """From several topics, a lease for each that has something."""
    wanted = _wanted(call, *asked_anywhere(call))
    handed = await take(call, remote.receive, wanted)
    return for_taker(call, as_json(LeasesOut([lease_out(lease) for lease in handed or ()])), handed or ())


def asked_anywhere(call: Call) -> tuple[tuple[str, ...], ReceiveTopicsIn]:
    """The topics that are named, each once, and what is asked of them. Raises what is wrong with any of it."""
    asked = call.parsed(_RECEIVE_TOPICS)
    if not asked.topics:
        raise Refused("no topic is named", code="no_topic")
    topics = tuple(dict.fromkeys(asked.topics))
    remote.check(_wanted(call, topics, asked))
    for topic in topics:
        call.demand("receive", call.namespace, check_name(topic, "topic"))
    return topics, asked


async def _receive_table(call: Call, wanted: remote.Wanted) -> Answer:
    if all_columns(call):
        found = await take(call, remote.receive, wanted)
        body = write_table(table_out(stretches(found[0].messages if found else ())))
        return for_taker(call, Answer(200, body, ARROW, _lease_headers(found[0]) if found else ()), found or ())
    handed = await take(call, remote.receive_table, wanted)
    if handed is None:
        return Answer(200, write_stream((), SCHEMA), ARROW)
    return for_taker(call, Answer(200, write_table(handed.table), ARROW, _lease_headers(handed)), (handed,))


async def take(
    call: Call, receive: Callable[[LoopBroker, remote.Wanted], Coroutine[Any, Any, T]], wanted: remote.Wanted
) -> T | None:
    """What there is, or comes within the time given; nothing more once the server stops. Who leaves gives it back."""
    since = delivered.begun(call)
    found = await _taken(call, receive, wanted)
    if found is not None:
        delivered.tell(call, wanted.group, found, since)
    return found


async def _taken(
    call: Call, receive: Callable[[LoopBroker, remote.Wanted], Coroutine[Any, Any, T]], wanted: remote.Wanted
) -> T | None:
    wait_ms(wanted.wait)  # what is wrong with it is said also where nobody has to wait
    found = await receive(call.behind, replace(wanted, wait=None) if wanted.wait else wanted)
    if found or not wanted.wait:
        return found
    return await unless_over(call, receive(call.behind, wanted), partial(_give_back, call))


async def _give_back(call: Call, found: list[remote.Handed] | remote.HandedTable | None) -> None:
    handed = found if isinstance(found, list) else [found] if found is not None else []
    await remote.give_back(call.behind, [lease.token for lease in handed if lease.token])


def for_taker(call: Call, answer: Answer, handed: Iterable[remote.Handed | remote.HandedTable]) -> Answer:
    """An answer that somebody has to be there for: if he has left, what is in it is given back."""
    tokens = [lease.token for lease in handed if lease.token]
    return replace(answer, give_back=partial(remote.give_back, call.behind, tokens)) if tokens else answer


def lease_out(handed: remote.Handed) -> LeaseOut:
    return LeaseOut(
        handed.topic,
        handed.token or None,
        rfc3339(handed.deadline) if handed.token else None,
        handed.remaining_ms,
        messages_out(handed.messages),
    )


def all_columns(call: Call) -> bool:
    asked = call.query.get("columns", "")
    if asked not in ("", "all"):
        raise Refused(f"columns {asked!r:.80}; it takes all", code="bad_query")
    return asked == "all"


def _lease_headers(handed: remote.Handed | remote.HandedTable) -> Headers:
    if not handed.token:
        return ()
    return (
        ("x-mqueue-lease", handed.token),
        ("x-mqueue-deadline", rfc3339(handed.deadline)),
        ("x-mqueue-remaining-ms", str(handed.remaining_ms)),
    )


def _wanted(call: Call, topics: tuple[str, ...], asked: ReceiveIn) -> remote.Wanted:
    wait, visibility = asked.wait, asked.visibility
    return remote.Wanted(
        topics, asked.limit, asked.group, wait, visibility, asked.mode, call.consumer, _seat(asked, len(topics))
    )


def _seat(asked: ReceiveIn, topics: int) -> Seat | None:
    if asked.member is None and asked.generation is None:
        return None
    if asked.member is None or asked.generation is None or topics != 1:
        raise Refused(
            f"member {asked.member!r:.80}, generation {asked.generation!r}; it takes both, as join answered them, and"
            " one topic",
            code="bad_member",
        )
    return check_name(asked.member, "member"), asked.generation


ROUTES = (
    Route(
        "POST",
        "/v1/topics/{topic}/receive",
        receive,
        "receive",
        "topic",
        "Receive messages under a lease",
        ReceiveIn,
        LeaseOut,
        (COLUMNS,),
        arrow=("out",),
    ),
    Route(
        "POST",
        "/v1/receive",
        receive_anywhere,
        "receive",
        "inside",
        "Receive messages of several topics, a lease for each",
        ReceiveTopicsIn,
        LeasesOut,
    ),
)
