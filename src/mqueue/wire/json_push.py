"""The JSON of pushed messages: events of a stream, and what is said over a WebSocket in both directions."""

from __future__ import annotations

from msgspec import Struct

from mqueue.wire.json import ErrorBody, MessageIn, MessageOut, ReceiptOut


class PushedOut(MessageOut, omit_defaults=True, gc=False):
    """A message in a stream of server-sent events, with the lease to settle it by."""

    lease: str | None = None


class CommandIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a consumer says over a WebSocket: just one of the five verbs, with the ids it is about.

    `seq` comes back in the answer. `delay` is for nack, `visibility` for extend, `publish` for ack.
    """

    ack: list[str] | None = None
    nack: list[str] | None = None
    reject: list[str] | None = None
    release: list[str] | None = None
    extend: list[str] | None = None
    delay: float | str | None = None
    error: str | None = None
    visibility: float | str | None = None
    publish: list[MessageIn] = []
    seq: int | None = None


class CommandOut(Struct, omit_defaults=True):
    """What came of a command: what was settled, or why not."""

    seq: int | None = None
    settled: int | None = None
    lost: list[str] = []
    receipts: list[ReceiptOut] = []
    error: ErrorBody | None = None


VERBS = ("ack", "nack", "reject", "release", "extend")
