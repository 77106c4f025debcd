"""The routes of those who run a server: whether it lives, whether it takes messages, and its metrics."""

from __future__ import annotations

from mqueue.broker import backstage
from mqueue.broker.twin import behind
from mqueue.model.errors import NotFound
from mqueue.server.http.answer import TEXT, Answer
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.metrics.page import CONTENT_TYPE

_OK = Answer(200, b"OK", TEXT, (("cache-control", "no-store"),))


async def health(call: Call) -> Answer:
    """The server answers; nothing else is looked at."""
    return _OK


async def livez(call: Call) -> Answer:
    """503 once only a new start can help."""
    places = call.service.places
    if places is not None:
        return _refusal(places.poison()) if places.poison() else _OK
    broker = behind(call.service.root)
    return _refusal(backstage.trouble(broker)) if backstage.is_poisoned(broker) else _OK


async def readyz(call: Call) -> Answer:
    """503 while messages are not taken, with the reason."""
    if call.service.stopping.is_set():
        return _refusal("the server is stopping")
    places = call.service.places
    why = places.trouble() if places is not None else backstage.trouble(behind(call.service.root))
    return _refusal(why) if why else _OK


async def metrics(call: Call) -> Answer:
    page = call.service.page
    if page is None:
        raise NotFound("metrics are off: see metrics.enabled", code="metrics_off")
    return Answer(200, await page.text(), CONTENT_TYPE, (("cache-control", "no-store"),))


def _refusal(why: str) -> Answer:
    return Answer(503, why.encode(), TEXT, (("cache-control", "no-store"),))


ROUTES = (
    Route("GET", "/health", health, "read", "open", "Say OK", gives=str, kind=TEXT),
    Route("GET", "/livez", livez, "read", "open", "Say OK, unless only a new start can help", gives=str, kind=TEXT),
    Route("GET", "/readyz", readyz, "read", "open", "Say OK while messages are taken", gives=str, kind=TEXT),
    Route("GET", "/metrics", metrics, "manage", "server", "Numbers for Prometheus", gives=str, kind=CONTENT_TYPE),
)
