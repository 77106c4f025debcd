"""All routes there are."""

from __future__ import annotations

from mqueue.server.http.routes import Route
from mqueue.server.http.v1 import admin, groups, manage

TABLE: tuple[Route, ...] = (
    *manage.ROUTES,
    *groups.ROUTES,
    *admin.ROUTES,
)
