"""The brokers over one engine that somebody else opens and closes: one for each namespace, made when it is asked for.

For event loops. They go when the engine goes, so whoever has the engine has them.
"""

from __future__ import annotations

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.engine import Engine
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import twin_of

_VIEWS_MAX = 64
"""Namespaces are as many as callers name; engines are up to a thousand."""


class Views:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._views: dict[str, AsyncBroker] = {}

    def of(self, namespace: str) -> AsyncBroker:
        view = self._views.get(namespace)
        if view is None:
            if len(self._views) >= _VIEWS_MAX:
                self._views.clear()
            view = self._views[namespace] = twin_of(LoopBroker._over(self._engine, namespace, ""))
        return view
