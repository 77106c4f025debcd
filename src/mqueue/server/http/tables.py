"""All routes there are."""

from __future__ import annotations

from mqueue.server.http.routes import Route

TABLE: tuple[Route, ...] = ()
