"""All actions of SQS: one path, `X-Amz-Target` says which. Each is a route, so that those who place requests know it.

    request ─► which action ─► body ─► `queues`, `sending`, `receiving`, `settling`, `moving` ─► answer

What goes by queries and XML is not spoken: clients that are released now speak JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mqueue.model.errors import Refused
from mqueue.server.http.answer import Answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Handler, Route
from mqueue.server.http.sqs import moving, queues, receiving, sending, settling
from mqueue.server.http.sqs.errors import KIND, SERVICE, TARGET, Fault, request_id
from mqueue.server.http.sqs.naming import ACTIONS_PATH, PATH
from mqueue.server.security.principal import Verb
from mqueue.wire import json_sqs as wire

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()
_NOTHING = b"{}"
_UNSUPPORTED = ("AddPermission", "RemovePermission")


def _handler(kind: type[T], work: Callable[[Call, T], Awaitable[Any]]) -> Handler:
    decoder = msgspec.json.Decoder(kind)

    async def handler(call: Call) -> Answer:
        call.path = f"{PATH}{call.headers[TARGET]}"  # as the audit log shows it
        given = await work(call, _parsed(call.body, decoder))
        if isinstance(given, Answer):
            return given
        return Answer(200, _NOTHING if given is None else _ENCODER.encode(given), KIND, request_id())

    return handler


def _parsed(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body or _NOTHING)
    except msgspec.ValidationError as error:
        missing = "missing required field" in str(error)
        why = f"the body does not fit: {error!s:.300}"
        raise Fault("MissingParameter" if missing else "InvalidParameterValue", why) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault("SerializationException", f"the body is not JSON: {error!s:.300}") from None


async def _unsupported(call: Call) -> Answer:
    raise Fault("UnsupportedOperation", "rights are given by the grants of keys and tokens, not by queues")


async def _unknown(call: Call) -> Answer:
    action = call.headers.get(TARGET, "")
    raise Fault("InvalidAction", f"there is no action {action!r:.120}")


async def _aimless(call: Call) -> Answer:
    raise Refused(f"nobody says what to do here; SQS clients do in the header X-Amz-Target, as {SERVICE}SendMessage",
                  code="no_action")  # fmt: skip


def _route(verb: Verb, handler: Handler, large: bool = False, path: str = PATH) -> Route:
    return Route("POST", path, handler, verb, "inside", "", large=large, signed=True, kind=KIND)


_ROUTES: dict[str, Route] = {
    "SendMessage": _route("publish", _handler(wire.SendIn, sending.send), large=True),
    "SendMessageBatch": _route("publish", _handler(wire.SendBatchIn, sending.send_batch), large=True),
    "ReceiveMessage": _route("receive", _handler(wire.ReceiveIn, receiving.receive)),
    "DeleteMessage": _route("settle", _handler(wire.ReceiptIn, settling.delete)),
    "DeleteMessageBatch": _route("settle", _handler(wire.ReceiptsIn, settling.delete_batch)),
    "ChangeMessageVisibility": _route("settle", _handler(wire.VisibilityIn, settling.change)),
    "ChangeMessageVisibilityBatch": _route("settle", _handler(wire.VisibilitiesIn, settling.change_batch)),
    "CreateQueue": _route("manage", _handler(wire.CreateIn, queues.create)),
    "DeleteQueue": _route("manage", _handler(wire.QueueIn, queues.delete)),
    "PurgeQueue": _route("manage", _handler(wire.QueueIn, queues.purge)),
    "GetQueueUrl": _route("read", _handler(wire.UrlIn, queues.url)),
    "ListQueues": _route("read", _handler(wire.ListIn, queues.listed)),
    "GetQueueAttributes": _route("read", _handler(wire.NamesIn, queues.attributes)),
    "SetQueueAttributes": _route("manage", _handler(wire.AttributesIn, queues.set_attributes)),
    "ListDeadLetterSourceQueues": _route("read", _handler(wire.SourcesIn, queues.sources)),
    "ListQueueTags": _route("read", _handler(wire.QueueIn, queues.tags)),
    "TagQueue": _route("manage", _handler(wire.TagIn, queues.tag)),
    "UntagQueue": _route("manage", _handler(wire.UntagIn, queues.untag)),
    "StartMessageMoveTask": _route("manage", _handler(wire.MoveIn, moving.start)),
    "ListMessageMoveTasks": _route("read", _handler(wire.MovesIn, moving.listed)),
    "CancelMessageMoveTask": _route("manage", _handler(wire.CancelIn, moving.cancel)),
    **{name: _route("manage", _unsupported) for name in _UNSUPPORTED},
}
ACTIONS = {name: replace(route, path=ACTIONS_PATH + name) for name, route in _ROUTES.items()}
_UNKNOWN = _route("read", _unknown)
_AIMLESS = _route("read", _aimless)


def _within(headers: Mapping[str, str]) -> Route:
    target = headers.get(TARGET)
    if target is None:
        return _AIMLESS
    return ACTIONS.get(target.removeprefix(SERVICE), _UNKNOWN) if target.startswith(SERVICE) else _UNKNOWN


ROUTES = (
    Route(
        "POST",
        PATH,
        _aimless,
        "publish",
        "inside",
        "An action of SQS, named by the header X-Amz-Target",
        dict[str, Any],
        dict[str, Any],
        large=True,
        signed=True,
        within=_within,
    ),
)
