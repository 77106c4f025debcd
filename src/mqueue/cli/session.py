"""One run of a verb: the queue it talks to, opened when it is first asked for, and the printer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from mqueue.cli.contexts import Context
from mqueue.cli.output import Printer

if TYPE_CHECKING:
    from mqueue.broker.broker import Broker
    from mqueue.client.sync import Client

Queue: TypeAlias = "Broker | Client"
"""Embedded or remote: the calls are the same."""

NAME = "mqueue-cli"


class Session:
    def __init__(self, context: Context, printer: Printer) -> None:
        self.context = context
        self.printer = printer
        self._root: Queue | None = None

    @property
    def queue(self) -> Queue:
        if self._root is None:
            self._root = _connect(self.context)
        namespace = self.context.namespace
        return self._root.namespace(namespace) if namespace and namespace != "default" else self._root

    @property
    def is_remote(self) -> bool:
        return self.context.url.lower().startswith(("http:", "https:"))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._root is not None:
            self._root.close()


def _connect(context: Context) -> Queue:
    from mqueue.assembly.connect import connect

    settings: dict[str, Any] = {"name": NAME}
    if context.url.lower().startswith(("http:", "https:")):
        settings |= {"token": context.token, "ca": context.ca}
        if context.cert:
            settings["cert"] = (context.cert, context.key or context.cert)
    return connect(context.url, **settings)
