"""Logging in with a browser, and out; and who that is. These routes let themselves be called by everybody."""

from __future__ import annotations

from importlib.metadata import version

import msgspec

from mqueue.model.errors import Unauthorized
from mqueue.server.http import session
from mqueue.server.http.answer import Answer, Headers, as_json
from mqueue.server.http.call import Call
from mqueue.server.http.routes import Route
from mqueue.server.security.principal import ANY, Principal
from mqueue.wire.json_session import LoginIn, SessionOut

_LOGIN = msgspec.json.Decoder(LoginIn)
_FRESH: Headers = (("cache-control", "no-store"),)


async def show(call: Call) -> Answer:
    """Who the caller is; somebody who is not let in is told to log in."""
    service = call.service
    credential = session.credential_of(call.headers)
    try:
        headers = session.entered(call.headers, only_looks=True)
        principal = service.door.caller(headers, call.peer, call.certificate, service.clock.now())
    except Unauthorized:
        return as_json(SessionOut(login=True), headers=_FRESH)
    return as_json(_told(principal, credential), headers=_FRESH)


async def login(call: Call) -> Answer:
    service, given = call.service, call.parsed(_LOGIN).credential.strip()
    secure = _is_secure(call)
    cookie = session.cookie(given, secure)
    proof = {"authorization": f"Bearer {given}"}
    principal = service.door.caller(proof, call.peer, None, service.clock.now())
    return as_json(_told(principal, given), headers=(*_FRESH, ("set-cookie", cookie)))


async def logout(call: Call) -> Answer:
    return Answer(204, headers=(*_FRESH, ("set-cookie", session.farewell(_is_secure(call)))))


def _told(principal: Principal, credential: str | None) -> SessionOut:
    grants = [
        f"{grant.scope}:{grant.namespace}" + (f"/{grant.topics}" if grant.topics != ANY else "")
        for grant in principal.grants
    ]
    csrf = "" if credential is None else session.csrf_of(credential)
    return SessionOut(False, principal.subject, principal.via, grants, csrf, version("mqueue"))


def _is_secure(call: Call) -> bool:
    """Behind a proxy that speaks TLS the browser says so: where its page is from. Other sites were turned away."""
    return call.service.secure or call.headers.get("origin", "").startswith("https://")


_PATH = "/v1/session"

ROUTES = (
    Route("GET", _PATH, show, "read", "open", "Show who is calling, and whether he has to log in", gives=SessionOut),
    Route(
        "POST", _PATH, login, "read", "open", "Log in with a browser: sets a cookie", takes=LoginIn, gives=SessionOut
    ),
    Route("DELETE", _PATH, logout, "read", "open", "Log out: the cookie is forgotten", status=204),
)
