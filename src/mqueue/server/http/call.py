"""One request, read and checked as far as every route needs it: who calls, in which namespace, with what body."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from mqueue.broker.aio import AsyncBroker
from mqueue.broker.loop import LoopBroker
from mqueue.broker.twin import behind
from mqueue.model.errors import Forbidden, Refused
from mqueue.model.limits import Limits
from mqueue.server.http.answer import ARROW
from mqueue.server.security.principal import Principal, Verb
from mqueue.wire.json import ROOM

if TYPE_CHECKING:
    from mqueue.server.http.service import Service

T = TypeVar("T")


class Leaving(Protocol):
    """An event: the caller has left."""

    async def wait(self) -> bool: ...


class Call(Struct):
    """What a handler gets."""

    service: Service
    method: str
    path: str
    names: Mapping[str, str]
    """The names in the path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case name; those that came several times are joined by commas."""
    principal: Principal
    namespace: str
    body: bytes = b""
    peer: str = ""
    certificate: bytes | None = None
    """The client's, in DER."""
    gone: Leaving | None = None
    """Set when the caller has left."""
    target: str = ""
    """Path and query as they came."""
    unproven: bool = False
    """The caller signed the request, and nobody has looked at the signature yet."""
    vouched: bool = False
    """Another node answers for the caller: it let him in, and looks whether he may stay."""
    home: AsyncBroker | None = None
    """In a cluster, the broker that has what this is about."""

    @property
    def broker(self) -> AsyncBroker:
        return self.home or self.service.view(self.namespace)

    @property
    def behind(self) -> LoopBroker:
        """The broker behind `broker`, for what only a server does: see `mqueue.broker.remote`."""
        found: LoopBroker = behind(self.broker)
        return found

    @property
    def limits(self) -> Limits:
        """What one publish call may carry."""
        return self.behind._engine.store.limits

    @property
    def topic(self) -> str:
        return self.names["topic"]

    @property
    def consumer(self) -> str:
        """Escaped as in a URL: headers carry no other text than Latin."""
        text = self.headers.get("x-mqueue-consumer", "")
        return unquote(text) if "%" in text else text

    @property
    def brings_arrow(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == ARROW

    @property
    def wants_arrow(self) -> bool:
        return ARROW in self.headers.get("accept", "")

    def demand(self, verb: Verb, namespace: str, topic: str | None = None) -> None:
        """Raise unless the caller may do this there; then the audit log is told."""
        try:
            self.principal.demand(verb, namespace, topic)
        except Forbidden:
            now = self.service.clock.now()
            what = f"{self.method} {self.path}"
            self.service.door.refused(self.principal, what, self.peer, now, namespace, topic or "")
            raise

    def demand_again(self, verb: Verb) -> None:
        """Raise unless the caller of a long conversation is still let in, and may still do this in the topic."""
        self.look_again()
        self.demand(verb, self.namespace, self.topic)

    def look_again(self) -> None:
        """Raise unless the caller of a long conversation is still let in. What he may do is what he may do now."""
        if not self.vouched:
            door, now = self.service.door, self.service.clock.now()
            self.principal = door.known(self.headers, self.peer, self.certificate, now)

    def parsed(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body from JSON; an empty one stands for `{}`."""
        ROOM.limit(self.limits.call_messages_max)
        try:
            return decoder.decode(self.body or b"{}")
        except msgspec.ValidationError as error:
            raise Refused(f"the body does not fit: {error}", code="bad_body") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"the body is not JSON: {error}", code="bad_json") from error
        finally:
            ROOM.limit(math.inf)

    def number(self, name: str, default: int | None = None) -> Any:
        """A whole number in the query; `default` where it is not given."""
        text = self.query.get(name)
        if text is None:
            return default
        digits = text[1:] if text.startswith("-") else text
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
            raise Refused(f"{name} {text!r:.80}; it takes a whole number", code="bad_query")
        return int(text)

    def flag(self, name: str) -> bool:
        text = self.query.get(name, "false").lower()
        if text not in ("true", "false", "1", "0", ""):
            raise Refused(f"{name} {text!r:.80}; it takes true or false", code="bad_query")
        return text in ("true", "1", "")
