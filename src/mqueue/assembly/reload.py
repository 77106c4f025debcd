"""What a running server was told, read again: when somebody says so, and now and then for what is renewed by itself.

Certificates, key sets and secrets in files of their own are renewed by machines, so they are looked at without being
told. The rest of a configuration is written by people, who may not be done yet: it waits for a signal. What is wrong
is said, and the old stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from mqueue.assembly.security import secrets_of
from mqueue.assembly.server import Serving
from mqueue.config import Config
from mqueue.model.errors import BadSetting
from mqueue.server import logs

LOGGER = logging.getLogger("mqueue.server")


class Reloader:
    def __init__(self, serving: Serving, read: Callable[[], Config]) -> None:
        self._serving = serving
        self._read = read
        self._complaint = ""
        """What was said last, so that it is not said at every look."""

    async def told(self) -> None:
        """Somebody wants the configuration to be read again."""
        try:
            waits = self._take(await asyncio.to_thread(self._read))
        except BadSetting as error:
            LOGGER.error("the new configuration is refused, the old one stays: %s", error.message)
            return
        except Exception:  # whatever it is: a server that runs goes on running
            LOGGER.exception("the configuration could not be read again; the old one stays")
            return
        self._complaint = ""
        LOGGER.info("the configuration was read again%s", f"; waits for a start: {', '.join(waits)}" if waits else "")

    async def run_once(self) -> None:
        """Look at what is renewed by itself."""
        try:
            fresh = await asyncio.to_thread(self._read)
        except Exception:  # somebody is writing it, perhaps: certificates and key sets are looked at all the same
            fresh = self._serving.config
        try:
            self._take(_renewed(self._serving.config, fresh))
            self._complaint = ""
        except BadSetting as error:
            if error.message != self._complaint:
                LOGGER.error("what was renewed is refused, the old stays: %s", error.message)
            self._complaint = error.message
        except Exception:
            LOGGER.exception("what was renewed could not be taken; the old stays")

    def _take(self, config: Config) -> list[str]:
        before = self._serving.config
        waits = self._serving.reload(config)
        now = self._serving.config
        if now.logging != before.logging or secrets_of(now) != secrets_of(before):
            logs.change(now.logging.level, now.logging.encoding, [*secrets_of(now), *secrets_of(before)])
        return waits


def _renewed(old: Config, fresh: Config) -> Config:
    """The old configuration with new secrets."""
    jwt = replace(
        old.security.jwt, secret=fresh.security.jwt.secret, previous_secret=fresh.security.jwt.previous_secret
    )
    return replace(old, security=replace(old.security, jwt=jwt))
