"""All routes there are."""

from __future__ import annotations

from mqueue.server.http import docs, operations, seeds
from mqueue.server.http.dashboard import assets
from mqueue.server.http.routes import Route
from mqueue.server.http.sqs import actions
from mqueue.server.http.v1 import (
    admin,
    browse,
    cluster,
    cursor,
    dlq,
    events,
    frames,
    groups,
    manage,
    members,
    overview,
    pipeline,
    publish,
    push,
    read,
    receive,
    schedule,
    schedules,
    session,
    settle,
)

_CALLS: tuple[Route, ...] = (
    *publish.ROUTES,
    *receive.ROUTES,
    *settle.ROUTES,
    *read.ROUTES,
    *events.ROUTES,
    *frames.ROUTES,
    *browse.ROUTES,
    *manage.ROUTES,
    *groups.ROUTES,
    *members.ROUTES,
    *schedule.ROUTES,
    *schedules.ROUTES,
    *dlq.ROUTES,
    *cursor.ROUTES,
    *pipeline.ROUTES,
    *overview.ROUTES,
    *cluster.ROUTES,
    *admin.ROUTES,
    *session.ROUTES,
    *push.ROUTES,
    *seeds.ROUTES,
    *actions.ROUTES,
    *operations.ROUTES,
    *assets.ROUTES,
)

TABLE = (*_CALLS, *docs.routes(_CALLS))
