"""What is changed while the server runs and outlives it: API keys and quotas.

A change is written to the disk first and takes force then; if it cannot be written nothing changes. One change at a
time. Files are written in a thread, so that no call waits for somebody else's sync. Without a disk changes live as
long as the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from mqueue.log.segments.reserve import NO_ROOM
from mqueue.model.clock import Clock
from mqueue.model.errors import DiskFull, QueueFull, Refused, Unavailable
from mqueue.model.names import check_name
from mqueue.policy.quota import check_quota
from mqueue.server.security.keys import ENTROPY_BYTES, KeyRecord, Keys

T = TypeVar("T")

QUOTAS_MAX = 10_000


class KeyKeeper(Protocol):
    """`mqueue.server.security.keyfile.KeyFile` is one."""

    def save(self, keys: Keys) -> None: ...


class QuotaKeeper(Protocol):
    """`mqueue.server.quotas.QuotaFile` is one."""

    def save(self, quotas: Mapping[str, int]) -> None: ...


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

    async def quotas(self) -> Mapping[str, int]:
        return self._effective(self._set)

    async def set_quota(self, namespace: str, per_minute: int | None) -> None:
        """None: what the configuration says holds again."""
        check_name(namespace, "namespace")
        if per_minute is not None:
            check_quota(namespace, per_minute)
        async with self._turn:
            changed = {name: value for name, value in self._set.items() if name != namespace}
            if per_minute is not None:
                changed[namespace] = per_minute
            if len(changed) > QUOTAS_MAX:
                raise QueueFull(f"{QUOTAS_MAX} quotas are kept already", retryable=False)
            quota_file = self._quota_file
            if quota_file is not None:
                await _write(lambda: quota_file.save(changed))
            self._set = changed
            self._on_quotas(self._effective(changed), self._default)

    async def keys(self) -> Sequence[KeyRecord]:
        return () if self._keys is None else self._keys.records

    async def add_key(self, name: str, scopes: Sequence[str], expires_at: int | None) -> str:
        now, entropy = self._clock.now(), self._entropy(ENTROPY_BYTES)
        return await self._change_keys(
            lambda keys: keys.add(name, scopes, now=now, entropy=entropy, expires_at=expires_at)
        )

    async def revoke_key(self, name: str) -> None:
        now = self._clock.now()
        await self._change_keys(lambda keys: keys.revoke(name, now))

    async def _change_keys(self, change: Callable[[Keys], T]) -> T:
        async with self._turn:
            if self._keys is None:
                raise Refused("API keys are not taken here: security.auth has to name keys", code="keys_off")
            keys = self._keys.copy()
            answer = change(keys)
            key_file = self._key_file
            if key_file is not None:
                await _write(lambda: key_file.save(keys))
            self._keys = keys
            self._on_keys(keys)
            return answer

    def _effective(self, changed: Mapping[str, int]) -> dict[str, int]:
        return {**self._told, **changed}


async def _write(save: Callable[[], None]) -> None:
    """To its end, also if the caller leaves meanwhile: what is on the disk and what holds must not differ."""
    written = asyncio.get_running_loop().run_in_executor(None, save)
    while not written.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([written])
    try:
        written.result()
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFull(f"no room to write this down: {error.strerror}") from error
        raise Unavailable(f"this could not be written down: {error.strerror}", applied=None) from error
