"""What a call is about: the descriptors, tickets and bodies of Flight calls, as typed values.

A descriptor is a path, `[topic]` or `[namespace, topic]`, or a command in JSON that can say more. A ticket is JSON as
well, and proves nothing: whoever brings one is asked for the right to read, as he was when he got it.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from pyarrow import flight

from mqueue.model.errors import Refused, TooLarge
from mqueue.model.limits import KIB
from mqueue.model.names import check_name

T = TypeVar("T")
A = TypeVar("A", bound="Asked")

COMMAND_BYTES_MAX = 512 * KIB
"""Room for ten thousand ids and what is said about them."""


class Asked(Struct, forbid_unknown_fields=True, kw_only=True):
    """A topic."""

    topic: str
    namespace: str = ""
    """Empty: that of the header x-mqueue-namespace, or `default`."""


class Put(Asked, kw_only=True):
    """A stream to publish. `receipts`: JSON for each batch, an Arrow stream for each, or one sum at the end.

    `ahead`: so many batches are sent before the receipt of the first of them is waited for.
    """

    durability: str | None = None
    receipts: Literal["each", "table", "end"] = "each"
    ahead: int = 0


class Scan(Asked, kw_only=True):
    """What to read of the log. A number is an offset of each partition, a text a time, `earliest` or `latest`."""

    partition: int | None = None
    start: int | str | None = None
    stop: int | str | None = None
    columns: list[str] | None = None


class Ticket(Asked, kw_only=True):
    """A stretch of one partition."""

    partition: int
    start: int
    stop: int
    columns: list[str] | None = None


class Consume(Asked, kw_only=True):
    """A stream to consume from. With `prefetch` messages are pushed, `limit` at a time, as long as no more than so
    many are unsettled; without it they come when they are asked for."""

    group: str = "default"
    visibility: float | str | None = None
    prefetch: int | None = None
    limit: int = 1000


class Listing(Struct, forbid_unknown_fields=True):
    """Which topics to list."""

    namespace: str = ""


def asked_in(descriptor: flight.FlightDescriptor, kind: type[A], namespace: str) -> A:
    """What a descriptor asks for."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        names = [_text(part) for part in descriptor.path]
        if not 1 <= len(names) <= 2:
            raise Refused(f"a path of {len(names)} parts; it takes topic, or namespace and topic", code="bad_path")
        return placed(kind(topic=names[-1], namespace=names[0] if len(names) == 2 else ""), namespace)
    return placed(parsed(descriptor.command or b"{}", kind, "command"), namespace)


def placed(asked: A, namespace: str) -> A:
    """With the namespace that it is in, and a name that can be one."""
    asked.namespace = check_name(asked.namespace or namespace, "namespace")
    check_name(asked.topic, "topic")
    return asked


def parsed(data: bytes, kind: type[T], what: str) -> T:
    """JSON of a caller; an empty one stands for `{}`."""
    if len(data) > COMMAND_BYTES_MAX:
        raise TooLarge(f"a {what} of {len(data)} bytes; {COMMAND_BYTES_MAX} are allowed")
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Refused(f"the {what} does not fit: {error}", code=f"bad_{what}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"the {what} is not JSON: {error}", code=f"bad_{what}") from error


def _text(part: bytes | str) -> str:
    try:
        return part.decode() if isinstance(part, bytes) else part
    except UnicodeDecodeError as error:
        raise Refused(f"{part!r:.80} is no text", code="bad_path") from error
