"""What is changed while the server runs and outlives it: API keys and quotas.

A change is written down first and takes force then; if it cannot be written nothing changes. One change at a time. What
is kept is read and written in a thread, so that no call waits for somebody else's sync. Where there is nothing to keep
it in, changes live as long as the server.

Several servers may keep theirs at the same place. Then a change is made to what is kept there, again if somebody else
was quicker, and what others have changed takes force at the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from mqueue.log.segments.reserve import NO_ROOM
from mqueue.model.clock import Clock
from mqueue.model.errors import DiskFull, QueueFull, Refused, Unavailable
from mqueue.model.names import check_name
from mqueue.policy.quota import check_quota
from mqueue.server.security.keys import ENTROPY_BYTES, KeyRecord, Keys

T = TypeVar("T")

QUOTAS_MAX = 10_000
_KEYS_OFF = "API keys are not taken here: security.auth has to name keys"


class KeyKeeper(Protocol):
    """`mqueue.server.security.keyfile.KeyFile` is one."""

    def load(self) -> Keys: ...

    def save(self, keys: Keys) -> bool: ...

    def is_stale(self) -> bool: ...


class QuotaKeeper(Protocol):
    """`mqueue.server.quotas.QuotaFile` is one."""

    def load(self) -> Mapping[str, int]: ...

    def save(self, quotas: Mapping[str, int]) -> bool: ...

    def is_stale(self) -> bool: ...


class Administrator:
    """`on_keys` and `on_quotas` are told of what holds from now on."""

    def __init__(
        self,
        clock: Clock,
        entropy: Callable[[int], bytes],
        on_keys: Callable[[Keys], None],
        on_quotas: Callable[[Mapping[str, int], int | None], None],
        *,
        keys: Keys | None = None,
        key_file: KeyKeeper | None = None,
        quotas: Mapping[str, int] | None = None,
        quota_file: QuotaKeeper | None = None,
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._on_keys, self._on_quotas = on_keys, on_quotas
        self._keys, self._key_file = keys, key_file
        self._set = dict(quotas or {})
        """Quotas that were set while it ran."""
        self._told: Mapping[str, int] = {}
        self._default: int | None = None
        """Quotas that the configuration tells of, and that of all others."""
        self._quota_file = quota_file
        self._turn = asyncio.Lock()

    def configure(self, quotas: Mapping[str, int], default: int | None) -> None:
        """What the configuration says. What was set while the server ran stands above it."""
        self._told, self._default = dict(quotas), default
        self._on_quotas(self._effective(self._set), default)

    async def look(self) -> None:
        """What others changed takes force here. Raises if it cannot be seen; then what is known goes on to hold."""
        async with self._turn:
            await self._look_at_keys()
            await self._look_at_quotas()

    async def quotas(self) -> Mapping[str, int]:
        await self._glance()
        return self._effective(self._set)

    async def set_quota(self, namespace: str, per_minute: int | None) -> None:
        """None: what the configuration says holds again."""
        check_name(namespace, "namespace")
        if per_minute is not None:
            check_quota(namespace, per_minute)
        async with self._turn:
            while True:
                await self._look_at_quotas()
                changed = {name: value for name, value in self._set.items() if name != namespace}
                if per_minute is not None:
                    changed[namespace] = per_minute
                if len(changed) > QUOTAS_MAX:
                    raise QueueFull(f"{QUOTAS_MAX} quotas are kept already", retryable=False)
                if self._quota_file is None or await _done(partial(self._quota_file.save, changed)):
                    return self._take_quotas(changed)

    async def keys(self) -> Sequence[KeyRecord]:
        await self._glance()
        return () if self._keys is None else self._keys.records

    async def add_key(self, name: str, scopes: Sequence[str], expires_at: int | None) -> str:
        now, entropy = self._clock.now(), self._entropy(ENTROPY_BYTES)
        return await self._change_keys(
            lambda keys: keys.add(name, scopes, now=now, entropy=entropy, expires_at=expires_at)
        )

    async def signing_secret(self, name: str) -> str:
        if self._keys is None:
            raise Refused(_KEYS_OFF, code="keys_off")
        return self._keys.signing_secret(name)

    async def revoke_key(self, name: str) -> None:
        now = self._clock.now()
        await self._change_keys(lambda keys: keys.revoke(name, now))

    async def _change_keys(self, change: Callable[[Keys], T]) -> T:
        async with self._turn:
            while True:
                await self._look_at_keys()
                if self._keys is None:
                    raise Refused(_KEYS_OFF, code="keys_off")
                keys = self._keys.copy()
                answer = change(keys)
                if self._key_file is None or await _done(partial(self._key_file.save, keys)):
                    self._take_keys(keys)
                    return answer

    async def _glance(self) -> None:
        """Who wants to see what holds sees what others have changed just now, as long as that can be seen."""
        with suppress(Unavailable):
            await self.look()

    async def _look_at_keys(self) -> None:
        if self._key_file is not None and await _done(self._key_file.is_stale):
            self._take_keys(await _done(self._key_file.load))

    async def _look_at_quotas(self) -> None:
        if self._quota_file is not None and await _done(self._quota_file.is_stale):
            self._take_quotas(await _done(self._quota_file.load))

    def _take_keys(self, keys: Keys) -> None:
        self._keys = keys
        self._on_keys(keys)

    def _take_quotas(self, changed: Mapping[str, int]) -> None:
        self._set = dict(changed)
        self._on_quotas(self._effective(self._set), self._default)

    def _effective(self, changed: Mapping[str, int]) -> dict[str, int]:
        return {**self._told, **changed}


async def _done(work: Callable[[], T]) -> T:
    """To its end, also if the caller leaves meanwhile: what is kept and what holds must not differ."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working])
    try:
        return working.result()
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFull(f"no room to write this down: {error.strerror}") from error
        raise Unavailable(f"this could not be written down: {error.strerror}", applied=None) from error
