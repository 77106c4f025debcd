"""All routes there are."""

from __future__ import annotations

from mqueue.server.http import docs, operations, seeds
from mqueue.server.http.routes import Route
from mqueue.server.http.v1 import (
    admin,
    cursor,
    dlq,
    events,
    frames,
    groups,
    manage,
    pipeline,
    publish,
    push,
    read,
    receive,
    schedule,
    settle,
)

_CALLS: tuple[Route, ...] = (
    *publish.ROUTES,
    *receive.ROUTES,
    *settle.ROUTES,
    *read.ROUTES,
    *events.ROUTES,
    *frames.ROUTES,
    *manage.ROUTES,
    *groups.ROUTES,
    *schedule.ROUTES,
    *dlq.ROUTES,
    *cursor.ROUTES,
    *pipeline.ROUTES,
    *admin.ROUTES,
    *push.ROUTES,
    *seeds.ROUTES,
    *operations.ROUTES,
)

TABLE = (*_CALLS, *docs.routes(_CALLS))
