"""What is kept of each request once it is answered: a tally, a line in the log, and for what was managed the audit.

Every request passes here, so nothing is looked up that is not needed: a line is written only where somebody reads it.
"""

from __future__ import annotations

import logging
import re
from itertools import count
from time import perf_counter
from typing import Any

from mqueue.server.http.answer import Answer, Streamed
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.metrics.requests import Requests

ACCESS = logging.getLogger("mqueue.access")

LEFT = 499
"""Stands for the status where the caller left before there was one. What was asked for may have been done."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Watch:
    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self._numbers = count(1)

    def begin(self) -> float:
        """A request is about to be handled; the answer is for `end`."""
        self.requests.in_flight += 1
        return perf_counter()

    def end(self, call: Call, route: Route, answer: Answer | Streamed | None, begun: float) -> None:
        """It has an answer; None: the caller left before."""
        seconds = perf_counter() - begun
        requests = self.requests
        requests.in_flight -= 1
        status = LEFT if answer is None else answer.status
        sent = len(answer.body) if isinstance(answer, Answer) else 0
        requests.tallies[route.method, route.path].add(status, seconds, len(call.body), sent)
        if status < 300 and route.verb in requests.calls:
            requests.calls[route.verb].add(seconds)
        if status >= 500 or route.verb == "manage" or ACCESS.isEnabledFor(logging.DEBUG):
            self._tell(call, route, status, seconds)

    def turned_away(self, status: int) -> None:
        """A request that found no route, or was not let in."""
        self.requests.unrouted.add(status, 0.0, 0, 0)

    def _tell(self, call: Call, route: Route, status: int, seconds: float) -> None:
        if route.verb == "manage" and route.method != "GET" and not 400 <= status < LEFT:
            call.service.door.changed(
                call.principal,
                f"{call.method} {call.path}",
                call.peer,
                call.service.clock.now(),
                call.namespace,
                call.names.get("topic", ""),
            )
        level = logging.WARNING if status >= 500 else logging.DEBUG
        if ACCESS.isEnabledFor(level):
            fields = self._fields(call, route, status, seconds)
            ACCESS.log(level, "%s %s: %s", call.method, route.path, status, extra=fields)

    def _fields(self, call: Call, route: Route, status: int, seconds: float) -> dict[str, Any]:
        """Paths hold names only, and queries what callers put there: so the route is shown, and no query."""
        fields: dict[str, Any] = {
            "request": self._request_id(call),
            "method": call.method,
            "route": route.path,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "peer": call.peer,
            "namespace": call.namespace,
            "subject": call.principal.subject,
            "via": call.principal.via,
        }
        trace = _TRACEPARENT.fullmatch(call.headers.get("traceparent", ""))
        if trace is not None:
            fields["trace"] = trace[1]
        return {"fields": fields}

    def _request_id(self, call: Call) -> str:
        """As the caller named it, if that is a name; else a number of ours."""
        given = call.headers.get("x-request-id", "")
        return given if _REQUEST_ID.fullmatch(given) else str(next(self._numbers))
