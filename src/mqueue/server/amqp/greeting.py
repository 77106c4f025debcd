"""How a connection begins: what the server says of itself, how a client proves who it is, what both agree upon."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from msgspec import Struct
from pamqp import commands

from mqueue.server.amqp.errors import NOT_ALLOWED, SYNTAX_ERROR, Fault
from mqueue.server.amqp.tables import read_table

CHANNELS_MAX = 2047
FRAME_MAX = 131_072
FRAME_MIN = 4_096
HEARTBEAT_SECONDS = 60
MECHANISMS = "PLAIN AMQPLAIN"
EXTERNAL = "EXTERNAL"

_CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": False,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


class Agreed(Struct, frozen=True):
    """What holds for a connection."""

    channels_max: int
    frame_max: int
    heartbeat_seconds: int


def start(certified: bool) -> commands.Connection.Start:
    """`certified`: the client has shown a certificate, and may leave it at that."""
    about: dict[str, Any] = {
        "capabilities": _CAPABILITIES,
        "product": "mqueue",
        "version": version("mqueue"),
        "platform": "Python",
        "information": "AMQP 0-9-1",
    }
    mechanisms = f"{MECHANISMS} {EXTERNAL}" if certified else MECHANISMS
    return commands.Connection.Start(0, 9, about, mechanisms, "en_US")


def proof_of(mechanism: str, response: str | bytes) -> dict[str, str]:
    """The password as the credentials it is: a key or a token. Raises Fault."""
    data = response.encode() if isinstance(response, str) else response
    try:
        if mechanism == "PLAIN":
            _, _, password = data.decode().split("\0")
        elif mechanism == "AMQPLAIN":
            told, _ = read_table(len(data).to_bytes(4, "big") + data)
            password = str(told["PASSWORD"])
        elif mechanism == EXTERNAL:
            return {}
        else:
            raise Fault(NOT_ALLOWED, f"mechanism {mechanism!r:.80} is not among those offered: {MECHANISMS}")
    except (ValueError, KeyError) as error:
        raise Fault(SYNTAX_ERROR, f"the response to {mechanism} cannot be read") from error
    return {"authorization": f"Bearer {password}"} if password else {}


def tune() -> commands.Connection.Tune:
    return commands.Connection.Tune(CHANNELS_MAX, FRAME_MAX, HEARTBEAT_SECONDS)


def agree(told: commands.Connection.TuneOk) -> Agreed:
    """What a client chose; 0 is no limit of its own. Raises Fault."""
    channels, frame_max = told.channel_max or CHANNELS_MAX, told.frame_max or FRAME_MAX
    if channels > CHANNELS_MAX:
        raise Fault(NOT_ALLOWED, f"negotiated channel_max = {channels} is higher than the maximum, {CHANNELS_MAX}")
    if not FRAME_MIN <= frame_max <= FRAME_MAX:
        raise Fault(NOT_ALLOWED, f"negotiated frame_max = {frame_max}; it takes {FRAME_MIN} to {FRAME_MAX}")
    return Agreed(channels, frame_max, told.heartbeat)
