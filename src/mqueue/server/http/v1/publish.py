"""Publish: one topic or several, as JSON or as an Arrow stream, in one commit, all or none."""

from __future__ import annotations

import msgspec

from mqueue.server.http.answer import Answer, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.wire.json import PublishIn, PublishOut
from mqueue.wire.json_in import drafts_of
from mqueue.wire.json_out import receipt_out

_PUBLISH = msgspec.json.Decoder(PublishIn)


async def publish(call: Call) -> Answer:
    asked = call.parsed(_PUBLISH)
    drafts = drafts_of(asked.messages, call.topic)
    receipts = await call.broker.publish_many(call.topic, drafts, durability=asked.durability)
    return as_json(PublishOut([receipt_out(receipt) for receipt in receipts], receipts[0].durability))


ROUTES = (
    Route(
        "POST",
        "/v1/topics/{topic}/messages",
        publish,
        "publish",
        "topic",
        "Publish messages to a topic",
        PublishIn,
        PublishOut,
        arrow=("in", "out"),
    ),
)
