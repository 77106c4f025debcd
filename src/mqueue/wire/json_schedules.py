"""The JSON bodies of `/v1/schedules`. Shared by server and client; what the names mean is decided by the broker."""

from __future__ import annotations

from msgspec import Struct

from mqueue.wire.json import MessageIn


class ScheduleIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`cron` or `every`. Of the message everything counts but what says when, or only once."""

    topic: str
    message: MessageIn
    name: str | None = None
    cron: str | None = None
    every: float | str | None = None
    tz: str = "UTC"
    misfire: str = "once"


class ScheduleChange(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is to change."""

    paused: bool | None = None
    cron: str | None = None
    every: float | str | None = None
    tz: str | None = None
    misfire: str | None = None


class ScheduleOut(Struct, omit_defaults=True):
    """`next_at` is missing while it is paused; `last_at` and `last_id` until it has happened."""

    name: str
    topic: str
    tz: str
    misfire: str
    paused: bool
    count: int
    made_at: str
    priority: int
    cron: str | None = None
    every: float | None = None
    next_at: str | None = None
    last_at: str | None = None
    last_id: str | None = None
    payload: str | None = None
    payload_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    ttl: float | None = None


class SchedulesOut(Struct):
    """`next`: hand it in as `after` for the next page."""

    schedules: list[ScheduleOut]
    next: str | None = None
