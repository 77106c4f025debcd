"""Transactions: messages are staged in parts, then published all together or not at all."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from mqueue.broker.overview import limits_of
from mqueue.broker.transact import Transaction
from mqueue.model.errors import NotFound, Refused
from mqueue.model.message import Draft
from mqueue.model.names import check_name
from mqueue.server.http.answer import NOTHING, Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Parameter, Route
from mqueue.wire.json_in import drafts_of
from mqueue.wire.json_manage import CommitIn, StagedOut, StageIn, TransactionOut
from mqueue.wire.json_out import time_out
from mqueue.wire.stream import read_stream

_STAGE = msgspec.json.Decoder(StageIn)
_COMMIT = msgspec.json.Decoder(CommitIn)


async def stage(call: Call) -> Answer:
    topic, transaction, part = _topic(call), call.names["transaction"], call.query.get("part", "")
    await _demand_stage(call, topic)
    messages = read_stream(call.body, limits_of(call.behind)) if call.brings_arrow else _drafts(call, topic)
    staged = await call.broker.stage(transaction, topic, messages, part=part, ttl=call.query.get("ttl", "24h"))
    return as_json(StagedOut(transaction, part, staged.messages))


async def transaction(call: Call) -> Answer:
    return as_json(_shown(await _writable(call)))


async def commit(call: Call) -> Answer:
    found = await _writable(call)
    return as_json(_shown(await call.broker.commit(found.id, call.parsed(_COMMIT).parts)))


async def abort(call: Call) -> Answer:
    found = await _writable(call)
    return as_json(_shown(await call.broker.abort(found.id)))


async def forget(call: Call) -> Answer:
    with suppress(NotFound):
        found = await _writable(call)
        await call.broker.forget(found.id)
    return NOTHING


async def _demand_stage(call: Call, topic: str) -> None:
    """The right to the topic, and to those of a transaction that has begun: a part may take the place of another."""
    call.demand("publish", call.namespace, topic)
    with suppress(NotFound):
        for other in (await call.broker.transaction(call.names["transaction"])).topics:
            call.demand("publish", call.namespace, other)


async def _writable(call: Call) -> Transaction:
    """A transaction all of whose topics the caller may publish to. Who may not is not told whether it is there."""
    try:
        found = await call.broker.transaction(call.names["transaction"])
    except NotFound:
        call.demand("publish", call.namespace)
        raise
    for topic in found.topics:
        call.demand("publish", call.namespace, topic)
    return found


def _drafts(call: Call, topic: str) -> list[Draft]:
    return drafts_of(call.parsed(_STAGE).messages, topic)


def _topic(call: Call) -> str:
    topic = call.query.get("topic")
    if topic is None:
        raise Refused("no topic is named: ?topic=orders", code="no_topic")
    return check_name(topic, "topic")


def _shown(found: Transaction) -> TransactionOut:
    expires_at = time_out(found.expires_at)
    return TransactionOut(found.id, found.state, found.parts, found.messages, list(found.topics), expires_at)


_ONE = "/v1/transactions/{transaction}"
_STAGED = (
    Parameter("topic", "text", "where the messages will be published", required=True),
    Parameter("part", "text", "which part of the transaction this is: staged again, it takes the place of the first"),
    Parameter("ttl", "text", "after how long without a commit it is dropped; 24h"),
)

ROUTES = (
    Route(
        "POST",
        f"{_ONE}/stage",
        stage,
        "publish",
        "inside",
        "Put messages aside until the commit",
        takes=StageIn,
        gives=StagedOut,
        query=_STAGED,
        arrow=("in",),
        large=True,
    ),
    Route("GET", _ONE, transaction, "publish", "inside", "Show a transaction", gives=TransactionOut),
    Route(
        "POST",
        f"{_ONE}/commit",
        commit,
        "publish",
        "inside",
        "Publish what was staged",
        takes=CommitIn,
        gives=TransactionOut,
        large=True,
    ),
    Route("POST", f"{_ONE}/abort", abort, "publish", "inside", "Drop what was staged", gives=TransactionOut),
    Route("DELETE", _ONE, forget, "publish", "inside", "Remember no more how a transaction ended", status=204),
)
