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
    """`patient`: try again and again while a server is away, as long as `timeout` allows. Else the first failure is the
    news: somebody sits there and waits."""

    def __init__(self, context: Context, printer: Printer, timeout: str) -> None:
        self.context = context
        self.printer = printer
        self.timeout = timeout
        self.patient = False
        self._root: Queue | None = None
        self._view: Queue | None = None

    @property
    def queue(self) -> Queue:
        """In the namespace that was asked for."""
        if self._view is None:
            self._root = self._connect()
            self._view = self._root.namespace(self.context.namespace or "default")
        return self._view

    @property
    def is_remote(self) -> bool:
        return self.context.url.lower().startswith(("http:", "https:"))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._root is not None:
            self._root.close()

    def _connect(self) -> Queue:
        """What is not said here a client would look for in the environment, which had its say already."""
        from mqueue.assembly.connect import connect

        context = self.context
        settings: dict[str, Any] = {"name": NAME}
        if self.is_remote:
            settings |= {"token": context.token, "namespace": context.namespace or "default", "ca": context.ca}
            several = "," in context.url  # then one that is away is no reason to give up
            settings |= {"timeout": self.timeout, "retry": self.patient or several}
            if context.cert:
                settings["cert"] = (context.cert, context.key or context.cert)
        return connect(context.url, **settings)
