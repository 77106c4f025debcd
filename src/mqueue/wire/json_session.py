"""The JSON of `/v1/session`: logging in with a browser."""

from __future__ import annotations

from msgspec import Struct


class LoginIn(Struct, forbid_unknown_fields=True):
    """An API key, or a token."""

    credential: str


class SessionOut(Struct, omit_defaults=True):
    """Who is calling. `login`: he has to log in first, and then nothing else is said. `via`: how he proved who he is.
    `csrf`: what calls that change something have to bring in the header X-Mqueue-Csrf, where a cookie is the proof."""

    login: bool
    subject: str = ""
    via: str = ""
    grants: list[str] = []
    csrf: str = ""
    version: str = ""
