"""What a broker stands on: an engine over a log in memory, or over one on disk that is opened and recovered."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping
from typing import Any

from mqueue.broker.commits import Gate
from mqueue.broker.engine import Engine
from mqueue.broker.upkeep import Upkeep
from mqueue.heart.heart import Heart
from mqueue.heart.state import State
from mqueue.log.memory import MemoryLog
from mqueue.log.segments.disk import Disk, RealDisk
from mqueue.log.segments.log import SegmentLog
from mqueue.log.segments.storage import Storage
from mqueue.model.clock import Ahead, Clock, SystemClock
from mqueue.model.errors import BadSetting, Refused
from mqueue.model.ident import IdSource
from mqueue.model.limits import Limits
from mqueue.model.settings import Settings, parse
from mqueue.model.times import rfc3339
from mqueue.policy.quota import Quotas
from mqueue.policy.retry import JITTER_MAX
from mqueue.store.recover import MISFITS, recover, salvage
from mqueue.store.store import Store
from mqueue.store.tokens import Tokens

LOGGER = logging.getLogger("mqueue")
_BEHIND_MS = 1_000
"""A clock that stands behind the log by no more than this needs no words."""
_HISTORY_BYTES = 64 * 1024 * 1024
"""So much of what its groups have settled a topic in memory keeps for replay. What is owed is always kept."""


def opened(
    path: Any,
    clock: Clock | None,
    quotas: Mapping[str, int] | None,
    limits: Limits | None,
    storage: Storage | None,
    settings: Mapping[str, Any],
    gate: Callable[[SegmentLog], Gate],
) -> Engine:
    """An engine made of what users say, at work."""
    for word, value, kind in (("limits", limits, Limits), ("quotas", quotas, Mapping), ("storage", storage, Storage)):
        if value is not None and not isinstance(value, kind):
            raise BadSetting(f"{word} {value!r:.80}; it takes a {kind.__name__}")
    if clock is not None and not callable(getattr(clock, "now", None)):
        raise BadSetting(f"clock {clock!r:.80}; it takes a Clock, for tests a ManualClock")
    given = (clock or SystemClock(), Quotas(quotas), parse(settings), limits or Limits())
    if path is None:
        if storage is not None:
            raise BadSetting("storage is given, but no path: a broker in memory stores nothing")
        return in_memory(*given)
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise BadSetting(f"path {path!r:.80}; it takes the name of a directory")
    engine = on_disk(RealDisk(path), storage or Storage(), *given, gate)
    engine.start()
    return engine


def in_memory(clock: Clock, quotas: Quotas, defaults: Settings, limits: Limits) -> Engine:
    store = Store(
        MemoryLog(),
        ids=IdSource(0),
        tokens=Tokens(0, os.urandom),
        jitter=_jitter(random.Random(os.urandom(16))),  # noqa: S311 - spreads retries, guards nothing
        defaults=defaults,
        limits=limits,
        history_bytes=_HISTORY_BYTES,
    )
    return Engine(store, clock, quotas)


def on_disk(
    disk: Disk,
    storage: Storage,
    clock: Clock,
    quotas: Quotas,
    defaults: Settings,
    limits: Limits,
    gate: Callable[[SegmentLog], Gate] = Gate,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Engine:
    """Open a data directory and bring back the state that its log tells. If that fails nothing stays open."""
    _lock(disk)
    try:
        log = SegmentLog(disk, entropy, storage)
    except BaseException as error:
        disk.unlock(forget=isinstance(error, Refused) and error.code == "not_a_data_directory")
        raise
    try:
        engine = Engine(
            _store(log, defaults, limits, entropy),
            _not_before(clock, log),
            quotas,
            gate(log),
        )
        upkeep = engine.upkeep = Upkeep(engine, log)
        for report in log.reports:
            LOGGER.error("%s", report)
        if log.holes:
            upkeep.save_points()  # so that the next start need not read across them
        return engine
    except BaseException:
        log.close()
        raise


def _not_before(clock: Clock, log: SegmentLog) -> Clock:
    """A clock that does not stand before what is in the log."""
    now = clock.now()
    if now >= log.last_at:
        return clock
    if log.last_at - now > _BEHIND_MS:
        log.reports.append(f"the clock stands at {rfc3339(now)}; the log was written up to {rfc3339(log.last_at)}")
    return Ahead(clock, log.last_at)


def _lock(disk: Disk) -> None:
    try:
        disk.lock()
    except (OSError, ValueError) as error:
        raise BadSetting(f"this cannot be a data directory: {error}") from error


def _store(log: SegmentLog, defaults: Settings, limits: Limits, entropy: Callable[[int], bytes]) -> Store:
    store = Store(
        log,
        ids=IdSource(0),
        tokens=Tokens(log.epoch, entropy),
        jitter=_jitter(random.Random(entropy(16))),  # noqa: S311 - spreads retries, guards nothing
        defaults=defaults,
        limits=limits,
        heart=Heart(_state(log)),
    )
    store.ids.resume(log.last_id)
    store.topic_id = max([log.topic_id, *store.state.topics])
    log.started(store.state.topics.values())
    return store


def _state(log: SegmentLog) -> State:
    if not log.holes:
        state = _whole(log)
        if state is not None:
            return state
    state, passed = salvage(log)
    log.reports.append(f"{len(log.holes)} holes in the log; {passed} entries behind them speak of what is lost")
    return state


def _whole(log: SegmentLog) -> State | None:
    """The state, unless reading the log finds that it has holes after all."""
    try:
        state = recover(log)
    except MISFITS:
        if not log.holes:
            raise
        return None
    return None if log.holes else state


def _jitter(chance: random.Random) -> Callable[[], float]:
    return lambda: chance.uniform(-JITTER_MAX, JITTER_MAX)
